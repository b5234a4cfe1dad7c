"""The side of stable-baselines3 and of libraries with its interface (sb3_contrib, sbx), run with their interpreter:

side_sb3.py LIBRARY CLASS ENV WARM_UP STRETCH [setting=value …]
"""

from __future__ import annotations

import importlib
import json
import os
import sys

import torch
from pacer import Pacer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env


class Turns(BaseCallback):
    def __init__(self, pacer: Pacer) -> None:
        super().__init__()
        self.pacer = pacer

    def _on_step(self) -> bool:
        self.pacer.step()
        return True


def main() -> None:
    library, algo, env_id, warm_up, stretch, *settings = sys.argv[1:]
    values = {key: json.loads(value) for key, _, value in (word.partition("=") for word in settings)}
    torch.set_num_threads(values.pop("threads", len(os.sched_getaffinity(0))))
    envs = make_vec_env(env_id, values.pop("num_envs", 1))
    model = getattr(importlib.import_module(library), algo)("MlpPolicy", envs, seed=0, device="cpu", **values)
    model.learn(1_000_000, callback=Turns(Pacer(int(warm_up), int(stretch))))


if __name__ == "__main__":
    main()
