"""Updates only, without an environment: `side_learner.py ALGO SHAPE WARM_UP STRETCH [setting=value …]`.

SHAPE is one of sources.SHAPES. Beside the algorithm's settings may be given: `device`, `compile`, `seeds` (their
number), `updates` (of one call), and for compiled updates `kernels` (by "rule", or by a "timer" as Inductor chooses
them without this library), `products` ("own" or "torch") and `march` (the processor to compile for).
"""

from __future__ import annotations

import json
import os
import sys

import torch
from pacer import Pacer
from sources import SHAPES, filled_source, updates_per_call

from rl_training.algorithms.base import Learner
from rl_training.algorithms.registry import learner_class
from rl_training.config.fields import parse
from rl_training.config.train_config import TrainConfig
from rl_training.data.datasets.transition_dataset import ResidentData
from rl_training.data.replay.buffer import ReplayBuffer
from rl_training.engine import compilation
from rl_training.run.plan import choose_plan


def make_learner(algo: str, task: str, changes: list[str]) -> tuple[Learner, ReplayBuffer | ResidentData, int]:
    """A learner as in a run of a million steps, a source of random data, and the updates per call."""
    values = {key: json.loads(value) for key, _, value in (text.partition("=") for text in changes)}
    device, seeds, updates = values.pop("device", "cpu"), values.pop("seeds", 1), values.pop("updates", 0)
    compiled, cls, shape = values.pop("compile", "on"), learner_class(algo), SHAPES[task]
    choose_kernels(values.pop("kernels", "rule"), values.pop("products", None), values.pop("march", None))
    settings = parse(cls.settings_type, values, "algo_kwargs")
    config = TrainConfig(algo, task, total_timesteps=1_000_000, device=device, compile=compiled, algo_kwargs=values)
    plan = choose_plan(config, settings, shape)
    plan.apply()
    learner = cls.create(shape, settings, range(seeds), device=plan.device, compiled=plan.compiled)
    source = filled_source(shape, settings, seeds, plan.device)
    return learner, source, updates or (updates_per_call(settings) if device != "cpu" else 1)


def choose_kernels(kernels: str, products: str | None, march: str | None) -> None:
    """Replace what this library chooses for the processor."""
    if kernels == "timer":
        compilation._choose_kernels_by_rule = lambda: None
    if march is not None:
        os.environ["TORCHINDUCTOR_CPP_MARCH"] = march  # read when Inductor is imported
    if products is not None:
        from rl_training.engine import products as own

        own.uses_own_products = lambda: products == "own"


def main() -> None:
    algo, shape, warm_up, stretch, *changes = sys.argv[1:]
    learner, source, count = make_learner(algo, shape, changes)
    pacer = Pacer(int(warm_up), int(stretch), torch.cuda.synchronize if learner.device.type == "cuda" else lambda: None)
    while True:
        learner.train(source, count, learner.update_count)
        for _ in range(count):
            pacer.step()


if __name__ == "__main__":
    main()
