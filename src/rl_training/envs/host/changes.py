"""Changes of an environment during training: public attributes that are set, and `set_...` methods that are called."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from rl_training.core.checks import UserError, did_you_mean, shown
from rl_training.envs.host.factory import Env

Changes = Mapping[str, Any]  # plain values by the name of an attribute or a method


def plain_changes(changes: Changes) -> dict[str, Any]:
    """The changes as JSON gives them back, so that they are the same in this process, in workers and after a resume."""
    check_names(changes)
    found = {}
    for name in sorted(changes):
        try:
            found[name] = json.loads(json.dumps(changes[name], allow_nan=False))
        except (TypeError, ValueError, RecursionError) as error:
            must = "made of numbers, text, true, false, null, lists and mappings"
            raise UserError(f"the new {name} of the environment must be {must}, got {shown(changes[name])}") from error
    return found


def check_names(names: Iterable[str]) -> None:
    """Reject names that are not public: a checkpoint holds them, and must not reach the inside of an object."""
    for name in names:
        if not isinstance(name, str) or not name.isidentifier() or name.startswith("_"):
            raise UserError(f"a change of the environment must name a public attribute or method, got {shown(name)}")


def check_changes(env: Env, changes: Changes, env_id: str) -> None:
    """Reject changes of attributes that the environment does not have, and of methods that are not `set_...`."""
    for name in changes:
        if not env.has_wrapper_attr(name):
            hint = did_you_mean(name, (one for one in _public_names(env)))
            raise UserError(f"environment {env_id!r} has no attribute or method {shown(name)}{hint}")
        if callable(env.get_wrapper_attr(name)) and not name.startswith("set_"):
            raise UserError(f"environment {env_id!r}: {name} is a method, and only methods named set_... are called")


def apply_changes(env: Env, changes: Changes) -> None:
    """Set every attribute and call every method, in the order of their names."""
    check_names(changes)
    for name in sorted(changes):
        found = env.get_wrapper_attr(name)
        if not callable(found):
            env.set_wrapper_attr(name, changes[name])
        elif name.startswith("set_"):
            found(changes[name])
        else:
            raise ValueError(f"{name} is a method, and only methods named set_... are called")


def _public_names(env: Env) -> Iterable[str]:
    while env is not None:
        yield from (name for name in dir(env) if not name.startswith("_"))
        env = getattr(env, "env", None)  # type: ignore[assignment]
