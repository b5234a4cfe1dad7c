"""The garbage collector, off while code makes many objects that live on: importing, tracing, compiling."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_users = 0  # contexts that are open now, in any thread
_enabled = False  # whether the collector was on before the first of them


@contextmanager
def without_collection() -> Iterator[None]:
    """Context in which the garbage collector is off, until the last thread has left it."""
    global _users, _enabled
    with _lock:
        if _users == 0:
            _enabled = gc.isenabled()
            gc.disable()
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0 and _enabled:
                gc.enable()
