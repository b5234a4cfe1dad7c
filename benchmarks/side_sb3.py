"""stable-baselines3's side of a comparison, run with an interpreter that has it."""

from __future__ import annotations

import json
import os
import sys

import gymnasium as gym
import stable_baselines3
import torch
from pacer import Pacer
from stable_baselines3.common.callbacks import BaseCallback


class Turns(BaseCallback):
    def __init__(self, pacer: Pacer) -> None:
        super().__init__()
        self.pacer = pacer

    def _on_step(self) -> bool:
        self.pacer.step()
        return True


def main() -> None:
    algo, env_id, warm_up, stretch, *settings = sys.argv[1:]
    values = {key: json.loads(value) for key, _, value in (word.partition("=") for word in settings)}
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    model = getattr(stable_baselines3, algo.upper())("MlpPolicy", gym.make(env_id), seed=0, device="cpu", **values)
    model.learn(1_000_000, callback=Turns(Pacer(int(warm_up), int(stretch))))


if __name__ == "__main__":
    main()
