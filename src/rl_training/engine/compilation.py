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

from rl_training.core.checks import UserError, one_line
from rl_training.core.garbage import without_collection
from rl_training.core.signals import interruptible
from rl_training.engine.compile_cache import compile_cache

# A signal to the process group also ends Inductor's workers, whose warnings about it would only add noise.
logging.getLogger("torch._inductor.compile_worker.subproc_pool").setLevel(logging.ERROR)

Announce = Callable[[], AbstractContextManager[object]]  # a context that is entered while a program compiles


VECTOR_BITS = {"AVX2": 256, "AVX512": 512}


@contextmanager
def captured(graph: torch.cuda.CUDAGraph) -> Iterator[None]:
    """Capture the CUDA work of the `with` block as `graph`.

    The garbage collector is off meanwhile: freeing an older graph during a capture would abort it.
    """
    gc.collect()
    with without_collection(), torch.cuda.graph(graph):
        yield


def warm_up(work: Callable[[], object], device: torch.device) -> None:
    """Run `work` twice on a side stream before its capture, so that it compiles and libraries allocate."""
    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        for _ in range(2):
            work()
    torch.cuda.current_stream(device).wait_stream(side)


def compile_once(
    function: Callable[..., Any],
    backend: str = "inductor",
    announce: Announce = nullcontext,
    device_type: str = "cpu",
) -> Callable[..., Any]:
    """Compile a function at its first call, which fixes all shapes; later calls must have the same ones.

    The function changes tensors in place and returns None, a new tensor, or dicts and tuples of them. After the first
    call the kernels are called without Dynamo, whose overhead per call exceeds the time of a small update.
    """
    # A separate code object, since Dynamo counts recompilations per code object, over all engines of the process.
    copy = types.FunctionType(
        function.__code__.replace(), function.__globals__, function.__name__, None, function.__closure__
    )
    with without_collection():  # a tenth of the time until a stored program runs, most of it imports and tracing
        if backend == "inductor":
            _choose_kernels_by_rule()
        recorder = _Recorder(backend)
    compiled = torch.compile(copy, dynamic=False, fullgraph=True, backend=recorder)
    direct: Callable[..., Any] | None = None

    def call(*inputs: Any) -> Any:
        nonlocal direct
        if direct is not None:
            return direct(*inputs)
        prepared = _inductor(device_type) if backend == "inductor" else nullcontext()
        # It may take a minute.
        with _compiler_failure_reported(), announce(), interruptible(), without_collection(), prepared:
            result = compiled(*inputs)
        direct = recorder.direct(inputs, result)
        return result

    return call


@contextmanager
def _compiler_failure_reported() -> Iterator[None]:
    """Report a C++ compiler that is missing or fails in one line, without its command."""
    try:
        yield
    except Exception as error:
        from torch._inductor.exc import CppCompileError, InvalidCxxCompiler  # only here, for they are slow to import

        found = getattr(error, "inner_exception", error)
        if not isinstance(found, (CppCompileError, InvalidCxxCompiler)):
            raise
        lines = getattr(found, "output", str(found)).splitlines()
        first = next((line for line in lines if "error" in line), "".join(lines[:1]))
        reason = one_line(first) or "without a message"
        raise UserError(
            f"compile: the C++ compiler failed ({reason}); repair it, or train a new run with compile: off"
        ) from error


def _choose_kernels_by_rule() -> None:
    """Make Inductor choose kernels without timing them: on a busy GPU another choice would round sums differently."""
    from torch._inductor import config  # here, since it is slow to import and only compiling needs it

    config.deterministic = True
    # Both set explicitly to be part of the cache key: code cached in another numeric mode has another vector width.
    config.cpp.simdlen = VECTOR_BITS.get(torch.backends.cpu.get_cpu_capability())
    config.cpp.threads = torch.get_num_threads()  # by which sums are divided


@contextmanager
def _inductor(device_type: str) -> Iterator[None]:
    """Context of one compilation: stored programs, and on a CPU own products and C++ that calls the kernels.

    The Python that would call them takes a quarter of the time of a small update. On a GPU the calls are captured.
    """
    from torch._inductor import config

    from rl_training.engine.products import own_products  # it imports Inductor

    with compile_cache(device_type):
        changes: dict[str, Any] = {"cpp_wrapper": False}
        if device_type == "cpu":
            changes = {"cpp_wrapper": True, "post_grad_custom_pre_pass": own_products()}
        # For this program alone: another engine of the process may be on another device.
        with config.patch(changes):
            yield


def _leaves(inputs: tuple[Any, ...]) -> list[Any]:
    """The tensors of a call in a fixed order: each input is a tensor, or a dict or list of tensors."""
    leaves: list[Any] = []
    for one in inputs:
        if isinstance(one, Tensor):
            leaves.append(one)
        else:
            leaves += one.values() if isinstance(one, dict) else one
    return leaves


class _Recorder:
    """A compiler backend that records the compiled kernels and the tensors of their first call."""

    def __init__(self, backend: str) -> None:
        from torch._dynamo import lookup_backend  # here: half of the time to import everything, for compiling alone

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
        """A function that calls the kernels with its inputs inserted; the other arguments are fixed tensors."""
        (kernels,) = self.kernels
        leaves = [id(leaf) for leaf in _leaves(inputs)]
        arguments = list(self.arguments)
        places = [(leaves.index(id(one)), place) for place, one in enumerate(arguments) if id(one) in leaves]
        for _, place in places:
            arguments[place] = None
        build_result = _result_builder(result, self.outputs)
        self.arguments, self.outputs = (), ()

        def call(*inputs: Any) -> Any:
            leaves, now = _leaves(inputs), arguments.copy()
            for leaf, place in places:
                now[place] = leaves[leaf]
            return build_result(kernels(*now))

        return call


def _result_builder(result: Any, outputs: Any) -> Callable[[Any], Any]:
    """A function that builds the result from the kernels' outputs; its structure is inferred from one call."""
    if result is None:
        return lambda outputs: None
    if isinstance(result, Tensor):
        number = next(number for number, one in enumerate(outputs) if one is result)
        return lambda outputs: outputs[number]
    if isinstance(result, dict):
        parts = {key: _result_builder(value, outputs) for key, value in result.items()}
        return lambda outputs: {key: part(outputs) for key, part in parts.items()}
    items = [_result_builder(value, outputs) for value in result]
    return lambda outputs: tuple(item(outputs) for item in items)
