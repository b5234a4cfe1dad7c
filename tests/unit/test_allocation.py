"""What one update frees, the next one finds again."""

from __future__ import annotations

import subprocess
import sys

import pytest

WORK = """
import resource
import rl_training  # before torch's first tensor
import torch
from rl_training.core.allocation import keep_freed_memory
keep_freed_memory()

def work():
    parts = [torch.ones(300_000 + 1000 * i) for i in range(16)]
    return torch.cat(parts).sum()

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

torch.set_num_threads(1)
for _ in range(60):
    work()
before = faults()
for _ in range(60):
    work()
print(faults() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's settings")
def test_freed_tensors_are_not_given_back_to_the_system() -> None:
    answer = subprocess.run([sys.executable, "-c", WORK], capture_output=True, text=True, check=True)
    # 280,000 pages are written in those calls; by default 12,000 and more of them had been given back in between.
    assert int(answer.stdout) < 8000
