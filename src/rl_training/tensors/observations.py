"""Observations as tensors: mixed ones, a row of bytes (see `ArraySpec`), and the arrays in it that networks receive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rl_training.core.specs import MASK, VECTOR, ArraySpec


def split(spec: ArraySpec, obs: Tensor) -> Any:
    """The arrays of a mixed observation (..., bytes) by name, as views; any other observation unchanged."""
    if not spec.parts:
        return obs
    arrays, start = {}, 0
    for name, part in spec.parts:
        raw = obs[..., start : start + part.nbytes]
        arrays[name] = raw.view(torch.float32) if name == VECTOR else raw.unflatten(-1, part.shape)
        start += part.nbytes
    return arrays


def without_mask(spec: ArraySpec, obs: Any) -> tuple[Any, Tensor | None]:
    """A split observation as networks receive it, of the spec `without_mask()`, and its action mask; None: it has none.

    The mask is boolean, true where a choice is allowed.
    """
    if not spec.mask:
        return obs, None
    arrays = {name: one for name, one in obs.items() if name != MASK}
    return arrays if spec.without_mask().parts else next(iter(arrays.values())), obs[MASK].bool()


def pack(spec: ArraySpec, arrays: Mapping[str, Tensor]) -> Tensor:
    """The inverse of `split`: arrays by name to rows of bytes."""
    pieces = []
    for name, part in spec.parts:
        rows = arrays[name].to(torch.uint8) if name == MASK else arrays[name]
        rows = rows.float().contiguous().view(torch.uint8) if name == VECTOR else rows
        pieces.append(rows.flatten(rows.dim() - len(part.shape)))
    padding = spec.shape[0] - sum(piece.shape[-1] for piece in pieces)
    return torch.cat([*pieces, pieces[0].new_zeros(*pieces[0].shape[:-1], padding)], -1)


def numbers(spec: ArraySpec, obs: Any) -> Tensor:
    """The vector of a split observation."""
    found: Tensor = obs[VECTOR] if spec.parts else obs
    return found


def with_numbers(spec: ArraySpec, obs: Any, values: Tensor) -> Any:
    """A split observation with another vector."""
    return {**obs, VECTOR: values} if spec.parts else values


def rows_of_zeros(spec: ArraySpec, rows: Sequence[int], device: torch.device | str = "cpu") -> Tensor:
    """Zeros of a spec's shape and dtype."""
    return torch.zeros(*rows, *spec.shape, dtype=getattr(torch, spec.dtype), device=device)


def zeros(observation: ArraySpec, action: ArraySpec, rows: Sequence[int], device: torch.device) -> dict[str, Tensor]:
    """A batch of zeros, to find out what a loss needs and returns."""
    obs, numbers = rows_of_zeros(observation, rows, device), torch.zeros(*rows, device=device)
    actions = rows_of_zeros(action, rows, device)
    return {"obs": obs, "actions": actions, "rewards": numbers, "next_obs": obs, "dones": numbers}
