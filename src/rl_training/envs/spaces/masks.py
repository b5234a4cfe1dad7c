"""Action masks: which choices of an action are allowed, one flag for each choice of each of its elements in turn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.core.checks import UserError, shown
from rl_training.core.specs import ArraySpec

Array = NDArray[Any]


def read_mask(value: Any, action: ArraySpec) -> Array:
    """A mask of an action as bytes, from an array or nested lists; also (choices, elements) in place of the transpose.

    One that allows no choice of an element is rejected.
    """
    mask = flat_mask(value, action)
    nothing = blocked(mask, action)
    if nothing is not None:
        raise UserError(nothing)
    return mask


def read_masks(value: Any, action: ArraySpec, rows: int) -> Array:
    """The masks of a batch: one for each of its observations."""
    several = isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim > 0)
    one_mask = several and all(isinstance(one, (bool, int, float, np.generic)) for one in value)
    if not several or one_mask or len(value) != rows:
        raise UserError(f"action_mask must be one for each of the {rows} observations, got {shown(value)}")
    return np.stack([read_mask(one, action) for one in value])


def flat_mask(value: Any, action: ArraySpec) -> Array:
    """`read_mask` of a mask that may allow nothing."""
    pieces = list(_pieces(value, _transposed(action)))
    flags = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
    if len(flags) != action.mask_size:
        of = f", the choices of {list(action.multi_choices)}" if action.multi_choices else ""
        raise UserError(f"action_mask must have {action.mask_size} flags{of}, got {len(flags)}")
    allowed = flags == 1
    odd = flags[~allowed & (flags != 0)]
    if len(odd):
        raise UserError(f"action_mask must hold flags, 0 or 1, got {odd[0]}")
    found: Array = allowed.view(np.uint8)
    return found


def _pieces(value: Any, transposed: tuple[int, int] | None) -> Iterator[Array]:
    """The numbers in an array or in nested lists of arrays, in order."""
    try:
        array = np.asarray(value)
    except ValueError:  # of different lengths
        array = np.asarray(None)
    if array.dtype.kind in "biuf":
        yield (array.T if array.shape == transposed else array).reshape(-1)
    elif isinstance(value, (list, tuple, np.ndarray)) and len(value):
        for one in value:
            yield from _pieces(one, None)
    else:
        raise UserError(f"action_mask must be an array of flags, got {shown(value)}")


def _transposed(action: ArraySpec) -> tuple[int, int] | None:
    """The shape of a mask whose rows are choices and not elements, where that can be told from its shape."""
    elements, most = len(action.multi_choices), max(action.multi_choices, default=0)
    same = elements > 0 and min(action.multi_choices) == most
    return (most, elements) if same and most != elements else None


def blocked(mask: Array, action: ArraySpec) -> str | None:
    """The problem of a mask that leaves an action without a choice, or None."""
    if not action.multi_choices:
        return None if mask.any() else "action_mask must allow at least one action, got none"
    counts = np.add.reduceat(mask, np.cumsum((0, *action.multi_choices[:-1])), dtype=np.int64)
    if counts.all():
        return None
    element = int(counts.argmin())
    return f"action_mask must allow at least one choice of element {element} of the action, got none"


def allowed_action(action: ArraySpec, drawn: Array, mask: Array) -> Array:
    """An action that the mask allows, in the library's units: uniformly random if `drawn` is, and `drawn` if all are.

    Each element of `drawn` is a random choice among all, of which the remainder chooses among the allowed ones.
    """
    choices = [drawn]
    if action.multi_choices:
        choices = list(np.unravel_index(drawn, action.multi_choices) if action.kind == "discrete" else drawn)
    found = []
    for choice, allowed in zip(choices, _by_element(mask, action), strict=True):
        valid = np.flatnonzero(allowed)
        found.append(int(valid[int(choice) % len(valid)]))
    if action.kind == "multi_discrete":
        return np.array(found, np.int64)
    return np.asarray(np.ravel_multi_index(found, action.multi_choices) if action.multi_choices else found[0])


def allowed_actions(action: ArraySpec, masks: Array, drawn: Array) -> Array:
    """`allowed_action` of every row."""
    return np.stack([allowed_action(action, *one) for one in zip(drawn, masks, strict=True)])


def _by_element(mask: Array, action: ArraySpec) -> list[Array]:
    return np.split(mask, np.cumsum(action.multi_choices)[:-1]) if action.multi_choices else [mask]
