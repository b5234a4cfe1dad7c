"""Resident memory: what a replay of 1M HalfCheetah transitions takes, and whether 200k training steps make it grow.

python benchmarks/memory.py [--output FILE]
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from rl_training.core.types import EnvShape
from rl_training.data.replay_buffer import ReplayBuffer, replay_bytes
from rl_training.experiment.config import TrainConfig
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.trainer import train

HALF_CHEETAH = EnvShape((17,), "float32", 6, False)


def resident() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no VmRSS on this system")


def replay_overhead() -> dict[str, float]:
    ReplayBuffer(HALF_CHEETAH, capacity=1000, num_envs=1, seeds=1)  # what the first use of torch allocates
    before = resident()
    replay = ReplayBuffer(HALF_CHEETAH, capacity=1_000_000, num_envs=1, seeds=1)
    taken, arrays = resident() - before, replay_bytes(HALF_CHEETAH, 1, 1_000_000)
    assert replay.capacity == 1_000_000
    return {"array_bytes": arrays, "resident_bytes": taken, "ratio": taken / arrays}


class Watch(Callback):
    def __init__(self) -> None:
        self.seen: dict[int, int] = {}

    def on_step(self, session) -> None:  # type: ignore[no-untyped-def]
        if session.step % 25_000 == 0:
            self.seen[session.step] = resident()


def growth() -> dict[str, object]:
    watch = Watch()
    settings = {"buffer_capacity": 20_000, "batch_size": 32, "hidden_sizes": [32], "train_frequency": 8}
    settings |= {"gradient_updates_per_step": 1, "learning_starts": 1000}
    with tempfile.TemporaryDirectory() as folder:
        config = TrainConfig(
            "dqn", "CartPole-v1", total_timesteps=200_000, output_dir=Path(folder), eval_interval=20_000, video=False,
            compile="off", device="cpu", algo_kwargs=settings,
        )  # fmt: skip
        train(config, callbacks=[watch], show_progress=False)
    return {"resident_bytes": watch.seen, "growth_bytes": watch.seen[200_000] - watch.seen[50_000]}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path)
    words = parser.parse_args()
    results = {"replay_of_1M_halfcheetah_transitions": replay_overhead(), "growth_over_200k_steps": growth()}
    print(json.dumps(results, indent=1))
    if words.output:
        words.output.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
