"""The cost of prioritised against uniform replay with a million transitions: drawing batches, drawing and updating
priorities, and whole updates of DQN.

python benchmarks/priority_cost.py [--output FILE]      Both sides take turns; ratios are medians over the rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from provenance import write_result

from rl_training.algorithms.dqn import DQN, DQNSettings
from rl_training.core.rng import stream
from rl_training.core.specs import EnvSpec, discrete, vector
from rl_training.data.replay.buffer import ReplayBuffer
from rl_training.engine.compilation import compile_once

ROWS, BATCH, ROUNDS, CALLS = 1_000_000, 64, 21, 200
SHAPE = EnvSpec(vector(4), discrete(2))


def replay(priority_alpha: float | None) -> ReplayBuffer:
    found = ReplayBuffer(SHAPE, capacity=ROWS, num_envs=1, seeds=1, priority_alpha=priority_alpha)
    rng = np.random.default_rng(0)
    for name in ("obs", "next_obs", "rewards"):
        tensor = found.storage[name]
        tensor.copy_(torch.from_numpy(rng.standard_normal(tuple(tensor.shape), dtype=np.float32)))
    found.finish_writing(ROWS)
    if found.priorities is not None:
        values = torch.from_numpy(rng.integers(1, 2**22, size=(1, ROWS)))
        found.priorities.load(torch.arange(ROWS), {"priorities": values, "highest": torch.tensor([[2**22]])})
        found.priorities.set_beta(0.4)
    return found


def compare(uniform: Callable[[], Any], prioritised: Callable[[], Any]) -> dict[str, Any]:
    seconds: list[list[float]] = [[], []]
    for call in (uniform, prioritised):
        for _ in range(50):
            call()
    for _ in range(ROUNDS):
        for kept, call in zip(seconds, (uniform, prioritised), strict=True):
            started = time.perf_counter()
            for _ in range(CALLS):
                call()
            kept.append((time.perf_counter() - started) / CALLS)
    ratios = [b / a for a, b in zip(*seconds, strict=True)]
    return {
        "uniform_us": 1e6 * statistics.median(seconds[0]),
        "prioritised_us": 1e6 * statistics.median(seconds[1]),
        "ratio_median": statistics.median(ratios),
        "ratios": [round(ratio, 3) for ratio in ratios],
    }


@torch.no_grad()
def sampling(uniform: ReplayBuffer, prioritised: ReplayBuffer, learn: bool) -> dict[str, Any]:
    """Compare drawing and gathering a batch; with `learn`, priorities are updated too."""
    priorities = prioritised.priorities
    assert priorities is not None
    errors, count = torch.rand(1, BATCH), 0

    def gather(rows: torch.Tensor) -> dict[str, torch.Tensor]:
        return uniform.gather(rows)

    def draw(uniforms: torch.Tensor) -> dict[str, torch.Tensor]:
        rows, weights = priorities.draw(uniforms)
        batch = prioritised.gather(rows)
        if learn:
            priorities.update(rows, errors)
        return {**batch, "weights": weights}

    gather_program, draw_program = compile_once(gather), compile_once(draw)

    def one_uniform() -> None:
        nonlocal count
        count += 1
        gather_program(torch.from_numpy(stream(0, "replay", count).integers(ROWS, size=(1, BATCH))))

    def one_prioritised() -> None:
        nonlocal count
        count += 1
        draw_program(torch.from_numpy(stream(0, "replay", count).random((1, BATCH))))

    return compare(one_uniform, one_prioritised)


def updates(uniform: ReplayBuffer, prioritised: ReplayBuffer) -> dict[str, Any]:
    settings = {"batch_size": BATCH, "hidden_sizes": (64, 64)}
    plain = DQN.create(SHAPE, DQNSettings(**settings), (0,), compiled=True)  # type: ignore[arg-type]
    other = DQN.create(SHAPE, DQNSettings(**settings, prioritized=True), (0,), compiled=True)  # type: ignore[arg-type]
    return compare(lambda: plain.train(uniform, 1, 1), lambda: other.train(prioritised, 1, 1))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    uniform, prioritised = replay(None), replay(0.6)
    results = {
        "transitions": ROWS,
        "batch_size": BATCH,
        "update": updates(uniform, prioritised),
        "sampling": sampling(uniform, prioritised, learn=False),
        "sampling_and_learning": sampling(uniform, prioritised, learn=True),
    }
    print(json.dumps(results))
    if args.output:
        write_result(args.output, results)


if __name__ == "__main__":
    main()
