"""Updates per second on a GPU: one captured graph per step of the loop, one seed or many.

python benchmarks/bench_gpu.py [--algo sac] [--device cuda] [--seeds 1 16 64] [--updates 2000]
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import torch

from rl_training.algorithms.base import OffPolicySettings
from rl_training.algorithms.catalogue import learner_class
from rl_training.algorithms.offline import OfflineSettings
from rl_training.core.types import EnvShape
from rl_training.data.frame_replay import FrameReplay, replay_class
from rl_training.data.offline_dataset import ResidentData, TransitionDataset
from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.runtime.offline import SAME_RATE

SHAPES = {
    "HalfCheetah-v5": EnvShape((17,), "float32", 6, False),
    "pixels": EnvShape((9, 84, 84), "uint8", 6, False, frame_stack=3, episode_limit=1000),
}
ROWS = 10_000


def filled_source(shape: EnvShape, settings: OffPolicySettings, seeds: int, device: str) -> ReplayBuffer | ResidentData:
    """Random transitions where the loop would have them: a data set for an offline algorithm, else a replay."""
    generator = torch.Generator(device=device).manual_seed(0)
    if isinstance(settings, OfflineSettings):
        rows = {name: torch.randn(ROWS, *shape.obs_shape) for name in ("obs", "next_obs")}
        actions = torch.rand(ROWS, shape.action_dim) * 2 - 1
        zeros = torch.zeros(ROWS)
        return ResidentData(TransitionDataset(**rows, actions=actions, rewards=torch.randn(ROWS), dones=zeros), device)
    replay = replay_class(shape)(
        shape, capacity=ROWS, num_envs=1, seeds=seeds, device=device,
        n_step=getattr(settings, "n_step", 1), gamma=settings.gamma,
    )  # fmt: skip
    for tensor in replay.storage.values():
        if tensor.is_floating_point():
            tensor.normal_(generator=generator)
    replay.storage["actions"].tanh_()
    if isinstance(replay, FrameReplay):
        replay.pictures.random_(0, 256, generator=generator)
        replay.storage["age"].fill_(replay.stack - 1)
        replay.storage["final"].fill_(-1)
    replay.finish_writing(ROWS)
    return replay


def updates_per_call(settings: OffPolicySettings) -> int:
    """As many as the loop does at once on a GPU."""
    return SAME_RATE if isinstance(settings, OfflineSettings) else settings.gradient_updates_per_step


def measure(algo: str, seeds: int, device: str, compiled: bool, updates: int) -> dict[str, Any]:
    torch.set_float32_matmul_precision("high")
    cls = learner_class(algo)
    settings = cls.settings_type()
    shape = SHAPES["pixels" if cls.image_observations else "HalfCheetah-v5"]
    learner = cls.create(shape, settings, range(seeds), device=device, compiled=compiled)
    per_step = updates_per_call(settings)
    steps = updates // per_step // 5
    source = filled_source(shape, settings, seeds, device)
    started = time.perf_counter()
    for step in range(10):
        learner.train(source, per_step, step)
    torch.cuda.synchronize()
    ready = time.perf_counter() - started
    rates = []
    for _ in range(5):
        started = time.perf_counter()
        for step in range(steps):
            learner.train(source, per_step, step)
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
