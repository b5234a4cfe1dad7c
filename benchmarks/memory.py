"""Resident memory: of a replay of 1M HalfCheetah transitions, its growth over 200k training steps, and its peak when
training on a dataset of 2M Hopper transitions.

python benchmarks/memory.py [--output FILE]
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from provenance import write_result

from rl_training.config.train_config import TrainConfig
from rl_training.core.specs import EnvSpec, continuous, vector
from rl_training.data.replay.buffer import ReplayBuffer, replay_bytes
from rl_training.run.callbacks import Callback
from rl_training.run.run import train

HALF_CHEETAH = EnvSpec(vector(17), continuous(6))


def resident() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no VmRSS on this system")


def replay_overhead() -> dict[str, float]:
    ReplayBuffer(HALF_CHEETAH, capacity=1000, num_envs=1, seeds=1)  # so that the first use of torch is not counted
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


def write_hopper_rows(path: Path, rows: int) -> None:
    rng = np.random.default_rng(0)
    obs, ends = rng.normal(size=(rows + 1, 11)).astype(np.float32), np.arange(1, rows + 1) % 1000 == 0
    actions, rewards = rng.uniform(-1, 1, (rows, 3)).astype(np.float32), rng.normal(size=rows).astype(np.float32)
    np.savez(path, observations=obs[:-1], next_observations=obs[1:], actions=actions, rewards=rewards,
             terminals=np.zeros(rows, np.bool_), timeouts=ends)  # fmt: skip


def train_on(path: Path) -> int:
    """Train on a file without an environment. Returns the peak memory of this process in bytes."""
    settings = {"dataset_kind": "file", "dataset_path": str(path)}
    config = TrainConfig(
        "iql", "absent/Hopper-v0", total_timesteps=500, output_dir=path.parent, device="cpu", algo_kwargs=settings
    )
    train(config, show_progress=False)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def offline_overhead(rows: int = 2_000_000) -> dict[str, float]:
    """The memory of training beyond the arrays; each step runs in its own process, to have its own peak."""
    arrays = rows * 4 * (11 + 11 + 3 + 1 + 1 + 1)  # float32, as they are trained on, with ends and time limits
    with tempfile.TemporaryDirectory() as folder:
        path, peaks = Path(folder) / "hopper.npz", []
        for count in (1000, rows):
            with get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
                pool.apply(write_hopper_rows, (path, count))
            with get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
                peaks.append(pool.apply(train_on, (path,)))
    return {"array_bytes": arrays, "peak_bytes": peaks[1], "over_arrays_bytes": peaks[1] - arrays,
            "peak_bytes_with_1000_rows": peaks[0]}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    results = {
        "offline_training_on_2M_hopper_transitions": offline_overhead(),
        "replay_of_1M_halfcheetah_transitions": replay_overhead(),
        "growth_over_200k_steps": growth(),
    }
    print(json.dumps(results, indent=1))
    if args.output:
        write_result(args.output, results)


if __name__ == "__main__":
    main()
