"""Numbers too small for a normal float count as zero while an update runs on a CPU.

A processor takes a hundred times as long for one of them, and gradients are full of them: a third of a REDQ update.
Everything outside, such as an environment's physics, keeps the usual arithmetic.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias

import torch

FENV_BYTES = 256  # of a fenv_t, generously: 32 on x86, 8 on ARM
Environment: TypeAlias = "ctypes.Array[ctypes.c_char]"


@contextmanager
def flushed_denormals() -> Iterator[None]:
    """In this thread and in all that torch shares its work with; where these cannot be reached, nothing changes.

    Half of the threads would not do: which of them take part depends on what the process has run before. Threads that
    are started inside, as the compiler's are, keep it.
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
    """How this thread computes now."""
    environment = ctypes.create_string_buffer(FENV_BYTES)
    library.fegetenv(environment)
    return environment


def _find() -> tuple[ctypes.CDLL | None, Environment]:
    """The C library with, once torch is loaded, GNU's OpenMP, under which torch's threads run on Linux; and how a
    thread computes that flushes."""
    library, names = ctypes.CDLL(None) if sys.platform.startswith("linux") else None, ("fegetenv", "fesetenv")
    if library is None or not all(hasattr(library, name) for name in (*names, "GOMP_parallel")):
        return None, ctypes.create_string_buffer(0)
    usual = _environment(library)
    able = torch.set_flush_denormal(True)
    flushed = _environment(library)
    library.fesetenv(usual)
    return library if able else None, flushed


_library, _flushed = _find()
