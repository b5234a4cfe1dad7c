"""The time of a checkpoint with 1M transitions in the replay, 10k of them new, against a plain write of those.

python benchmarks/checkpoint_cost.py [--output FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import safetensors.torch
from provenance import write_result
from torch import Tensor

from rl_training.algorithms.sac import SAC, SACSettings
from rl_training.config.train_config import TrainConfig
from rl_training.data.replay.buffer import ReplayBuffer
from rl_training.data.replay.part import ReplayPart
from rl_training.envs.environments_part import EnvironmentsPart
from rl_training.envs.host.factory import EnvSource
from rl_training.envs.host.vector import SeededEnvs
from rl_training.run.saver import LearnerPart, Saver

ROWS, NEW, ROUNDS = 1_000_000, 10_000, 21


def write_plainly(folder: Path, name: str, groups: list[Callable[[], dict[str, Tensor]]]) -> float:
    """Serialise, write and sync the same tensors, without manifest, links and rotation."""
    started = time.perf_counter()
    for number, group in enumerate(groups):
        data = safetensors.torch.save({key: tensor.contiguous() for key, tensor in group().items()})
        with (folder / f"{name}_{number}").open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    directory = os.open(folder, os.O_RDONLY)  # a new name is lost in a power cut until its directory is synced
    os.fsync(directory)
    os.close(directory)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    envs = SeededEnvs(EnvSource("HalfCheetah-v5"), [0], 1)
    envs.reset_all()
    learner = SAC.create(envs.spec, SACSettings(), [0])
    replay = ReplayBuffer(envs.spec, capacity=2 * ROWS, num_envs=1, seeds=1)
    for name, tensor in replay.storage.items():
        if tensor.is_floating_point():
            tensor[:] = np.random.default_rng(0).normal(size=1)[0] if name == "rewards" else 0.5
    saves, rotated, plain = [], [], []
    with tempfile.TemporaryDirectory(dir=".") as place:
        folder = Path(place)
        config = TrainConfig("sac", "HalfCheetah-v5")
        parts = [ReplayPart(replay, envs.spec), EnvironmentsPart(envs), LearnerPart(learner, replay)]
        saver = Saver(folder / "checkpoints", config, parts, None, print)
        for added in range(NEW, ROWS - ROUNDS * NEW + 1, NEW):  # the segments of the run so far
            replay.finish_writing(added)
            saver.save(added, {})
        for number in range(1, ROUNDS + 1):
            before, after = ROWS - ROUNDS * NEW + (number - 1) * NEW, ROWS - ROUNDS * NEW + number * NEW
            replay.finish_writing(after)
            started = time.perf_counter()
            saver.save(after, {})
            saves.append(time.perf_counter() - started)  # training continues here; a thread removes the oldest one
            saver.finish_rotation()
            rotated.append(time.perf_counter() - started)
            plain.append(write_plainly(folder, str(number), [learner.state_dict, partial(replay.read, before, after)]))
    ratios = [a / b for a, b in zip(saves, plain, strict=True)]
    results = {
        "transitions": ROWS,
        "new": NEW,
        "save_ms": 1e3 * statistics.median(saves),
        "save_and_rotate_ms": 1e3 * statistics.median(rotated),
        "plain_write_ms": 1e3 * statistics.median(plain),
        "ratio_median": statistics.median(ratios),
        "ratio_with_rotation_median": statistics.median(a / b for a, b in zip(rotated, plain, strict=True)),
        "ratios": [round(ratio, 2) for ratio in ratios],
    }
    print(json.dumps(results, indent=1))
    if args.output:
        write_result(args.output, results)


if __name__ == "__main__":
    main()
