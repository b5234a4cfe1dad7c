"""Dict and Tuple spaces as trees: their keys, and values nested as in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gymnasium import spaces


def dict_keys(space: spaces.Space[Any], path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], set[str]]]:
    """The path and keys of every Dict in a space."""
    if isinstance(space, spaces.Dict):
        yield path, set(space.spaces)
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        items = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for key, inner in items:
            yield from dict_keys(inner, (*path, key))


def wrong_keys(keys: set[str], found: Mapping[Any, Any]) -> str:
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
