"""One seed of stable-baselines3 or sb3-contrib, trained and evaluated as `learn.py` does it with ours."""

from __future__ import annotations

import importlib
import json
import sys
import tempfile
import time
from typing import Any

import gymnasium as gym
import torch
from stable_baselines3.common.callbacks import EvalCallback
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor


def main() -> None:
    settings: dict[str, Any] = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    module, _, name = settings["class"].partition(":")
    cls = getattr(importlib.import_module(module), name)
    kwargs, seed = settings["kwargs"], settings["seed"]
    if settings["linear_rate"]:
        start = kwargs["learning_rate"]
        kwargs["learning_rate"] = lambda remaining: remaining * start
    env, fresh = Monitor(gym.make(settings["env_id"])), Monitor(gym.make(settings["env_id"]))
    fresh.reset(seed=10_000 + seed)
    with tempfile.TemporaryDirectory() as folder:
        evaluate = EvalCallback(
            Monitor(gym.make(settings["env_id"])),
            n_eval_episodes=settings["eval_episodes"],
            eval_freq=settings["eval_interval"],
            best_model_save_path=folder,
            verbose=0,
        )
        model = cls("MlpPolicy", env, seed=seed, device=settings["device"], **kwargs)
        started = time.monotonic()
        model.learn(settings["total_timesteps"], callback=evaluate)
        seconds = time.monotonic() - started
        best = cls.load(f"{folder}/best_model", device=settings["device"])
    found = {
        kind: float(evaluate_policy(agent, fresh, n_eval_episodes=settings["fresh_episodes"])[0])
        for kind, agent in (("best", best), ("final", model))
    }
    print(json.dumps({"seed": seed, "train_seconds": seconds, **found}))


if __name__ == "__main__":
    main()
