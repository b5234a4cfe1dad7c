"""Free memory of the machine, and the variable that limits the cores of a process."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

CORES_VARIABLE = "RL_TRAINING_CORES"  # the number of cores a process may use: a study gives each of its runs some


def free_memory(root: Path = Path("/")) -> int:
    """Bytes that can be allocated without swapping; practically unlimited where the system does not report it."""
    available = re.search(r"^MemAvailable: +(\d+) kB", _text(root / "proc/meminfo"), re.MULTILINE)
    return min([int(available[1]) * 1024 if available else 1 << 62, *_free_in_cgroups(root)])


def _free_in_cgroups(root: Path) -> Iterator[int]:
    """Bytes that each control group of this process may still allocate (Docker, Kubernetes, Slurm)."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, name = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        folder, limit, usage = ("sys/fs/cgroup", "memory.max", "memory.current")
        if controllers:  # version 1
            folder, limit, usage = ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes")
        own = Path(name.lstrip("/"))
        for group in (own, *own.parents):  # in a container, its own group is the folder itself
            here = root / folder / group
            numbers = [_text(here / file).strip() for file in (limit, usage)]
            if all(number.isdecimal() for number in numbers):
                cached = re.search(r"^(?:total_)?inactive_file (\d+)", _text(here / "memory.stat"), re.MULTILINE)
                yield max(int(numbers[0]) - int(numbers[1]) + (int(cached[1]) if cached else 0), 0)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def gibibytes(count: int) -> str:
    """A number of bytes in GiB, for messages."""
    return f"{count / 2**30:.1f} GiB"
