"""Transitions for offline learning, as tensors.

`dones` means terminated. A trajectory that ends for another reason (a time limit, the end of the recording) is
marked in `truncations`: returns are not summed across it, and the value after it is bootstrapped.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training.core.checks import UserError, require

Self = TypeVar("Self", bound="TransitionDataset")
OPTIONAL = ("next_actions", "returns_to_go")


class TransitionDataset:
    """A fixed set of transitions."""

    def __init__(
        self,
        *,
        obs: Any,
        actions: Any,
        rewards: Any,
        next_obs: Any,
        dones: Any,
        next_actions: Any = None,
        truncations: Any = None,
        returns_to_go: Any = None,
    ) -> None:
        self.obs, self.next_obs = _observations(obs), _observations(next_obs)
        self.actions = _actions(actions)
        self.rewards, self.dones = _column("rewards", rewards), _column("dones", dones)
        self.next_actions = None if next_actions is None else _actions(next_actions)
        self.truncations = None if truncations is None else _column("truncations", truncations).bool()
        self.returns_to_go = None if returns_to_go is None else _column("returns_to_go", returns_to_go)
        lengths = {name: len(value) for name, value in vars(self).items() if value is not None}
        if len(set(lengths.values())) > 1:
            found = ", ".join(f"{name} {length}" for name, length in lengths.items())
            raise UserError(f"all fields of a dataset must have the same length, got {found}")
        if self.obs.shape != self.next_obs.shape:
            shapes = f"{tuple(self.obs.shape)} and {tuple(self.next_obs.shape)}"
            raise UserError(f"obs and next_obs must have the same shape, got {shapes}")

    def __len__(self) -> int:
        return len(self.rewards)

    @classmethod
    def from_dict(cls: type[Self], values: Mapping[str, Any]) -> Self:
        """A dataset from arrays by name: `dones`, or `terminations` with `truncations`, which are not terminal."""
        # Where there are both, `dones` often means either kind of end.
        dones = next((values[name] for name in ("terminations", "dones") if values.get(name) is not None), None)
        missing = [name for name in ("obs", "actions", "rewards", "next_obs") if values.get(name) is None]
        if dones is None:
            missing.append("dones (or terminations)")
        if missing:
            raise UserError(f"a dataset needs {', '.join(missing)}; got {', '.join(map(str, values)) or 'nothing'}")
        names = ("obs", "actions", "rewards", "next_obs", "next_actions", "truncations", "returns_to_go")
        return cls(**{name: values[name] for name in names if name in values}, dones=dones)

    def sample(
        self, batch_size: int, *, device: str | torch.device = "cpu", generator: torch.Generator | None = None
    ) -> dict[str, Tensor]:
        """Rows drawn with replacement; the same `generator` gives the same rows."""
        if not len(self):
            raise UserError("cannot sample: the dataset is empty")
        require(batch_size >= 1, "batch_size", f">= 1, got {batch_size}")
        rows = torch.randint(len(self), (batch_size,), generator=generator)
        names = ("obs", "actions", "rewards", "next_obs", "dones", *OPTIONAL)
        present = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return {name: tensor.index_select(0, rows).to(device) for name, tensor in present.items()}

    def with_reward_transform(
        self: Self,
        *,
        scale: float = 1.0,
        shift: float = 0.0,
        clip_min: float | None = None,
        clip_max: float | None = None,
        returns_to_go_gamma: float | None = None,
    ) -> Self:
        """A copy with rewards `scale * r + shift`, clipped. Returns to go are computed again
        with `returns_to_go_gamma`, or dropped."""
        require(clip_min is None or clip_max is None or clip_min <= clip_max, "clip_min", f"<= clip_max ({clip_max})")
        changed = copy.copy(self)
        changed.rewards = self.rewards * scale + shift
        if clip_min is not None or clip_max is not None:
            changed.rewards = changed.rewards.clamp(clip_min, clip_max)
        changed.returns_to_go = None
        if returns_to_go_gamma is None:
            return changed
        return changed.with_discounted_returns_to_go(gamma=returns_to_go_gamma)

    def with_discounted_returns_to_go(self: Self, *, gamma: float) -> Self:
        """A copy with `returns_to_go`, each summed to the end of its trajectory."""
        changed = copy.copy(self)
        changed.returns_to_go = compute_discounted_returns_to_go(
            rewards=self.rewards, dones=self.dones, gamma=gamma, truncations=self.truncations
        )
        return changed


class ResidentData:
    """A dataset on the device, one copy for all seeds, from which the engine draws batches."""

    relabelled = None
    pending = None

    def __init__(self, dataset: TransitionDataset, device: torch.device | str = "cpu") -> None:
        names = ("obs", "actions", "rewards", "next_obs", "dones")
        self.tensors: dict[str, Tensor] = {name: getattr(dataset, name).to(device) for name in names}
        self.size, self.priorities = len(dataset), None
        self.size_tensor = torch.tensor(self.size, dtype=torch.int64, device=device)

    def gather(self, indices: Tensor) -> dict[str, Tensor]:
        """The batch of row numbers (..., seeds, batch), with those leading axes."""
        rows = indices.reshape(-1).to(self.size_tensor.device)
        found = {name: tensor.index_select(0, rows) for name, tensor in self.tensors.items()}
        return {name: tensor.view(*indices.shape, *tensor.shape[1:]) for name, tensor in found.items()}


def compute_discounted_returns_to_go(rewards: Any, dones: Any, gamma: float, truncations: Any = None) -> Tensor:
    """R_t = r_t + gamma * R_{t+1}, restarted after every terminal state and truncation."""
    require(0 <= gamma <= 1, "gamma", f"in [0, 1], got {gamma}")
    received = _column("rewards", rewards)
    ends = _column("dones", dones).numpy() > 0
    if truncations is not None:
        ends = ends | (_column("truncations", truncations).numpy() > 0)
    if len(ends) != len(received):
        raise UserError(f"rewards and dones must have the same length, got {len(received)} and {len(ends)}")
    sums: NDArray[np.float64] = received.double().numpy()
    # All trajectories at once, one step back at a time: a loop over the longest one, not over every row.
    stops = np.flatnonzero(ends)
    stops = stops if len(stops) and stops[-1] == len(ends) - 1 else np.append(stops, len(ends) - 1)
    starts = np.concatenate([[0], stops[:-1] + 1])
    longest_first = np.argsort(-(stops - starts), kind="stable")
    stops, lengths = stops[longest_first], (stops - starts)[longest_first]
    for back in range(1, int(lengths.max(initial=0)) + 1):
        rows = stops[: np.searchsorted(-lengths, -back, side="right")] - back
        sums[rows] += gamma * sums[rows + 1]
    return torch.from_numpy(sums).float()


def _observations(values: Any) -> Tensor:
    tensor = _tensor(values)
    return tensor if tensor.dtype == torch.uint8 else tensor.float()


def _actions(values: Any) -> Tensor:
    """Continuous actions keep their shape and dtype; discrete ones are int64, one per row."""
    tensor = _tensor(values)
    if tensor.is_floating_point():
        return tensor
    return tensor.long().reshape(-1) if tensor.ndim == 2 and tensor.shape[1] == 1 else tensor.long()


def _column(name: str, values: Any) -> Tensor:
    tensor = _tensor(values)
    if tensor.ndim != 1 and tensor.shape[1:] != (1,):
        raise UserError(f"{name} must be one number per row, got shape {tuple(tensor.shape)}")
    return tensor.float().reshape(-1)


def _tensor(values: Any) -> Tensor:
    try:
        if isinstance(values, np.ndarray) and not values.flags.writeable:  # torch would warn
            values = values.copy()
        tensor = torch.as_tensor(values).detach().cpu()
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"a dataset holds arrays of numbers, got {type(values).__name__}: {error}") from error
    if not tensor.ndim or tensor.is_complex():
        raise UserError(f"a dataset holds arrays of numbers, got {tensor.dtype} of shape {tuple(tensor.shape)}")
    return tensor
