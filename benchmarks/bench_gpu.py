"""Updates per second on a GPU, with one captured graph per step of the loop, for one seed or many.

python benchmarks/bench_gpu.py [--algo sac] [--device cuda] [--seeds 1 16 64] [--updates 2000] [--output FILE]
                               [--set batch_size=512 ...]
--device cpu is slow, and only tests that an algorithm can be measured.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from provenance import write_result

from rl_training.algorithms.base import Learner, ReplaySettings
from rl_training.algorithms.registry import learner_class
from rl_training.config.fields import parse
from rl_training.config.settings import OfflineSettings
from rl_training.config.train_config import TrainConfig
from rl_training.core.specs import EnvSpec, continuous, discrete, image, vector
from rl_training.data.datasets.transition_dataset import ResidentData, TransitionDataset
from rl_training.data.replay.buffer import ReplayBuffer
from rl_training.data.replay.frames import FrameReplay
from rl_training.loops.offline import SCHEDULE_INTERVAL
from rl_training.run.capacity import make_replay

SHAPES = {
    "HalfCheetah-v5": EnvSpec(vector(17), continuous(6)),
    "CartPole-v1": EnvSpec(vector(4), discrete(2)),
    "pixels": EnvSpec(image(9, 84, 84, frames=3), continuous(6), 1000),
}
ROWS = 10_000


def filled_source(spec: EnvSpec, settings: ReplaySettings, seeds: int, device: str) -> ReplayBuffer | ResidentData:
    """Random transitions: a dataset for an offline algorithm, else a replay."""
    generator = torch.Generator(device=device).manual_seed(0)
    if isinstance(settings, OfflineSettings):
        rows = {name: torch.randn(ROWS, *spec.observation.shape) for name in ("obs", "next_obs")}
        actions = torch.rand(ROWS, spec.action.size) * 2 - 1
        zeros = torch.zeros(ROWS)
        return ResidentData(TransitionDataset(**rows, actions=actions, rewards=torch.randn(ROWS), dones=zeros), device)
    # As in a run, with n-step returns and priorities.
    config = TrainConfig("any", "any", total_timesteps=ROWS, seeds=tuple(range(seeds)))
    replay = make_replay(config, settings, spec, torch.device(device))
    for tensor in replay.storage.values():
        if tensor.is_floating_point():
            tensor.normal_(generator=generator)
    if spec.action.kind == "discrete":
        replay.storage["actions"].random_(0, spec.action.size, generator=generator)
    else:
        replay.storage["actions"].tanh_()
    if isinstance(replay, FrameReplay):
        replay.pictures.random_(0, 256, generator=generator)
        replay.storage["age"].fill_(replay.stack - 1)
        replay.storage["final"].fill_(-1)
    replay.finish_writing(ROWS)
    return replay


def parse_changes(cls: type[Learner], changes: Sequence[str]) -> Any:
    """The algorithm's settings, with changes such as `batch_size=512`, whose values are JSON."""
    values = {key: json.loads(value) for key, _, value in (text.partition("=") for text in changes)}
    return parse(cls.settings_type, values, "algo_kwargs")


def shape_of(cls: type[Learner]) -> EnvSpec:
    """The task that an algorithm is measured on."""
    if cls.observations == ("image",):
        return SHAPES["pixels"]
    return SHAPES["CartPole-v1" if "discrete" in cls.actions else "HalfCheetah-v5"]


def updates_per_call(settings: ReplaySettings) -> int:
    """The number of updates that the loop runs at once on a GPU."""
    return SCHEDULE_INTERVAL if isinstance(settings, OfflineSettings) else settings.gradient_updates_per_step


def measure(
    algo: str, seeds: int, device: str, compiled: bool, updates: int, changes: Sequence[str] = ()
) -> dict[str, Any]:
    torch.set_float32_matmul_precision("high")
    cls = learner_class(algo)
    settings = parse_changes(cls, changes)
    shape = shape_of(cls)
    learner = cls.create(shape, settings, range(seeds), device=device, compiled=compiled)
    per_step = updates_per_call(settings)
    steps = max(updates // per_step // 5, 1)
    wait: Callable[[], None] = torch.cuda.synchronize if learner.device.type == "cuda" else lambda: None
    source = filled_source(shape, settings, seeds, device)
    started = time.perf_counter()
    for step in range(min(10, steps)):
        learner.train(source, per_step, step)
    wait()
    ready = time.perf_counter() - started
    rates = []
    for _ in range(5):
        started = time.perf_counter()
        for step in range(steps):
            learner.train(source, per_step, step)
        wait()
        rates.append(steps * per_step / (time.perf_counter() - started))
    rate = sorted(rates)[2]
    return {
        "algo": algo,
        "seeds": seeds,
        "compiled": compiled,
        "updates_per_s": rate,
        "seeds_x_updates_per_s": seeds * rate,
        "steps_per_s": rate / per_step,  # of the loop, without the time of environments
        "ready_s": ready,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--algo", default="sac")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 16, 64])
    parser.add_argument("--updates", type=int, default=2000)
    parser.add_argument("--eager", action="store_true", help="also without compilation")
    parser.add_argument("--only-eager", action="store_true", help="only without compilation")
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=JSON", dest="changes", help="settings")
    parser.add_argument("--output", type=Path)
    args = parser.parse_args()
    rows = []
    for compiled in (False,) if args.only_eager else (False, True) if args.eager else (True,):
        for seeds in args.seeds:
            rows.append(measure(args.algo, seeds, args.device, compiled, args.updates, args.changes))
            print(json.dumps(rows[-1]), flush=True)
    if args.output:
        write_result(args.output, {"rows": rows})


if __name__ == "__main__":
    main()
