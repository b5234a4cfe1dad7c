"""stable-baselines3's side of `side_calls.py`, run with its interpreter:

side_sb3_calls.py LIBRARY CLASS ENV WARM_UP STRETCH rows=N | batch=N [setting=value …]
"""

from __future__ import annotations

import importlib
import json
import sys

import gymnasium as gym
import numpy as np
import torch
from pacer import Pacer, observations
from stable_baselines3.common.buffers import ReplayBuffer

ROWS = 10_000


def main() -> None:
    library, algo, env_id, warm_up, stretch, what, *settings = sys.argv[1:]
    torch.set_num_threads(1)
    values = {key: json.loads(value) for key, _, value in (word.partition("=") for word in settings)}
    env, (kind, _, size) = gym.make(env_id), what.partition("=")
    if kind == "batch":
        replay = ReplayBuffer(ROWS, env.observation_space, env.action_space, "cpu")
        zeros = np.zeros(1, np.float32)
        for _ in range(ROWS):
            obs = observations(env.observation_space, 1)[None]
            replay.add(obs, obs, env.action_space.sample()[None], zeros, zeros, [{}])
        call = lambda: replay.sample(int(size))  # noqa: E731
    else:
        small = {} if algo in ("PPO", "A2C") else {"buffer_size": 100}
        model = getattr(importlib.import_module(library), algo)("MlpPolicy", env, device="cpu", **small, **values)
        obs = observations(env.observation_space, int(size))
        call = lambda: model.predict(obs, deterministic=True)  # noqa: E731
    pacer = Pacer(int(warm_up), int(stretch))
    while True:
        call()
        pacer.step()


if __name__ == "__main__":
    main()
