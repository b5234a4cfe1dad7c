"""The execution plan of a run: device, threads, workers, compiled or eager.

A function of the config and the hardware, never of a timer, so that the same config on the same machine gives the same
run; recorded in the run and used again on resume, since eager and compiled kernels round differently.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

import torch

from rl_training.config.fields import at_least, setting
from rl_training.config.settings import TrainSettings
from rl_training.config.train_config import TrainConfig
from rl_training.core.allocation import keep_freed_memory
from rl_training.core.checks import UserError, shown
from rl_training.core.machine import CORES_VARIABLE
from rl_training.core.specs import EnvSpec
from rl_training.engine.compile_cache import spaced_place
from rl_training.engine.rounding import numerics, portable_to, seeds_are_exact
from rl_training.envs.host.factory import EnvSource
from rl_training.envs.host.mujoco.registry import threaded_task
from rl_training.envs.host.workers import choose_threads, choose_workers

COMPILE_SECONDS = 30.0  # to compile an update for the first time: 25 to 30 were measured on two cores
MIN_REPORTED_GAIN = 2.0  # seconds
EAGER_OVERHEAD = 1.5e-3  # seconds per update that compiling saves on small networks (Python and kernel launches)
SMALL_UPDATE = 60e6  # floating-point operations, see `_update_flops`
SECONDS_PER_FLOP = 1 / 60e9  # saved by compiling, on two CPU cores


@dataclass(frozen=True)
class ExecutionPlan:
    """How and where a run is executed; recorded in run.json."""

    device: str
    compiled: bool
    threads: int = setting(must=at_least(1))
    workers: int = setting(0, at_least(0))  # environment processes; results do not depend on it
    env_threads: int = setting(0, at_least(0))  # threads that step MuJoCo environments, without workers; nor on it
    tf32: bool = True
    note: str | None = None
    numerics: dict[str, str] = field(default_factory=dict)  # how the libraries round, see `engine/rounding.py`

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def same_bits_on(self) -> str | None:
        """The processors on which this run has the same bits with the same versions; None: this model alone.

        Inductor compiles for the processor it runs on, and the work of threads is divided by the processor's caches.
        On a GPU the model of the GPU counts too.
        """
        by_processor = self.device == "cpu" and (self.compiled or self.threads > 1)
        elsewhere = None if by_processor else portable_to(self.numerics)
        gpu = self.numerics.get("gpu")
        return elsewhere if gpu is None or elsewhere is None else f"{gpu} with {elsewhere}"

    @property
    def promises(self) -> dict[str, str]:
        """The guarantees of reproducibility in the run's record, besides `resume`."""
        # Several threads divide one matrix otherwise than several matrices: seen with MKL on Intel.
        one_thread = self.device == "cpu" and not self.compiled and self.threads == 1
        exact = one_thread and seeds_are_exact(self.numerics)
        return {
            "seeds": "the bits of the seed alone" if exact else "the seed alone within rounding",
            "same_bits_on": self.same_bits_on or "this processor",
        }

    def apply(self) -> torch.device:
        """Set the process up for this plan. Returns the device."""
        keep_freed_memory()
        torch.set_num_threads(self.threads)
        torch.set_float32_matmul_precision("high" if self.tf32 else "highest")
        torch.backends.cudnn.allow_tf32 = self.tf32  # convolutions
        torch.backends.cudnn.benchmark = False  # it may choose another kernel next time
        torch.backends.cudnn.deterministic = True  # else gradients of convolutions are summed in any order
        if self.device.startswith("cuda:"):
            torch.cuda.set_device(self.device)  # graphs are captured on the current device's stream
        return torch.device(self.device)


def rounding_changes(
    before: ExecutionPlan, now: ExecutionPlan, versions: Mapping[str, str], versions_now: Mapping[str, str]
) -> str:
    """The changes that make a run round differently than recorded, as `name old -> new, …`; empty: none."""
    facts = [
        {**dict(found), "device": plan.device, **plan.numerics, "mode": ""}  # the mode shows in the libraries
        for found, plan in ((versions, before), (versions_now, now))
    ]
    neutral = {"platform"} if now.same_bits_on is None else {"platform", "processor"}
    old, new = facts
    changed = [name for name in {**new, **old} if name not in neutral and old.get(name) != new.get(name)]
    return ", ".join(f"{name} {old.get(name)} -> {new.get(name)}" for name in changed)


def choose_plan(
    config: TrainConfig, settings: TrainSettings, spec: EnvSpec, from_factory: bool = False, weights: int = 0
) -> ExecutionPlan:
    """The execution plan of a new run; `weights` is the number of the model's, which counts for modules of the user.

    Environments from a factory are sent to worker processes only where the config asks for them: copies in one process
    may share what the factory holds.
    """
    device, flops = choose_device(config.device), _update_flops(settings, spec, weights, config.num_envs)
    compiled, note = _choose_compile(config, settings, device, flops)
    # A small update gains nothing from a second thread, and waits for it on a busy machine.
    threads = max_threads() if flops > SMALL_UPDATE else 1
    workers, env_threads = _choose_stepping(config, from_factory)
    found = numerics(device, compiled)
    return ExecutionPlan(device, compiled, config.threads or threads, workers, env_threads, note=note, numerics=found)


def _choose_stepping(config: TrainConfig, from_factory: bool) -> tuple[int, int]:
    """The numbers of processes and of threads that step the environments."""
    if config.workers is not None:
        return config.workers, 0
    if from_factory:
        return 0, 0
    rows = len(config.seed_list) * config.num_envs
    if threaded_task(EnvSource(config.env_id, dict(config.env_kwargs))) is not None:
        return 0, choose_threads(rows, cores())
    return choose_workers(rows, cores()), 0


def choose_device(name: str) -> str:
    """The device that a name means here; rejects one that is not available."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if re.fullmatch(r"cpu|cuda(:[0-9]{1,4})?", name) is None:  # mps has no float64, which Adam's powers need
        raise UserError(f"device must be one of auto, cpu, cuda, cuda:N, got {shown(name)}")
    kind, _, index = name.partition(":")
    if kind == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if int(index or 0) >= count:
            available = ", ".join(["cpu", *(f"cuda:{i}" for i in range(count))])
            raise UserError(f"device {name} is not available here; available: {available}")
    return name


def _choose_compile(config: TrainConfig, settings: TrainSettings, device: str, flops: float) -> tuple[bool, str | None]:
    if config.compile == "off":
        return False, None
    saved = _seconds_saved(config, settings, flops)
    if config.compile == "auto" and saved <= COMPILE_SECONDS:
        gain = (
            f"compile: auto does not compile this run: that takes about {COMPILE_SECONDS:.0f} s the first time and "
            f"would save about {saved:.0f} s"
        )
        return False, gain if saved >= MIN_REPORTED_GAIN else None
    obstacle = compile_obstacle(device)
    return obstacle is None, obstacle and f"compile: {obstacle}, training continues without"


def _seconds_saved(config: TrainConfig, settings: TrainSettings, flops: float) -> float:
    offline_updates = settings.offline_updates  # a step there is an update
    offline = config.total_timesteps if offline_updates is None else min(offline_updates, config.total_timesteps)
    updates = offline + settings.updates_in(config.total_timesteps - offline, config.num_envs)
    return updates * (EAGER_OVERHEAD + flops * SECONDS_PER_FLOP)


def _update_flops(settings: TrainSettings, spec: EnvSpec, model_weights: int, num_envs: int = 1) -> float:
    """An estimate of the operations of an update: one seed, forward and backward through one network.

    The number of seeds does not count: a seed must run the same kernels alone and among others.
    """
    if settings.network.features is not None or settings.critic_layers.module is not None:
        return 6.0 * model_weights * settings.update_rows(num_envs)
    sizes = [spec.observation.size + spec.action.size, *settings.critic_layers.dense_sizes]
    weights: int = sum(a * b for a, b in pairwise(sizes))
    return 6.0 * weights * settings.update_rows(num_envs)


def compile_obstacle(device: str) -> str | None:
    """Why updates cannot be compiled: Inductor needs a C++ compiler for a CPU, Triton one for C for a GPU."""
    compiler = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")  # as torch reads it
    on_cpu = device == "cpu"
    if not any(map(shutil.which, (compiler,) if on_cpu else (compiler, "clang++", "c++", "gcc"))):
        named = f"CXX names no program: {compiler!r}" if "CXX" in os.environ else "install g++"
        return f"no C++ compiler found ({named})"
    spaced = spaced_place() if on_cpu else None
    return None if spaced is None else f"{spaced} has spaces, which torch does not quote for the C++ compiler"


def cores() -> int:
    """The number of cores this process may use: a study gives each of its runs some."""
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(found, _limit(CORES_VARIABLE) or found)


def max_threads() -> int:
    """The maximum number of threads: one per core, or fewer if OMP_NUM_THREADS is set."""
    return min(cores(), _limit("OMP_NUM_THREADS") or cores())


def _limit(variable: str) -> int | None:
    """A number of cores in an environment variable, None where it has none."""
    text = os.environ.get(variable, "")
    return int(text) if re.fullmatch(r"[1-9][0-9]{0,4}", text) else None
