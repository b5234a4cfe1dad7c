"""How many runs of a study fit this machine at once, by cores, memory and GPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from rl_training.core.machine import CORES_VARIABLE, free_memory, gibibytes
from rl_training.run.plan import cores
from rl_training.studies.needs import Needs
from rl_training.studies.planned_runs import PlannedRun
from rl_training.studies.study_file import Resources


@dataclass(frozen=True)
class Slots:
    """Runs at the same time, with what each of them gets."""

    count: int
    cpus: int
    gpu_share: float  # 0: they train on the CPU
    gpus: int
    memory: int  # bytes of one run
    reason: str  # what limits the number

    def describe(self) -> str:
        """The slots in one line."""
        each = [f"{self.cpus} core{'s' * (self.cpus > 1)}", f"{gibibytes(self.memory)} of memory"]
        each += [f"{self.gpu_share:g} of a GPU"] if self.gpu_share else []
        return f"{self.count} at a time, limited by {self.reason}; each has {', '.join(each)}"

    def environment(self, slot: int) -> dict[str, str]:
        """The environment variables of the run in a slot."""
        found = {CORES_VARIABLE: str(self.cpus)}
        if self.gpu_share:
            found["CUDA_VISIBLE_DEVICES"] = str(int(slot * self.gpu_share + 1e-9) % self.gpus)
        return found


def gpu_share(resources: Resources, runs: Sequence[PlannedRun], gpus: int) -> float:
    """The share of a GPU that each run gets."""
    if resources.gpus is not None:
        return resources.gpus
    return 1.0 if gpus and any(run.config.device != "cpu" for run in runs) else 0.0


def memory_of(resources: Resources, needs: Mapping[str, Needs]) -> int:
    """The bytes of memory of one run: the study's own number, or the largest estimate."""
    if resources.memory is not None:
        return int(resources.memory * 2**30)
    return max((one.memory for one in needs.values()), default=0)


def local_slots(
    resources: Resources, runs: Sequence[PlannedRun], needs: Mapping[str, Needs], jobs: int | None = None
) -> Slots:
    """How many runs this machine takes at once; `jobs` overrides what is computed."""
    gpus = torch.cuda.device_count()
    share, memory = gpu_share(resources, runs, gpus), memory_of(resources, needs)
    limits = {f"{cores()} core{'s' * (cores() > 1)}": cores() // resources.cpus}
    limits[f"{gibibytes(free_memory())} of free memory"] = int(0.9 * free_memory() / max(memory, 1))
    if share:
        limits[f"{gpus} GPU{'s' * (gpus != 1)}"] = int(gpus / share + 1e-9)
    limits["the number of runs"] = len(runs)
    reason = min(limits, key=lambda name: limits[name])
    count = max(limits[reason], 1)
    if jobs is not None:
        count, reason = jobs, "jobs"
    return Slots(count, resources.cpus, share if gpus else 0.0, gpus, memory, reason)
