"""What every offline learner shares, whatever its losses are."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from rl_training.algorithms.base import Act, Batch, BoundNetwork, Learner, Networks
from rl_training.config.settings import RECIPE, SOURCES, dataset_kind_of
from rl_training.data.datasets.formats.minari import find_minari
from rl_training.models.parts import MAX_ACTION, gaussian_log_density


class OfflineLearner(Learner):
    """A learner whose data is a dataset."""

    offline = True

    @classmethod
    def drop_replaced(cls, given: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
        """A dataset that `over` names replaces the one of `given`, with all that describes it."""
        kind = over.get("dataset_kind") or dataset_kind_of(over.get("dataset_path"), over.get("dataset_agent"))
        named = {name for name in ("dataset_kind", *SOURCES.values()) if name in over}
        gone = {"dataset_kind"} if named else set()
        if kind is not None:
            gone |= {source for other, source in SOURCES.items() if other != kind}
        if kind == "file":
            gone |= set(RECIPE)
        return {name: value for name, value in given.items() if name not in gone}

    @classmethod
    def task_settings(cls, env_id: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        """With absolute paths: a run may be resumed in another directory."""
        chosen = super().task_settings(env_id, asked)
        for name in ("dataset_path", "dataset_agent"):
            given = chosen.get(name)
            if isinstance(given, (list, tuple)):
                chosen[name] = [settled_path(path) for path in given]
            elif given is not None:
                chosen[name] = settled_path(given)
        return chosen


class GaussianPolicyNetworks(Networks):
    actor: BoundNetwork[tuple[Tensor, Tensor]]  # obs -> mean, logarithm of the common standard deviation

    def behavior_log_density(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The policy's log-density of each recorded action, and the logarithm of its spread."""
        mean, log_std = self.actor(batch["obs"])
        # As the authors of IQL do: a recorder's actions at the bounds are mostly clipped ones.
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


def settled_path(path: str | Path) -> str:
    """Absolute if it is there; Minari's ids and packaged agents are names, which mean the same everywhere."""
    place = Path(os.path.expanduser(path))
    try:
        found = find_minari(place) if place.is_dir() else None
        is_id = found is not None and place not in (found, found.parent)
        return str(path) if is_id or not place.exists() else str(place.absolute())
    except PermissionError:  # reported when it is read
        return str(path)
