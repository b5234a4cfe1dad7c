"""Learners on rollouts: what on-policy algorithms share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any, ClassVar

import torch
from torch import Tensor

from rl_training.algorithms.base import Batch, Learner
from rl_training.config.settings import RolloutSettings
from rl_training.core.checks import require
from rl_training.core.results import UpdateResult
from rl_training.data.rollout import STARTS, STATE, Rollout, RolloutLayout
from rl_training.engine.gradients import map_tensors
from rl_training.engine.rollouts import Minibatches, Targets
from rl_training.models.features import rows_of

PIECE = 1 << 25  # elements of observations that a network processes at a time, apart from batches
__all__ = ["OnPolicyLearner", "Targets", "flat_rows", "in_pieces"]


class OnPolicyLearner(Learner):
    """An algorithm that learns from complete rollouts of its own policy. A subclass implements `targets`."""

    settings_type: ClassVar[type[RolloutSettings]] = RolloutSettings
    settings: RolloutSettings
    stored: ClassVar[tuple[str, ...]] = ()  # the extras of `explore`, one number for each step
    derived: ClassVar[tuple[str, ...]] = ("returns",)  # what `targets` computes for each step
    recompute_targets = False  # before every epoch instead of once
    _minibatches: Minibatches | None = None

    def targets(self, nets: Any, rollout: Batch) -> Targets:
        """The derived columns of one seed's rollout, whose columns are (environments, steps, ...)."""
        raise NotImplementedError

    @classmethod
    def rollout_layout(cls, settings: Any) -> RolloutLayout:
        """The columns of a rollout besides those of transitions."""
        return RolloutLayout(cls.stored, cls.derived, sequence=settings.row_steps)

    def learn(self, rollout: Rollout, progress: float, global_step: int) -> None:
        """Train on a complete rollout; `progress` is the share of the run before it."""
        settings, rows = self.settings, self.batch_rows(rollout)
        self.set_progress(progress)
        rollout.complete()
        if self._minibatches is None or self._minibatches.rollout is not rollout:
            self._minibatches = Minibatches(self.training, rollout, rows, self.targets)
        specs = self.update_noise(rows)
        for epoch in range(settings.epochs):
            if epoch == 0 or self.recompute_targets:
                self._minibatches.compute_targets()
            self._minibatches.train_epoch(specs)
        # After learning: the policy that acted and the one that learns see the same numbers in an observation.
        self.observe_all(rollout.columns["obs"].flatten(1, 2))
        self._set_step(global_step)

    def batch_rows(self, rollout: Rollout) -> int:
        """The rows of a minibatch: steps, or sequences of steps."""
        size, sequence = self.settings.batch_size, self.settings.row_steps
        return size // sequence if size else rollout.size

    def example_batch(self, rows: int) -> Batch:
        batch, sequence = super().example_batch(rows), self.settings.row_steps
        columns = {name: batch[name] for name in ("obs", "actions")}
        columns |= {name: torch.zeros_like(batch["rewards"]) for name in (*self.stored, *self.derived)}
        if not self.initial_state(1):
            return columns
        steps = {name: t.unsqueeze(2).repeat_interleave(sequence, 2) for name, t in columns.items()}
        return {**steps, **{name: one.unsqueeze(0) for name, one in self.first_steps(rows, sequence).items()}}

    def first_steps(self, rows: int, length: int) -> Batch:
        """The columns of a recurrent policy for sequences that begin episodes."""
        state = {STATE + name: one.to(self.device) for name, one in self.initial_state(rows).items()}
        return {**state, STARTS: torch.zeros(rows, length, dtype=torch.bool, device=self.device)}

    def update(self, batch: Mapping[str, Any], global_step: int | None = None) -> UpdateResult:
        """Take one gradient step on given rows; of a recurrent policy, on sequences (rows, steps, ...).

        Sequences begin episodes unless `starts` and the state at their first step, `state.<name>`, are given.
        """
        needed = ("obs", "actions", *self.stored, *self.derived)
        missing = [name for name in needed if name not in batch]
        require(not missing, "batch", f"with {', '.join(needed)}; missing: {', '.join(missing)}")
        actions, leading = torch.as_tensor(batch["actions"]), 2 if self.initial_state(1) else 1
        spec, shape = self.action_spec, tuple(actions.shape)
        fits = shape[leading:] == spec.shape and len(shape) == leading + len(spec.shape) and 0 not in shape
        require(fits, "actions", f"of shape {('rows', 'steps')[:leading]} and {spec.shape}, got {shape}")
        require(spec.contains(actions), "actions", f"below {spec.choices or spec.multi_choices}")
        first = self.first_steps(*shape[:2]) if leading == 2 else {}
        return super().update({**first, **batch}, global_step)

    def _batch_tensor(self, name: str, value: Any) -> Tensor:
        if name in (*self.stored, *self.derived):
            tensor = torch.as_tensor(value, device=self.device).float()
            return tensor if self.initial_state(1) else tensor.reshape(-1)
        if name == STARTS:
            return torch.as_tensor(value, device=self.device).bool()
        return super()._batch_tensor(name, value)


def in_pieces(network: Callable[[Any], Tensor], obs: Any, size: int) -> Tensor:
    """A network's outputs for the rows of a rollout, as many at a time as fit: observations have `size` elements."""
    pieces = [slice(first, first + max(1, PIECE // size)) for first in range(0, rows_of(obs), max(1, PIECE // size))]
    return torch.cat([network(map_tensors(obs, itemgetter(piece))) for piece in pieces])


def flat_rows(tree: Any, shape: torch.Size) -> Any:
    """Tensors (*shape, ...) as rows; an observation may be a dict of them."""
    if isinstance(tree, dict):
        return {name: flat_rows(one, shape) for name, one in tree.items()}
    return tree if len(shape) == 1 else tree.flatten(0, len(shape) - 1)
