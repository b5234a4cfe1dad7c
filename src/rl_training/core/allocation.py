"""Settings of the memory allocator: freed memory stays with the process.

Every update allocates and frees the same megabytes. By default glibc returns them to the system in between, and each
page is faulted in and zeroed again: 7 to 15 % of an update on a CPU.
"""

from __future__ import annotations

import ctypes
import os
import sys

MEGABYTE = 2**20
# mallopt's parameters (malloc.h): M_TRIM_THRESHOLD (free bytes at the end of the heap), M_TOP_PAD (growth of the heap)
# and M_MMAP_THRESHOLD (larger blocks are mapped one by one), of which glibc accepts at most 32 MB.
MALLOC_OPTIONS = {-1: 1024 * MEGABYTE, -2: 64 * MEGABYTE, -3: 32 * MEGABYTE}


def use_large_pages() -> None:
    """Put tensors of 2 MB and more on large pages. torch reads the variable once, when it makes its first tensor."""
    os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")


def keep_freed_memory() -> None:
    """Set glibc's options, on Linux only."""
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None)
    if hasattr(libc, "gnu_get_libc_version"):  # not musl or another libc
        for parameter, value in MALLOC_OPTIONS.items():
            libc.mallopt(parameter, value)
