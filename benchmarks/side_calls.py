"""Single calls of this library: `side_calls.py ALGO ENV WARM_UP STRETCH rows=N | batch=N [setting=value …]`.

rows: `predict` of so many observations, with networks as at the start of training; batch: a batch of a full replay.
`device` may be given beside the settings of the algorithm.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import rl_training  # noqa: F401  before numpy and torch: it chooses how they round

import gymnasium as gym  # isort: skip
import numpy as np
import torch
from pacer import Pacer, observations
from sources import SHAPES, filled_source

from rl_training.algorithms.registry import learner_class
from rl_training.config.fields import parse
from rl_training.config.train_config import TrainConfig
from rl_training.envs.spaces import ActionCodec, ObservationCodec, env_spec
from rl_training.run.agent import Agent


def prediction(algo: str, env_id: str, rows: int, values: dict[str, Any], device: str) -> Callable[[], object]:
    env, cls = gym.make(env_id), learner_class(algo)
    codecs = ObservationCodec(env.observation_space), ActionCodec(env.action_space)
    learner = cls.create(env_spec(*codecs), parse(cls.settings_type, values), [0], device=device)
    agent, obs = Agent(TrainConfig(algo, env_id), learner, *codecs), observations(env.observation_space, rows)
    return lambda: agent.predict(obs)


def sampling(algo: str, env_id: str, size: int, values: dict[str, Any], device: str) -> Callable[[], object]:
    """Row numbers are drawn and gathered, as for an update."""
    replay = filled_source(SHAPES[env_id], parse(learner_class(algo).settings_type, values), 1, device)
    rng = np.random.default_rng(0)
    return lambda: replay.gather(torch.from_numpy(rng.integers(replay.size, size=(1, size))).to(device))


def main() -> None:
    algo, env_id, warm_up, stretch, what, *settings = sys.argv[1:]
    torch.set_num_threads(1)
    values = {key: json.loads(value) for key, _, value in (word.partition("=") for word in settings)}
    (kind, _, size), device = what.partition("="), values.pop("device", "cpu")
    call = {"rows": prediction, "batch": sampling}[kind](algo, env_id, int(size), values, device)
    pacer = Pacer(int(warm_up), int(stretch), torch.cuda.synchronize if device != "cpu" else lambda: None)
    while True:
        call()
        pacer.step()


if __name__ == "__main__":
    main()
