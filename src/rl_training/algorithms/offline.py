"""Base classes of offline learners."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor, nn

from rl_training.algorithms.base import Act, Batch, BoundNetwork, Learner, Networks
from rl_training.algorithms.definition import ANY_OBSERVATION
from rl_training.config.offline_settings import RECIPE, SOURCES, dataset_kind_of
from rl_training.core.specs import Kind
from rl_training.data.datasets.formats.minari import find_minari
from rl_training.models.parts import MAX_ACTION, gaussian_log_density


class OfflineLearner(Learner):
    """A learner that trains on a dataset."""

    offline = True
    observations: ClassVar[tuple[Kind, ...]] = ANY_OBSERVATION

    @classmethod
    def drop_replaced(cls, given: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
        """Without the settings of the dataset in `given`, if `over` names another one."""
        kind = over.get("dataset_kind") or dataset_kind_of(over.get("dataset_path"), over.get("dataset_agent"))
        named = {name for name in ("dataset_kind", *SOURCES.values()) if name in over}
        dropped = {"dataset_kind"} if named else set()
        if kind is not None:
            dropped |= {source for other, source in SOURCES.items() if other != kind}
        if kind == "file":
            dropped |= set(RECIPE)
        return {name: value for name, value in given.items() if name not in dropped}

    @classmethod
    def task_settings(cls, env_id: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """With absolute paths, since a run may be resumed from another directory."""
        chosen = super().task_settings(env_id, given)
        for name in ("dataset_path", "dataset_agent"):
            value = chosen.get(name)
            if isinstance(value, (list, tuple)):
                chosen[name] = [absolute_path(path) for path in value]
            elif value is not None:
                chosen[name] = absolute_path(value)
        return chosen


class GaussianPolicyNetworks(Networks):
    actor: BoundNetwork[tuple[Tensor, Tensor]]  # obs -> mean, logarithm of the common standard deviation

    def behavior_log_density(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The policy's log-density of each recorded action, and the logarithm of its spread."""
        mean, log_std = self.actor(batch["obs"])
        # As in the code of IQL's authors: recorded actions at the bounds are mostly clipped ones.
        return gaussian_log_density(mean, log_std, batch["actions"].clamp(-MAX_ACTION, MAX_ACTION)), log_std


class GaussianPolicyLearner(OfflineLearner):
    """An offline learner with a Gaussian policy whose actions are clipped to their bounds."""

    networks_type = GaussianPolicyNetworks

    def modules(self, model: Any) -> dict[str, nn.Module]:
        return {"actor": model.actor}

    def greedy(self, nets: GaussianPolicyNetworks, obs: Tensor) -> Act:
        return Act(nets.actor(obs)[0])

    def explore(self, nets: GaussianPolicyNetworks, obs: Tensor, noise: Tensor, amount: Tensor) -> Act:
        mean, log_std = nets.actor(obs)
        return Act((mean + log_std.exp() * noise).clamp(-1, 1))


def absolute_path(path: str | Path) -> str:
    """The absolute path of an existing file or folder; Minari ids and packaged agents stay names."""
    place = Path(os.path.expanduser(path))
    try:
        found = find_minari(place) if place.is_dir() else None
        is_id = found is not None and place not in (found, found.parent)
        return str(path) if is_id or not place.exists() else str(place.absolute())
    except PermissionError:  # reported when the file is read
        return str(path)
