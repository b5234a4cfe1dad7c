"""stable-baselines3's side of `side_files.py`, run with its interpreter: a model and its replay buffer, saved whole.

side_sb3_files.py LIBRARY CLASS ENV ROWS NEW save|resume [setting=value …]
"""

from __future__ import annotations

import importlib
import json
import sys
import tempfile

import gymnasium as gym
import torch
from pacer import Pacer, observations


def main() -> None:
    library, algo, env_id, rows, _new, what, *words = sys.argv[1:]
    values = {key: json.loads(value) for key, _, value in (word.partition("=") for word in words)}
    torch.set_num_threads(1)
    cls, pacer = getattr(importlib.import_module(library), algo), Pacer(0, 1)
    model = cls("MlpPolicy", gym.make(env_id), device="cpu", **values)
    obs, action = observations(model.observation_space, 1)[None], model.action_space.sample()[None]
    for _ in range(int(rows)):
        model.replay_buffer.add(obs, obs, action, [0.0], [False], [{}])
    with tempfile.TemporaryDirectory() as folder:

        def save() -> None:
            model.save(f"{folder}/model")
            model.save_replay_buffer(f"{folder}/replay")

        def resume() -> None:
            found = cls.load(f"{folder}/model", env=gym.make(env_id), device="cpu")
            found.load_replay_buffer(f"{folder}/replay")

        save()
        pacer.serve({"save": save, "resume": resume}[what])


if __name__ == "__main__":
    main()
