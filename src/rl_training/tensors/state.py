"""The saved tensors of one object, compared with those it has."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor


def check_tensors(state: Mapping[str, Tensor], expected: Mapping[str, Tensor], owner: str) -> None:
    """Reject, with one line, a state whose names, shapes or dtypes are not those of `owner`."""
    odd = {"missing": expected.keys() - state.keys(), "unknown": state.keys() - expected.keys()}
    parts = [f"{label} {', '.join(sorted(names))}" for label, names in odd.items() if names]
    if parts:
        raise ValueError(f"state does not fit this {owner}: {'; '.join(parts)}")
    for name, tensor in expected.items():
        found, own = (f"{one.dtype} {tuple(one.shape)}" for one in (state[name], tensor))
        if found != own:
            raise ValueError(f"{name} is {found}, this {owner}'s is {own}")
