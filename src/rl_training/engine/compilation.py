"""torch.compile for functions that are called a million times with the same shapes."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch


def compile_once(function: Callable[..., Any], backend: str = "inductor") -> Callable[..., Any]:
    """Compiled at the first call, which fixes all shapes; later calls must bring the same ones.

    A code object of its own, since Dynamo counts recompilations per code object, over all engines of the process.
    """
    own = types.FunctionType(
        function.__code__.replace(), function.__globals__, function.__name__, None, function.__closure__
    )
    compiled = torch.compile(own, dynamic=False, fullgraph=True, backend=backend)
    ready = False

    def call(*inputs: Any) -> Any:
        nonlocal ready
        if not ready:
            ready = True
            return compiled(*inputs)
        # Checking again that nothing changed costs as much as a small update; the caller has one program per shape.
        with torch.compiler.set_stance("default", skip_guard_eval_unsafe=True):
            return compiled(*inputs)

    return call
