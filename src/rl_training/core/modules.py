"""Imports of modules that the user names: `module:Name` on the command line, never from a file."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import ModuleType


def import_named(name: str) -> ModuleType:
    """Import the module of `module:Name`, also from the current folder, which is not on a console script's path."""
    with _current_folder_first():
        return importlib.import_module(name.partition(":")[0])


@contextmanager
def _current_folder_first() -> Iterator[None]:
    """Put the current folder first on the path, afterwards last: later imports are found, and nothing is shadowed."""
    here = None
    with suppress(OSError):  # the folder may be gone
        here = os.getcwd()
    if here is None or here in sys.path or "" in sys.path:
        yield
        return
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)
        sys.path.append(here)
