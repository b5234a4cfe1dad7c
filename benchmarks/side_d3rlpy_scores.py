"""One seed of a d3rlpy algorithm trained on npz datasets with our settings, its last agent evaluated."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import d3rlpy
import gymnasium as gym
import numpy as np
import torch
from side_d3rlpy import configured

RETURN_RANGE = 1000.0


def read_rows(paths: list[str]) -> dict[str, np.ndarray]:
    names = ("observations", "actions", "rewards", "terminals", "timeouts")
    found: dict[str, list[np.ndarray]] = {name: [] for name in names}
    for path in paths:
        with np.load(path, allow_pickle=False) as file:
            for name in names:
                found[name].append(np.asarray(file[name], np.float32))
        if not found["terminals"][-1][-1]:
            found["timeouts"][-1][-1] = 1  # the last episode of a file does not continue in the next file
    return {name: np.concatenate(parts) for name, parts in found.items()}


def scaled_rewards(rows: dict[str, np.ndarray], scale: float | str, shift: float) -> np.ndarray:
    if scale == "return_range":
        ends = np.flatnonzero((rows["terminals"] > 0) | (rows["timeouts"] > 0)) + 1
        returns = [part.sum() for part in np.split(rows["rewards"], ends) if len(part)]
        scale = RETURN_RANGE / float(max(returns) - min(returns))
    return rows["rewards"] * float(scale) + shift


def mean_return(env_id: str, act: Callable[[np.ndarray], np.ndarray], episodes: int, seed: int) -> float:
    """All episodes side by side, one environment each."""
    envs = [gym.make(env_id) for _ in range(episodes)]
    obs = np.stack([env.reset(seed=100_000 * (seed + 1) + number)[0] for number, env in enumerate(envs)])
    totals, active = np.zeros(episodes), np.ones(episodes, bool)
    while active.any():
        rows = np.flatnonzero(active)
        for row, action in zip(rows, act(obs[rows]), strict=True):
            obs[row], reward, terminated, truncated, _ = envs[row].step(action)
            totals[row] += float(reward)
            active[row] = not (terminated or truncated)
    return float(totals.mean())


def main() -> None:
    job: dict[str, Any] = json.loads(sys.argv[1])
    settings, seed, steps = job["settings"], job["seed"], job["total_timesteps"]
    d3rlpy.seed(seed)
    torch.set_num_threads(job["threads"])
    space = gym.make(job["env_id"]).action_space
    middle, half = (space.high + space.low) / 2, (space.high - space.low) / 2
    rows = read_rows(job["files"])
    data = d3rlpy.dataset.MDPDataset(
        rows["observations"],
        np.clip((rows["actions"] - middle) / half, -1, 1),
        scaled_rewards(rows, settings.get("reward_scale", 1.0), settings.get("reward_shift", 0.0)),
        rows["terminals"],
        rows["timeouts"] * (1 - rows["terminals"]),  # a terminal state is not a time limit
    )
    algo = configured(job["class"], settings, steps).create(device=False if job["device"] == "cpu" else job["device"])
    started = time.monotonic()
    algo.fit(
        data, n_steps=steps, n_steps_per_epoch=steps, show_progress=False, save_interval=2,
        logger_adapter=d3rlpy.logging.NoopAdapterFactory(),
    )  # fmt: skip
    seconds = time.monotonic() - started

    def act(obs: np.ndarray) -> np.ndarray:
        chosen = middle + half * algo.predict(obs.astype(np.float32))
        return np.asarray(np.clip(chosen, space.low, space.high).astype(space.dtype))

    final = mean_return(job["env_id"], act, job["fresh_episodes"], seed)
    print(json.dumps({"seed": seed, "train_seconds": seconds, "final": final}))


if __name__ == "__main__":
    main()
