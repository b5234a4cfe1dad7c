"""Flushes denormal floats to zero while an update runs on a CPU.

Arithmetic with a denormal takes a hundred times as long, and gradients contain many: a third of the time of a REDQ
update. Code outside updates, such as an environment's physics, keeps the usual arithmetic.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias

import torch

FENV_BYTES = 256  # an upper bound of sizeof(fenv_t): 32 on x86, 8 on ARM
Environment: TypeAlias = "ctypes.Array[ctypes.c_char]"


@contextmanager
def flushed_denormals() -> Iterator[None]:
    """Flush denormals in this thread and in torch's worker threads; where those cannot be set, change nothing.

    It must be all of them: which threads take part in an operation depends on what the process has run before. Threads
    started inside, such as the compiler's, keep the setting.
    """
    if _library is None:
        yield
        return
    usual = _environment(_library)
    try:
        _set_everywhere(_library, _flushed)
        yield
    finally:
        _set_everywhere(_library, usual)


def _set_everywhere(library: ctypes.CDLL, environment: Environment) -> None:
    library.fesetenv(environment)
    if torch.get_num_threads() > 1:  # every thread of the team calls fesetenv
        library.GOMP_parallel(library.fesetenv, environment, torch.get_num_threads(), 0)


def _environment(library: ctypes.CDLL) -> Environment:
    """The floating-point environment of this thread."""
    environment = ctypes.create_string_buffer(FENV_BYTES)
    library.fegetenv(environment)
    return environment


def _find() -> tuple[ctypes.CDLL | None, Environment]:
    """The loaded libraries, with libm and GNU OpenMP (torch's threads on Linux), and the environment that flushes."""
    library, names = ctypes.CDLL(None) if sys.platform.startswith("linux") else None, ("fegetenv", "fesetenv")
    if library is None or not all(hasattr(library, name) for name in (*names, "GOMP_parallel")):
        return None, ctypes.create_string_buffer(0)
    usual = _environment(library)
    able = torch.set_flush_denormal(True)
    flushed = _environment(library)
    library.fesetenv(usual)
    return library if able else None, flushed


_library, _flushed = _find()
