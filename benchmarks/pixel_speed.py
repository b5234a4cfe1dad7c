"""Updates per second of DrQ and DrQ-v2 against the same updates written as in the authors' code.

python benchmarks/pixel_speed.py --device cpu|cuda [--rounds 8] [--algos drq drqv2] [--output FILE]
Both sides take turns. Also measures the share of sampling in our updates: drawing and gathering alone against the
whole update. Writes benchmarks/results/pixel-speed-<device>.json.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from provenance import write_result
from side_learner import make_learner
from turns import Peer, Task, compare, machine

from rl_training.engine import drawing

# The paper's update, with a tuned temperature; ours is fixed by default.
SETTINGS = {"drq": ["batch_size=128", 'alpha="auto"', 'encoder="drq"'], "drqv2": ["batch_size=256"]}
TURNS = {"cpu": {"stretch": 4, "warm_up": 4}, "cuda": {"stretch": 200, "warm_up": 40}}


def task(algo: str, device: str, workers: int) -> Task:
    where = f'device="{device}"'
    peer = Peer("plain", algo, [where, f"workers={workers}"], "side_pixels_eager.py", sys.executable)
    turns = TURNS[device]
    return Task(algo, "pixels", [*SETTINGS[algo], where], [peer], script="side_learner.py", unit="updates", **turns)


def sampling_share(algo: str, device: str, rounds: int) -> dict[str, float]:
    """Seconds of an update, which is one program, and of drawing and gathering its batch alone."""
    learner, source, count = make_learner(algo, "pixels", [*SETTINGS[algo], f'device="{device}"'])
    updates, batch_size, engine = TURNS[device]["stretch"], learner.settings.batch_size, learner.engine

    def program(work: Callable[..., Any]) -> Callable[..., Any]:
        return engine.compile(work) if engine.compiled else work

    def draw_and_gather() -> Any:
        number = engine.count_tensor + torch.arange(1, device=engine.device)
        return source.gather(drawing.device_indices(engine.seed_tensor, number, source, batch_size)[0])

    sample = program(draw_and_gather)
    if device == "cpu":  # rows are drawn on the host
        gather = program(lambda rows: source.gather(rows))
        sample = lambda: gather(engine.host_indices(source.size, 1, batch_size)[0])  # noqa: E731
    sample = torch.no_grad()(sample)
    timed: list[tuple[float, float]] = []
    for turn in range(rounds + 1):  # the first compiles
        if turn == 1 and device != "cpu":
            sample = captured(sample)
        learning = seconds(lambda: learner.train(source, count, learner.update_count), updates, device) / count
        timed.append((seconds(sample, updates, device), learning))
    sampling, learning = (sorted(values)[rounds // 2] for values in zip(*timed[1:], strict=True))
    return {"sampling_s": sampling, "update_s": learning, "sampling_share": sampling / learning}


def captured(work: Callable[[], None]) -> Callable[[], None]:
    """The work as a CUDA graph, as in training: launched one by one, small kernels would take longer."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def seconds(work: Callable[[], None], times: int, device: str) -> float:
    wait: Callable[[], None] = torch.cuda.synchronize if device != "cpu" else lambda: None
    wait()
    started = time.perf_counter()
    for _ in range(times):
        work()
    wait()
    return (time.perf_counter() - started) / times


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=list(TURNS), default="cpu")
    parser.add_argument("--algos", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--workers", type=int, default=4, help="sampling processes of the peer's DrQ-v2")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    name = torch.cuda.get_device_name(0) if args.device == "cuda" else "cpu"
    results: dict[str, Any] = {"machine": {**machine(), "device": name}, "comparisons": []}
    for algo in args.algos:
        (result,) = compare(algo, task(algo, args.device, args.workers), sys.executable, args.rounds)
        result |= sampling_share(algo, args.device, args.rounds)
        results["comparisons"].append(result)
        print(json.dumps(result), flush=True)
    output = args.output or Path(__file__).parent / "results" / f"pixel-speed-{args.device}.json"
    write_result(output, results)


if __name__ == "__main__":
    main()
