"""Host environments as a part of a run: open episodes, their actions and native states, episode statistics."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from rl_training.checkpoint.parts import PartState, StoredPart
from rl_training.checkpoint.read import Checkpoint
from rl_training.checkpoint.schema import EnvironmentsState
from rl_training.core.checks import UserError
from rl_training.envs.host.changes import plain_changes
from rl_training.envs.host.vector import SeededEnvs

FILE = "envs.safetensors"


class EnvironmentsPart:
    """Saves and restores host environments: by their native state, or by replaying their open episodes."""

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
        values = {name: snapshot[name] for name in ("episodes", "unlogged", "changes", "row_changes")}
        return PartState({**values, "statistics": self.envs.statistics.state()}, {"envs": tensors})

    def check(self, stored: StoredPart) -> None:
        state = stored.parse(EnvironmentsState)
        try:
            for changes in (state.changes, *state.row_changes):
                plain_changes(changes)
                self.envs.stepper.check_changes(changes)
        except UserError as error:
            raise stored.invalid(error) from error
        self._check_open_episodes(stored, stored.tensors(FILE))

    def load(self, stored: StoredPart) -> None:
        envs, state, tensors = self.envs, stored.parse(EnvironmentsState), stored.tensors(FILE)
        envs.restore(
            {
                "episodes": state.episodes,
                "unlogged": state.unlogged,
                "changes": state.changes,
                "row_changes": state.row_changes,
                "actions": [tensors[f"actions_{row}"].numpy() for row in range(envs.size)],
                "states": [tensors[f"state_{row}"].numpy() for row in range(envs.size)],
                "obs": tensors["obs"].numpy(),
            }
        )
        envs.statistics.load(state.statistics)
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
