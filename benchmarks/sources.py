"""Random data for benchmarks of updates: shapes of tasks, settings, a filled replay or a dataset."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import torch

from rl_training.algorithms.base import Learner, ReplaySettings
from rl_training.algorithms.registry import learner_class
from rl_training.config.fields import parse
from rl_training.config.offline_settings import OfflineSettings
from rl_training.config.train_config import TrainConfig
from rl_training.core.specs import EnvSpec, continuous, discrete, image, vector
from rl_training.data.datasets.transition_dataset import ResidentData, TransitionDataset
from rl_training.data.replay.buffer import ReplayBuffer
from rl_training.data.replay.frames import FrameReplay
from rl_training.loops.offline import SCHEDULE_INTERVAL
from rl_training.run.capacity import make_replay

SHAPES = {
    "HalfCheetah-v5": EnvSpec(vector(17), continuous(6)),
    "CartPole-v1": EnvSpec(vector(4), discrete(2)),
    "pixels": EnvSpec(image(9, 84, 84, frames=3), continuous(6), 1000),
}
ROWS = 10_000


def filled_source(spec: EnvSpec, settings: ReplaySettings, seeds: int, device: str) -> ReplayBuffer | ResidentData:
    """Random transitions: a dataset for an offline algorithm, else a replay."""
    generator = torch.Generator(device=device).manual_seed(0)
    if isinstance(settings, OfflineSettings):
        rows = {name: torch.randn(ROWS, *spec.observation.shape) for name in ("obs", "next_obs")}
        actions = torch.rand(ROWS, spec.action.size) * 2 - 1
        zeros = torch.zeros(ROWS)
        return ResidentData(TransitionDataset(**rows, actions=actions, rewards=torch.randn(ROWS), dones=zeros), device)
    # As in a run, with n-step returns and priorities.
    config = TrainConfig("any", "any", total_timesteps=ROWS, seeds=tuple(range(seeds)))
    replay = make_replay(config, settings, spec, torch.device(device))
    for tensor in replay.storage.values():
        if tensor.is_floating_point():
            tensor.normal_(generator=generator)
    if spec.action.kind == "discrete":
        replay.storage["actions"].random_(0, spec.action.size, generator=generator)
    else:
        replay.storage["actions"].tanh_()
    if isinstance(replay, FrameReplay):
        replay.pictures.random_(0, 256, generator=generator)
        replay.storage["age"].fill_(replay.stack - 1)
        replay.storage["final"].fill_(-1)
    replay.finish_writing(ROWS)
    if replay.priorities is not None:
        replay.priorities.add(0, ROWS)
    return replay


def parse_changes(cls: type[Learner], changes: Sequence[str]) -> Any:
    """The algorithm's settings, with changes such as `batch_size=512`, whose values are JSON."""
    values = {key: json.loads(value) for key, _, value in (text.partition("=") for text in changes)}
    return parse(cls.settings_type, values, "algo_kwargs")


def shape_name(algo: str) -> str:
    """The name of the task that an algorithm is measured on."""
    cls = learner_class(algo)
    if cls.observations == ("image",):
        return "pixels"
    return "CartPole-v1" if "discrete" in cls.actions else "HalfCheetah-v5"


def updates_per_call(settings: ReplaySettings) -> int:
    """The number of updates that the loop runs at once on a GPU."""
    return SCHEDULE_INTERVAL if isinstance(settings, OfflineSettings) else settings.gradient_updates_per_step
