"""The replay a run needs, and whether the machine has the memory and the disk for the run."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch

from rl_training.algorithms.base import Learner, ReplaySettings
from rl_training.checkpoint.read import Checkpoint
from rl_training.config.train_config import TrainConfig
from rl_training.core.checks import UserError
from rl_training.core.machine import free_memory, gibibytes
from rl_training.core.specs import EnvSpec
from rl_training.data.datasets.transition_dataset import TransitionDataset
from rl_training.data.replay.buffer import ReplayBuffer, whole_steps
from rl_training.data.replay.frames import bytes_needed, replay_class
from rl_training.data.replay.priorities import priority_bytes
from rl_training.files.atomic import DISK_ERRORS
from rl_training.run.inputs import RunInputs

BYTES_OF_A_WEIGHT = 4 * 5  # itself, in the target, its gradient and Adam's two moments


def make_replay(config: TrainConfig, settings: ReplaySettings, spec: EnvSpec, device: torch.device) -> ReplayBuffer:
    return replay_class(spec)(
        spec,
        capacity=replay_capacity(config, settings),
        num_envs=config.num_envs,
        seeds=len(config.seed_list),
        device=device,
        n_step=settings.n_step,
        gamma=settings.gamma,
        priority_alpha=_priority_alpha(settings),
    )


def replay_capacity(config: TrainConfig, settings: ReplaySettings) -> int:
    """Of each seed: no more than the run can fill, in whole vector steps."""
    steps = max(config.total_timesteps - (settings.offline_updates or 0), 1)
    # Rounded up: were the last vector step to push the first out, an extended run would miss it.
    most = min(settings.buffer_capacity, -(-steps // config.num_envs) * config.num_envs)
    return whole_steps(most, config.num_envs)


def _priority_alpha(settings: ReplaySettings) -> float | None:
    return settings.prioritized_alpha if settings.prioritized else None


def check_learner_memory(
    weights: int, config: TrainConfig, settings: ReplaySettings, spec: EnvSpec, device: str
) -> None:
    """Refuse networks and batches of which the least that they need is not there."""
    seeds, free = len(config.seed_list), _free(device)
    row = 4 * (2 * spec.observation.size + spec.action.size + sum(settings.hidden_sizes))
    for what, needed in (
        (f"networks of {weights} weights", BYTES_OF_A_WEIGHT * weights * seeds),
        (f"batch_size {settings.batch_size}", row * settings.network_rows * seeds),
    ):
        if needed > 0.9 * free:
            raise UserError(f"{what}, {_seeds(seeds)}, need {gibibytes(needed)}; {gibibytes(free)} are free")


def check_memory(config: TrainConfig, settings: ReplaySettings, spec: EnvSpec, device: str) -> None:
    """Refuse a replay before allocating, naming the largest size that fits."""
    seeds, capacity = len(config.seed_list), replay_capacity(config, settings)
    free = _free(device)
    needed = bytes_needed(spec, capacity=capacity, num_envs=config.num_envs, seeds=seeds)
    needed += priority_bytes(capacity, seeds) if _priority_alpha(settings) is not None else 0
    if needed > 0.9 * free:
        fits = int(capacity * 0.9 * free / needed)
        raise UserError(
            f"buffer_capacity {capacity} for {_seeds(seeds)} needs {gibibytes(needed)}, "
            f"{gibibytes(free)} are free; at most {fits} fit"
        )


def check_capacity(inputs: RunInputs, weights: int, device: str, spec: EnvSpec | None = None) -> None:
    """Reject a run that needs more memory than there is: its networks, its replay, its dataset on a GPU."""
    config, settings, spec = inputs.config, inputs.settings, spec or inputs.spec
    if weights:
        check_learner_memory(weights, config, settings, spec, device)
    if settings.uses_environment:
        check_memory(config, settings, spec, device)
    if weights and inputs.dataset is not None:
        check_data_memory(inputs.dataset.dataset, device)


def _free(device: str) -> int:
    return torch.cuda.mem_get_info(device)[0] if device.startswith("cuda") else free_memory()


def _seeds(count: int) -> str:
    return f"{count} seed{'s' * (count > 1)}"


def shortage(error: Exception, run_dir: Path) -> str | None:
    """What is told of a disk or a memory that was too small; None: the error is another one."""
    kept = "the last good checkpoint is kept"
    if isinstance(error, OSError):
        return f"{error.filename or run_dir}: {error.strerror}; {kept}" if error.errno in DISK_ERRORS else None
    said = str(error).partition("\n")[0]
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "can't allocate memory" in said:
        return f"out of memory: {said}; a smaller batch_size, network or number of seeds needs less; {kept}"
    return None


def disk_note(
    run_dir: Path, keep: int, learner: Learner, replay: ReplayBuffer | None, resumed: Checkpoint | None
) -> str | None:
    """A line for the user if the disk clearly cannot hold the run's checkpoints; they share one replay."""
    rows = replay.nbytes if replay is not None else 0
    networks = sum(tensor.nbytes for tensor in learner.state_dict().values())
    there = sum(entry["bytes"] for entry in resumed.files.values()) if resumed is not None else 0
    needed, free = rows + (keep + 1) * networks - there, shutil.disk_usage(run_dir).free
    if needed <= free:
        return None
    return (
        f"the checkpoints of this run need up to {needed / 2**30:.2g} GiB, {free / 2**30:.2g} GiB are free in {run_dir}"
    )


def check_data_memory(dataset: TransitionDataset, device: str) -> None:
    """On a GPU the whole data set lies in its memory; on the host it is already there."""
    tensors = (dataset.obs, dataset.actions, dataset.rewards, dataset.next_obs, dataset.dones)
    needed = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    free = torch.cuda.mem_get_info(device)[0] if device.startswith("cuda") else needed * 2
    if needed > 0.9 * free:
        raise UserError(
            f"the data set of {len(dataset)} transitions needs {gibibytes(needed)} on {device}, "
            f"{gibibytes(free)} are free; train with device: cpu"
        )
