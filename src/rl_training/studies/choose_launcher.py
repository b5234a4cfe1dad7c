"""Chooses the launcher of a study by its name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch

from rl_training.core.checks import UserError
from rl_training.studies.folder import StudyFolder
from rl_training.studies.launchers import NAMES, Launcher, LocalLauncher
from rl_training.studies.needs import Needs
from rl_training.studies.planned_runs import PlannedRun
from rl_training.studies.slots import gpu_share, local_slots, memory_of
from rl_training.studies.study_file import Resources


@dataclass(frozen=True)
class LaunchOptions:
    """How a study is launched."""

    launcher: str = "local"
    jobs: int | None = None  # runs at a time; None: as many as fit
    address: str | None = None  # of a Ray cluster; None: RAY_ADDRESS, else this machine
    sbatch: Sequence[str] = field(default_factory=tuple)  # options of sbatch, e.g. --partition=gpu

    def __post_init__(self) -> None:
        if self.jobs is not None and self.jobs < 1:
            raise UserError(f"jobs must be >= 1, got {self.jobs}")


def choose_launcher(
    folder: StudyFolder,
    resources: Resources,
    runs: Sequence[PlannedRun],
    needs: Mapping[str, Needs],
    options: LaunchOptions,
) -> Launcher:
    """The launcher that the options name."""
    if options.launcher not in NAMES:
        raise UserError(f"launch must be one of {', '.join(NAMES)}, got {options.launcher!r}")
    share = gpu_share(resources, runs, torch.cuda.device_count())
    if options.launcher == "ray":
        from rl_training.studies.ray_launcher import RayLauncher

        return RayLauncher(folder, resources, share, options.address, options.jobs)
    if options.launcher == "slurm":
        from rl_training.studies.slurm_launcher import SlurmLauncher

        memory = memory_of(resources, needs)
        return SlurmLauncher(folder, resources, memory, share, options.sbatch, options.jobs)
    return LocalLauncher(folder, local_slots(resources, runs, needs, options.jobs))
