"""Host environments as a part of a run: open episodes, their actions and native states, episode statistics."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_training.checkpoint.parts import PartState, StoredPart
from rl_training.checkpoint.read import Checkpoint
from rl_training.config.fields import at_least, setting
from rl_training.envs.host.vector import SeededEnvs

FILE = "envs.safetensors"


@dataclass(frozen=True)
class StatisticsState:
    open_returns: tuple[float, ...]
    open_lengths: tuple[int, ...]
    returns: tuple[tuple[float, ...], ...]
    lengths: tuple[tuple[int, ...], ...]
    finished: tuple[int, ...]


@dataclass(frozen=True)
class EnvironmentsState:
    statistics: dict[str, Any]
    episodes: tuple[int, ...] = setting(must=at_least(0))
    unlogged: tuple[int, ...] = setting((), at_least(0))


class EnvironmentsPart:
    """Saves environments and brings them back: by their native state, or by replaying their open episodes."""

    name = "environments"

    def __init__(self, envs: SeededEnvs) -> None:
        self.envs = envs

    def state(self, previous: Checkpoint | None) -> PartState:
        snapshot = self.envs.snapshot()
        tensors = {
            "obs": torch.from_numpy(snapshot["obs"]),
            **{f"actions_{row}": torch.from_numpy(log) for row, log in enumerate(snapshot["actions"])},
            **{f"state_{row}": torch.from_numpy(state) for row, state in enumerate(snapshot["states"])},
        }
        values = {name: snapshot[name] for name in ("episodes", "unlogged")}
        return PartState({**values, "statistics": self.envs.statistics.state()}, {"envs": tensors})

    def check(self, stored: StoredPart) -> None:
        state = stored.parse(EnvironmentsState)
        statistics = stored.parse(StatisticsState, state.statistics)
        seeds, rows = len(self.envs.seeds), self.envs.size
        lengths = {
            "episodes": (len(state.episodes), rows),
            "open_returns": (len(statistics.open_returns), rows),
            "open_lengths": (len(statistics.open_lengths), rows),
            "returns": (len(statistics.returns), seeds),
            "lengths": (len(statistics.lengths), seeds),
            "finished": (len(statistics.finished), seeds),
        }
        for name, (found, expected) in lengths.items():
            if found != expected:
                raise stored.invalid(f"{name} has {found} entries, {expected} are expected")

    def load(self, stored: StoredPart) -> None:
        envs, state, tensors = self.envs, stored.parse(EnvironmentsState), stored.tensors(FILE)
        self._check_open_episodes(stored, tensors)
        envs.restore(
            {
                "episodes": state.episodes,
                "unlogged": state.unlogged,
                "actions": [tensors[f"actions_{row}"].numpy() for row in range(envs.size)],
                "states": [tensors[f"state_{row}"].numpy() for row in range(envs.size)],
                "obs": tensors["obs"].numpy(),
            }
        )
        envs.statistics.load(asdict(stored.parse(StatisticsState, state.statistics)))
        envs.statistics.forget(envs.lost)

    def _check_open_episodes(self, stored: StoredPart, tensors: dict[str, Tensor]) -> None:
        envs, space = self.envs, self.envs.action.space
        stored.check_tensors(FILE, tensors, {"obs": (envs.obs.shape, torch.from_numpy(envs.obs).dtype)})
        for row in range(envs.size):
            state, actions = tensors.get(f"state_{row}"), tensors.get(f"actions_{row}")
            if state is None or state.dtype != torch.uint8 or state.dim() != 1:
                raise stored.invalid(f"{FILE}: state_{row} must be bytes")
            if actions is None or not actions.dim():
                raise stored.invalid(f"{FILE}: actions_{row} is missing")
            if tuple(actions.shape) == (0,):  # the episode has just begun
                continue
            taken = actions.numpy()
            fits = taken.shape == (len(taken), *(space.shape or ()))
            fits = fits and np.can_cast(taken.dtype, space.dtype or taken.dtype)
            if not fits or not envs.action.contains(taken):
                raise stored.invalid(f"{FILE}: actions_{row} are not actions of {space}")
