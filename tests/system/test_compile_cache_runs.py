"""Programs loaded from the cache give the bits of programs compiled anew."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from compiler import needs_compiler

PROGRAM = """
import hashlib, json, sys
from rl_training import DQN
from torch._dynamo.utils import counters

agent = DQN("CartPole-v1", total_timesteps=40, learning_starts=8, batch_size=8, hidden_sizes=[8], compile="on",
            threads=int(sys.argv[1]), output_dir="runs", eval_episodes=0, device="cpu", gradient_updates_per_step=1,
            train_frequency=1)
agent.learn(show_progress=False)
digest = hashlib.sha256()
for name, tensor in sorted(agent.agent.parameters(0).items()):
    digest.update(name.encode() + tensor.numpy().tobytes())
found = counters["inductor"]
print(json.dumps([digest.hexdigest(), found["fxgraph_cache_hit"], found["fxgraph_cache_miss"]]))
"""


def trained(folder: Path, threads: int = 1, **variables: str) -> list[Any]:
    """The digest of a short compiled run's weights, and the programs that were found in the cache and that were not."""
    env = {**os.environ, **variables}
    env.pop("TORCHINDUCTOR_CACHE_DIR", None)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(threads)], cwd=folder, env=env, capture_output=True, text=True, timeout=900
    )
    assert done.returncode == 0, done.stderr
    found: list[Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.sweep
@needs_compiler
def test_a_program_from_the_cache_has_the_same_bits(tmp_path: Path) -> None:
    cache = {"RL_TRAINING_CACHE": str(tmp_path / "cache")}
    first, hits, misses = trained(tmp_path, **cache)
    assert hits == 0 and misses > 0
    again, found, missed = trained(tmp_path, **cache)
    assert again == first and found == misses and missed == 0
    (folder,) = (tmp_path / "cache/compiled").iterdir()
    folder.rename(folder.with_name("0" * 32))  # the programs of another key
    other, not_found, compiled = trained(tmp_path, **cache)
    assert other == first and not_found == 0 and compiled == misses
    assert trained(tmp_path, threads=2, **cache)[1] == 0, "sums are divided by the number of threads"
