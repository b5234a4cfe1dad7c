"""Updates per second on a GPU: one captured graph per step of the loop, one seed or many.

python benchmarks/bench_gpu.py [--algo sac] [--device cuda] [--seeds 1 16 64] [--updates 2000]
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import torch

from rl_training.algorithms.catalogue import learner_class
from rl_training.core.types import EnvShape
from rl_training.data.replay_buffer import ReplayBuffer

HALF_CHEETAH = EnvShape((17,), "float32", 6, False)


def filled_replay(seeds: int, device: str) -> ReplayBuffer:
    replay = ReplayBuffer(HALF_CHEETAH, capacity=10_000, num_envs=1, seeds=seeds, device=device)
    generator = torch.Generator(device=device).manual_seed(0)
    for tensor in replay.storage.values():
        if tensor.is_floating_point():
            tensor.normal_(generator=generator)
    replay.storage["actions"].tanh_()
    replay.finish_writing(10_000)
    return replay


def measure(algo: str, seeds: int, device: str, compiled: bool, updates: int) -> dict[str, Any]:
    torch.set_float32_matmul_precision("high")
    cls = learner_class(algo)
    settings = cls.settings_type()
    learner = cls.create(HALF_CHEETAH, settings, range(seeds), device=device, compiled=compiled)
    per_step = settings.gradient_updates_per_step
    steps = updates // per_step // 5
    replay = filled_replay(seeds, device)
    started = time.perf_counter()
    for step in range(10):
        learner.train(replay, per_step, step)
    torch.cuda.synchronize()
    ready = time.perf_counter() - started
    rates = []
    for _ in range(5):
        started = time.perf_counter()
        for step in range(steps):
            learner.train(replay, per_step, step)
        torch.cuda.synchronize()
        rates.append(steps * per_step / (time.perf_counter() - started))
    rate = sorted(rates)[2]
    return {
        "algo": algo,
        "seeds": seeds,
        "compiled": compiled,
        "updates_per_s": rate,
        "seeds_x_updates_per_s": seeds * rate,
        "steps_per_s": rate / per_step,  # of the loop, were its environments free
        "ready_s": ready,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--algo", default="sac")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--updates", type=int, default=2000)
    parser.add_argument("--eager", action="store_true", help="also without compilation")
    words = parser.parse_args()
    for compiled in (False, True) if words.eager else (True,):
        for seeds in words.seeds:
            print(json.dumps(measure(words.algo, seeds, words.device, compiled, words.updates)), flush=True)


if __name__ == "__main__":
    main()
