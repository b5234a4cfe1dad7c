"""Every option of PPO keeps the promises of a run: exact resume, seeds alone, and learning from what was collected."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import dict_envs  # noqa: F401  registers its environment
import gymnasium as gym
import masked_envs  # noqa: F401
import numpy as np
import pytest
from gymnasium import spaces
from resume_harness import whole_and_cut
from seed_harness import assert_same_bits, saved_arrays

from rl_training.config.train_config import TrainConfig
from rl_training.run.run import train


class Free(gym.Env[Any, Any]):
    """Box actions without bounds: the reward is minus the distance from 5. Episodes of 7 steps end by turns."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": []}
    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)
    action_space = spaces.Box(-np.inf, np.inf, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.steps, self.ends = 0, bool(self.np_random.integers(2))
        return self.np_random.standard_normal(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        over = self.steps == 7
        reward = -float(np.abs(action - 5).sum())
        return self.np_random.standard_normal(2, np.float32), reward, over and self.ends, over and not self.ends, {}


gym.register("FreeActions-v0", Free)
DICT = ("AnySpaces-v0", {"observation": "numbers", "action": "box"})
IMAGE = ("AnySpaces-v0", {"observation": "one image", "action": "discrete"})
CARTPOLE = ("CartPole-v1", {"max_episode_steps": 13})
PENDULUM = ("Pendulum-v1", {"max_episode_steps": 13})
DOORS, MULTI = ("Doors-v0", {}), ("DoorsMulti-v0", {})
# Every option by itself, and together what a run might combine.
TOGETHER: dict[str, tuple[tuple[str, dict[str, Any]], dict[str, Any]]] = {
    "memory and masks": (DOORS, {"recurrent": "lstm", "normalize_returns": True, "target_kl": 1e-4}),
    "dict": (DICT, {"recurrent": "gru", "normalize_observations": True, "predicted_log_std": True,
                    "recompute_advantages": True, "value_clip_range": 0.1, "shared_network": True,
                    "learning_rate_schedule": "linear"}),
    "images": (IMAGE, {"learning_rate_kl": 1e-3, "entropy_weight": 0.01}),
    "unbounded": (("FreeActions-v0", {}), {"normalize_advantages": "batch", "normalize_returns": True,
                                           "normalize_observations": True, "target_kl": 1e-3,
                                           "learning_rate_kl": 1e-3}),
}  # fmt: skip
APART: dict[str, tuple[tuple[str, dict[str, Any]], dict[str, Any]]] = {
    "lstm": (CARTPOLE, {"recurrent": "lstm"}),
    "gru": (PENDULUM, {"recurrent": "gru"}),
    "masks": (DOORS, {}),
    "multi-discrete masks": (MULTI, {"recurrent": "gru"}),
    "multi-discrete": (("AnySpaces-v0", {"observation": "multi_discrete", "action": "multi_discrete"}), {}),
    "multi-binary": (("AnySpaces-v0", {"observation": "multi_binary", "action": "multi_binary"}), {}),
    "mixed": (("AnySpaces-v0", {"observation": "mixed", "action": "box"}), {"recurrent": "lstm"}),
    "images apart": (IMAGE, {"shared_network": False}),
    "shared": (CARTPOLE, {"shared_network": True}),
    "predicted deviation": (PENDULUM, {"predicted_log_std": True, "initial_log_std": -1.0}),
    "normalised observations": (CARTPOLE, {"normalize_observations": True}),
    "normalised returns": (PENDULUM, {"normalize_returns": True}),
    "advantages as they are": (CARTPOLE, {"normalize_advantages": "off"}),
    "recomputed": (CARTPOLE, {"recompute_advantages": True}),
    "stop": (PENDULUM, {"target_kl": 1e-4}),
    "adapted rate": (PENDULUM, {"learning_rate_kl": 1e-4}),
    "schedule": (CARTPOLE, {"learning_rate_schedule": "cosine", "learning_rate_warmup": 0.2}),
    "clipped values": (CARTPOLE, {"value_clip_range": 0.05}),
    "AdamW": (CARTPOLE, {"optimizer": {"name": "AdamW", "weight_decay": 0.1}, "target_kl": 1e-3}),
    "dropout": (CARTPOLE, {"network": {"dropout": 0.2}}),
}
OPTIONS = {**TOGETHER, **APART}


def options(*default: str) -> Any:
    """Every option, all but the given ones in the sweep."""
    marks = {name: () if name in default else pytest.mark.sweep for name in OPTIONS}
    return pytest.mark.parametrize("option", [pytest.param(name, marks=marks[name]) for name in OPTIONS])


SETTINGS = {"rollout_steps": 10, "batch_size": 10, "epochs": 2, "hidden_sizes": [8], "recurrent_size": 4,
            "sequence_length": 5, "learning_rate": 3e-3}  # fmt: skip
QUICK = {"total_timesteps": 110, "num_envs": 2, "eval_episodes": 1, "eval_interval": 60, "log_interval": 25}
QUICK |= {"checkpoint_interval": 50, "compile": "off", "threads": 1, "device": "cpu", "video": False, "report": False}


def run(option: str, path: Path, callbacks: Any = (), algo: str = "ppo", **changes: Any) -> Any:
    (env_id, env_kwargs), settings = OPTIONS[option]
    settings = {**SETTINGS, **settings, **changes.pop("settings", {})}
    values: dict[str, Any] = {**QUICK, **changes, "output_dir": path, "algo_kwargs": settings}
    return train(TrainConfig(algo, env_id, env_kwargs=env_kwargs, **values), callbacks=callbacks, show_progress=False)


@options("memory and masks")
@pytest.mark.parametrize("cut", [pytest.param(60, marks=pytest.mark.sweep), 74], ids=["between", "in a rollout"])
def test_a_cut_run_ends_in_the_same_bits(option: str, cut: int, tmp_path: Path, monkeypatch: Any) -> None:
    start = partial(run, option, Path("runs"), seeds=(3, 8))
    assert whole_and_cut(start, cut, tmp_path, monkeypatch) == []


@options("dict")
def test_a_seed_among_others_is_the_seed_alone(option: str, tmp_path: Path) -> None:
    changes = {"eval_episodes": 0}
    together = run(option, tmp_path / "together", seeds=(4, 2, 9), **changes)
    alone = run(option, tmp_path / "alone", seeds=(2,), **changes)
    assert_same_bits(saved_arrays(together, 1), saved_arrays(alone, 0))


@options("memory and masks", "dict")
def test_the_first_update_learns_from_the_policy_that_acted(option: str, tmp_path: Path) -> None:
    """One update on each rollout: masks, states and statistics that are those of collecting leave ratios at 1."""
    if "dropout" in option:
        pytest.skip("the policy that learns has other units than the one that acted")
    once = {"epochs": 1, "batch_size": 20, "target_kl": None, "learning_rate_kl": None}
    made = run(option, tmp_path, settings=once, log_interval=20, eval_episodes=0)
    rows = [json.loads(line) for line in (made.run_dir / "metrics.jsonl").read_text().splitlines()]
    found = [row["train/approx_kl"] for row in rows if "train/approx_kl" in row]
    assert len(found) == 5 and max(found) < 1e-9
    assert made.metrics["gradient_steps"] == 5
