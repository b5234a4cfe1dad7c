"""Checks of saved tensors."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor


def check_tensors(state: Mapping[str, Tensor], expected: Mapping[str, Tensor], owner: str) -> None:
    """Reject a state whose names, shapes or dtypes differ from those of `owner`, with a ValueError of one line."""
    differing = {"missing": expected.keys() - state.keys(), "unknown": state.keys() - expected.keys()}
    parts = [f"{label} {', '.join(sorted(names))}" for label, names in differing.items() if names]
    if parts:
        raise ValueError(f"state does not fit this {owner}: {'; '.join(parts)}")
    check_shapes(state, expected, owner)


def check_shapes(state: Mapping[str, Tensor], expected: Mapping[str, Tensor], owner: str) -> None:
    """Reject a state with a tensor of another shape or dtype than the one of the same name in `expected`."""
    for name, tensor in expected.items():
        found, own = (f"{one.dtype} {tuple(one.shape)}" for one in (state[name], tensor))
        if found != own:
            raise ValueError(f"{name} is {found}, this {owner}'s is {own}")
