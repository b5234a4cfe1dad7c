"""torch.compile and CUDA graphs for functions that are called a million times with the same shapes."""

from __future__ import annotations

import gc
import logging
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch._dynamo import lookup_backend

from rl_training.core.signals import interruptible

# A signal to the whole group ends Inductor's workers too: that we are about to stop is reported elsewhere.
logging.getLogger("torch._inductor.compile_worker.subproc_pool").setLevel(logging.ERROR)

Announce = Callable[[], AbstractContextManager[object]]  # entered while a program is compiled, which takes a while


VECTOR_BITS = {"AVX2": 256, "AVX512": 512}


@contextmanager
def captured(graph: torch.cuda.CUDAGraph) -> Iterator[None]:
    """Capture what runs inside as `graph`.

    An older graph that the garbage collector frees in the middle of a capture would end it.
    """
    gc.collect()
    wanted = gc.isenabled()
    gc.disable()
    try:
        with torch.cuda.graph(graph):
            yield
    finally:
        if wanted:
            gc.enable()


def warm_up(work: Callable[[], object], device: torch.device) -> None:
    """Run what is to be captured twice on a side stream: it compiles, and lets libraries allocate."""
    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        for _ in range(2):
            work()
    torch.cuda.current_stream(device).wait_stream(side)


def compile_once(
    function: Callable[..., Any], backend: str = "inductor", announce: Announce = nullcontext
) -> Callable[..., Any]:
    """Compiled at the first call, which fixes all shapes; later calls must bring the same ones.

    The function changes tensors in place and returns None, a new tensor, or dicts and tuples of them. After its first
    call the kernels are called without Dynamo, whose way from a call to the kernels takes longer than a small update.
    """
    if backend == "inductor":
        _choose_kernels_by_rule()
    # A code object of its own, since Dynamo counts recompilations per code object, over all engines of the process.
    own = types.FunctionType(
        function.__code__.replace(), function.__globals__, function.__name__, None, function.__closure__
    )
    recorder = _Recorder(backend)
    compiled = torch.compile(own, dynamic=False, fullgraph=True, backend=recorder)
    direct: Callable[..., Any] | None = None

    def call(*inputs: Any) -> Any:
        nonlocal direct
        if direct is not None:
            return direct(*inputs)
        with announce(), interruptible():  # compiling may take a minute
            result = compiled(*inputs)
        direct = recorder.direct(inputs, result)
        return result

    return call


def _choose_kernels_by_rule() -> None:
    """Kernels whose choice changes how sums are rounded are not timed against each other: a busy GPU picked others."""
    from torch._inductor import config  # here: only those who compile pay for loading it

    config.deterministic = True
    # Set explicitly, so that it is part of the cache's key: code cached in another numeric mode is of another width.
    config.cpp.simdlen = VECTOR_BITS.get(torch.backends.cpu.get_cpu_capability())


def _leaves(inputs: tuple[Any, ...]) -> list[Any]:
    """The tensors of a call: each input is one, or a dict or list of them, in the same order every time."""
    leaves: list[Any] = []
    for one in inputs:
        if isinstance(one, Tensor):
            leaves.append(one)
        else:
            leaves += one.values() if isinstance(one, dict) else one
    return leaves


class _Recorder:
    """A backend that remembers the compiled kernels and the tensors they were called with."""

    def __init__(self, backend: str) -> None:
        self.backend = lookup_backend(backend)
        self.kernels: list[Callable[..., Any]] = []
        self.arguments: tuple[Any, ...] = ()
        self.outputs: Any = ()

    def __call__(self, graph: torch.fx.GraphModule, examples: list[Tensor]) -> Callable[..., Any]:
        kernels = self.backend(graph, examples)
        self.kernels.append(kernels)

        def first_call(*arguments: Any) -> Any:
            self.arguments, self.outputs = arguments, kernels(*arguments)
            return self.outputs

        return first_call

    def direct(self, inputs: tuple[Any, ...], result: Any) -> Callable[..., Any]:
        """Calls the kernels with the function's inputs in their places; the rest are tensors that never move."""
        (kernels,) = self.kernels
        leaves = [id(leaf) for leaf in _leaves(inputs)]
        arguments = list(self.arguments)
        places = [(leaves.index(id(one)), place) for place, one in enumerate(arguments) if id(one) in leaves]
        for _, place in places:
            arguments[place] = None
        outcome = _outcome(result, self.outputs)
        self.arguments, self.outputs = (), ()

        def call(*inputs: Any) -> Any:
            leaves, now = _leaves(inputs), arguments.copy()
            for leaf, place in places:
                now[place] = leaves[leaf]
            return outcome(kernels(*now))

        return call


def _outcome(result: Any, outputs: Any) -> Callable[[Any], Any]:
    """How the function's result is put together from the kernels' outputs, learned from one call."""
    if result is None:
        return lambda outputs: None
    if isinstance(result, Tensor):
        (number,) = [number for number, one in enumerate(outputs) if one is result]
        return lambda outputs: outputs[number]
    if isinstance(result, dict):
        parts = {key: _outcome(value, outputs) for key, value in result.items()}
        return lambda outputs: {key: part(outputs) for key, part in parts.items()}
    items = [_outcome(value, outputs) for value in result]
    return lambda outputs: tuple(item(outputs) for item in items)
