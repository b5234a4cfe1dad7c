"""Settings that are Python classes or functions: networks and schedules of one's own.

In Python a config holds the objects themselves. A file records their names, `module:Name`. A name in a file is never
imported: whoever loads or resumes passes the objects again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rl_training.core.checks import UserError, did_you_mean, one_line
from rl_training.core.modules import import_named

Objects = Mapping[str, Any]  # `{"network": {"features": MyFeatures}, "learning_rate_schedule": my_schedule}`
PLACES = (("network", "features"), ("network", "actor"), ("network", "critic"), ("learning_rate_schedule",))


def object_name(value: Any) -> str:
    """The name under which a class or function is recorded: `module:Name`."""
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}:{named.__qualname__}"


def python_object(value: Any, name: str) -> Any:
    """The class or function of a setting; rejects one that a file only names."""
    if isinstance(value, str):
        raise UserError(
            f"{name} is {value!r}, a class or function, which is never imported because a file names it; "
            f"pass it with objects=..."
        )
    return value


def python_objects(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The classes and functions among settings, in the same nesting."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        inner = python_objects(value) if isinstance(value, Mapping) else value
        if inner and (isinstance(value, Mapping) or callable(value)):
            found[name] = inner
    return found


def with_objects(settings: Mapping[str, Any], objects: Objects | None) -> dict[str, Any]:
    """Settings with classes and functions in their places, or in those of their recorded names."""
    merged = dict(settings)
    for name, value in (objects or {}).items():
        before = merged.get(name)
        inner = before if isinstance(before, Mapping) else {}
        merged[name] = with_objects(inner, value) if isinstance(value, Mapping) else value
    return merged


def named_objects(texts: Sequence[str]) -> dict[str, Any]:
    """The objects of `network.features=module:Name` and the like, imported; only for the command line."""
    found: dict[str, Any] = {}
    places = [".".join(place) for place in PLACES]
    for text in texts:
        place, equals, name = (part.strip() for part in text.partition("="))
        if place not in places:
            raise UserError(f"an object must be one of {', '.join(places)}, got {place!r}{did_you_mean(place, places)}")
        if not equals or not all(name.partition(":")):
            raise UserError(f"{place} must be given as {place}=module:Name, got {text!r}")
        *sections, last = place.split(".")
        inner = found
        for section in sections:
            inner = inner.setdefault(section, {})
        inner[last] = _imported(name, place)
    return found


def _imported(name: str, setting: str) -> Any:
    module_name, _, attribute = name.partition(":")
    try:
        module = import_named(name)
    except (Exception, SystemExit) as error:  # any error of the module
        reason = f"{type(error).__name__}: {one_line(error)}"
        raise UserError(f"{setting}: module {module_name} cannot be imported: {reason}") from error
    found = module
    for part in attribute.split("."):
        found = getattr(found, part, None)  # type: ignore[assignment]
    if not callable(found):
        raise UserError(f"{setting}: module {module_name} has no class or function {attribute!r}")
    return found
