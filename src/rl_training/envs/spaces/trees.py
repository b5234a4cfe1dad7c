"""Dict and Tuple spaces as trees: their keys, and values nested as in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces

Branch = tuple[tuple[Any, ...], set[str] | int]


def branches(space: spaces.Space[Any], path: tuple[Any, ...] = ()) -> Iterator[Branch]:
    """The path of every Dict and Tuple in a space, and the keys of the Dict or the number of the Tuple's elements."""
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        yield path, set(space.spaces) if isinstance(space, spaces.Dict) else len(space.spaces)
        items = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for key, inner in items:
            yield from branches(inner, (*path, key))


def has_branch(inside: set[str] | int, found: Any) -> bool:
    """Whether a value has the keys of a Dict, or as many elements as a Tuple."""
    if isinstance(inside, set):
        return isinstance(found, Mapping) and found.keys() == inside
    return _has_elements(found) and len(found) == inside


def _has_elements(found: Any) -> bool:
    return isinstance(found, Sequence) or (isinstance(found, np.ndarray) and found.ndim > 0)


def check_branch(branch: Branch, observation: Any) -> None:
    """Reject an observation whose Dict or Tuple at this path has other keys, or another number of elements."""
    path, inside = branch
    found = observation
    for key in path:
        found = found[key]
    if has_branch(inside, found):
        return
    what = f"entry {'.'.join(map(str, path))!r} of the observation" if path else "the observation"
    if isinstance(inside, int):
        got = len(found) if _has_elements(found) else type(found).__name__
        raise ValueError(f"{what} must have {inside} elements, got {got}")
    got, wrong = type(found).__name__, ""
    if isinstance(found, Mapping):
        got, wrong = ", ".join(sorted(map(str, found))), _wrong_keys(inside, found)
    raise ValueError(f"{what} must have the keys {', '.join(sorted(inside))}, got {got}{wrong}")


def _wrong_keys(keys: set[str], found: Mapping[Any, Any]) -> str:
    """The keys that are missing or unknown, for a message."""
    both = {"missing": keys - found.keys(), "unknown": set(map(str, found)) - keys}
    parts = [f"{what}: {', '.join(sorted(names))}" for what, names in both.items() if names]
    return f" ({'; '.join(parts)})"


def tree(space: spaces.Space[Any], path: tuple[Any, ...], found: Mapping[tuple[Any, ...], Any]) -> Any:
    """Values by the path of their leaf, nested as in the space."""
    if isinstance(space, spaces.Dict):
        return {key: tree(inner, (*path, key), found) for key, inner in space.spaces.items()}
    if isinstance(space, spaces.Tuple):
        return tuple(tree(inner, (*path, key), found) for key, inner in enumerate(space.spaces))
    return found[path]
