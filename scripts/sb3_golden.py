"""Makes small models of Stable-Baselines3 and their predictions, with which the import of such models is tested.

PEERS/bin/python scripts/sb3_golden.py tests/data/sb3    (PEERS: an environment with stable-baselines3 and sb3-contrib)
"""

from __future__ import annotations

import argparse
import json
import zipfile
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import sb3_contrib
import stable_baselines3
import torch
from gymnasium import spaces
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

ROWS = 50
SIZES = {"pi": [8, 6], "qf": [7, 5]}
KEPT = ("data", "policy.pth", "pytorch_variables.pth", "_stable_baselines3_version")


class Switches(gym.Env[Any, Any]):
    """Eight steps with an action space of choices: SB3_<name> of `action`."""

    ACTIONS = {"multi_binary": spaces.MultiBinary(3), "multi_discrete": spaces.MultiDiscrete([3, 2])}  # noqa: RUF012

    def __init__(self, action: str) -> None:
        self.observation_space, self.action_space = spaces.Box(-1, 1, (2, 2), np.float32), self.ACTIONS[action]

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.steps = 0
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        return self.observation_space.sample(), float(np.sum(action)), False, self.steps >= 8, {}


for _name in Switches.ACTIONS:
    gym.register(f"Switches-{_name}-v0", Switches, kwargs={"action": _name})

MODELS: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "sac": (stable_baselines3.SAC, "Pendulum-v1", {"policy_kwargs": {"net_arch": SIZES}}),
    "td3": (stable_baselines3.TD3, "Pendulum-v1", {"policy_kwargs": {"net_arch": SIZES}}),
    "dqn": (stable_baselines3.DQN, "CartPole-v1", {"policy_kwargs": {"net_arch": [8, 6]}}),
    "ppo-choices": (stable_baselines3.PPO, "CartPole-v1", {"policy_kwargs": {"net_arch": [8, 6]}}),
    "ppo-numbers": (
        stable_baselines3.PPO,
        "Pendulum-v1",
        {"policy_kwargs": {"net_arch": {"pi": [8], "vf": [5, 4]}, "activation_fn": torch.nn.ELU}},
    ),
    "ppo-normalized": (stable_baselines3.PPO, "Pendulum-v1", {"policy_kwargs": {"net_arch": [8]}}),
    "ppo-binary": (stable_baselines3.PPO, "Switches-multi_binary-v0", {"policy_kwargs": {"net_arch": [8]}}),
    "ppo-multi": (stable_baselines3.PPO, "Switches-multi_discrete-v0", {"policy_kwargs": {"net_arch": [8]}}),
    "tqc": (sb3_contrib.TQC, "Pendulum-v1", {"policy_kwargs": {"net_arch": SIZES, "n_quantiles": 5, "n_critics": 3}}),
    "qr_dqn": (sb3_contrib.QRDQN, "CartPole-v1", {"policy_kwargs": {"net_arch": [8, 6], "n_quantiles": 5}}),
}


def make(name: str, folder: Path) -> Path:
    """Write a model file, its greedy actions for some observations, and the statistics of a normalised one."""
    cls, env_id, options = MODELS[name]
    env: Any = DummyVecEnv([lambda: gym.make(env_id)])
    if name.endswith("-normalized"):
        env = VecNormalize(env)
    rollout = {"n_steps": 64, "batch_size": 32} if cls is stable_baselines3.PPO else {"learning_starts": 20}
    model = cls("MlpPolicy", env, seed=0, device="cpu", **rollout, **options)
    model.learn(192)
    env.observation_space.seed(1)
    rows = np.stack([env.observation_space.sample() for _ in range(ROWS)])
    given = rows
    if isinstance(env, VecNormalize):
        stats = {"mean": env.obs_rms.mean, "var": env.obs_rms.var, "count": env.obs_rms.count}
        np.savez(folder / f"{name}-stats.npz", **stats, epsilon=env.epsilon, clip_obs=env.clip_obs)
        given = env.normalize_obs(rows)
    actions = np.zeros(1)
    while len(np.unique(actions)) == 1:  # until actions depend on observations
        for parameter in model.policy.parameters():
            parameter.data += 0.3 * torch.randn_like(parameter)
        actions = model.predict(given, deterministic=True)[0]
    path = folder / f"{name}.zip"
    model.save(path)
    np.savez(folder / f"{name}-predictions.npz", obs=rows, actions=actions)
    return path


def strip(path: Path) -> None:
    """Without optimizers and pickles, which are not read and hold the paths of this machine."""
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist() if name in KEPT}
    data = json.loads(files["data"])
    for value in data.values():
        if isinstance(value, dict):
            value.pop(":serialized:", None)
    kept = ("policy_class", "policy_kwargs", "num_timesteps", "seed", "gamma", "tau", "learning_rate", "batch_size")
    kept += ("use_sde", "clip_range", "top_quantiles_to_drop_per_net")
    files["data"] = json.dumps({name: data[name] for name in kept if name in data}, default=str).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--whole", action="store_true", help="keep the files as Stable-Baselines3 writes them")
    parser.add_argument("--only", nargs="+", choices=MODELS)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for name in args.only or MODELS:
        path = make(name, args.folder)
        if not args.whole:
            strip(path)


if __name__ == "__main__":
    main()
