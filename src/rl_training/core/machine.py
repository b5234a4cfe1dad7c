"""What the machine has left."""

from __future__ import annotations

from pathlib import Path


def free_memory() -> int:
    """Bytes that can be allocated without swapping; practically unlimited where the system does not tell."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 1 << 62


def gibibytes(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"
