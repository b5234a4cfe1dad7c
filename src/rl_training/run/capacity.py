"""The replay or rollout of a run, and checks of the memory and disk space that the run needs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch

from rl_training.algorithms.base import Learner
from rl_training.algorithms.on_policy import OnPolicyLearner
from rl_training.checkpoint.read import Checkpoint
from rl_training.config.settings import ReplaySettings, RolloutSettings, TrainSettings
from rl_training.config.train_config import TrainConfig
from rl_training.core.checks import UserError
from rl_training.core.machine import free_memory, gibibytes
from rl_training.core.specs import EnvSpec
from rl_training.data.datasets.transition_dataset import TransitionDataset
from rl_training.data.replay.buffer import ReplayBuffer, whole_steps
from rl_training.data.replay.frames import bytes_needed, replay_class
from rl_training.data.replay.hindsight import BOUND_BYTES, HindsightReplay
from rl_training.data.replay.priorities import priority_bytes
from rl_training.data.rollout import Rollout, rollout_bytes
from rl_training.envs.base import VectorEnv
from rl_training.envs.host.goals import Goals
from rl_training.files.atomic import DISK_ERRORS
from rl_training.loops.regime import Regime
from rl_training.run.inputs import RunInputs

ENV_BYTES = 1024  # no environment takes less
BYTES_PER_WEIGHT = 4 * 5  # the weight, its target, its gradient and Adam's two moments


def make_replay(
    config: TrainConfig, settings: ReplaySettings, spec: EnvSpec, device: torch.device, goals: Goals | None = None
) -> ReplayBuffer:
    """The empty replay buffer of a run."""
    options: dict[str, Any] = {
        "capacity": replay_capacity(config, settings),
        "num_envs": config.num_envs,
        "seeds": len(config.seed_list),
        "device": device,
        "n_step": settings.n_step,
        "gamma": settings.gamma,
        "priority_alpha": _priority_alpha(settings),
    }
    if goals is not None and settings.her is not None:
        return HindsightReplay(spec, goals=goals, her=settings.her, **options)
    return replay_class(spec)(spec, **options)


def replay_capacity(config: TrainConfig, settings: ReplaySettings) -> int:
    """Transitions per seed: at most as many as the run can fill, in whole vector steps."""
    steps = max(config.total_timesteps - (settings.offline_updates or 0), 1)
    # Rounded up: if the last vector step overwrote the first, an extended run would lack it.
    limit = min(settings.buffer_capacity, -(-steps // config.num_envs) * config.num_envs)
    return whole_steps(limit, config.num_envs)


def _priority_alpha(settings: ReplaySettings) -> float | None:
    return settings.prioritized_alpha if settings.prioritized else None


def check_learner_memory(
    weights: int, config: TrainConfig, settings: TrainSettings, spec: EnvSpec, device: str
) -> None:
    """Reject networks and batches whose minimum memory exceeds what is free."""
    seeds, free = len(config.seed_list), _free(device)
    row = 4 * (2 * spec.observation.size + spec.action.size + sum(settings.hidden_sizes))
    for what, needed in (
        (f"networks of {weights} weights", BYTES_PER_WEIGHT * weights * seeds),
        (
            f"batches of {settings.update_rows(config.num_envs)} rows",
            row * settings.update_rows(config.num_envs) * seeds,
        ),
    ):
        if needed > 0.9 * free:
            raise UserError(f"{what}, {_seeds(seeds)}, need {gibibytes(needed)}; {gibibytes(free)} are free")


def make_rollout(
    config: TrainConfig, learner_class: type[Learner], settings: RolloutSettings, envs: VectorEnv, device: torch.device
) -> Rollout:
    """The empty rollout of a run."""
    assert issubclass(learner_class, OnPolicyLearner), "an algorithm with RolloutSettings learns from rollouts"
    return Rollout(
        envs.spec,
        learner_class.rollout_layout(settings),
        seeds=len(config.seed_list),
        num_envs=config.num_envs,
        steps=settings.rollout_steps,
        device=device,
        host=envs.device.type == "cpu",
    )


def check_data_memory(config: TrainConfig, settings: TrainSettings, spec: EnvSpec, device: str) -> None:
    """Reject environments, a replay or a rollout that do not fit, before they are made."""
    seeds, free = len(config.seed_list), _free("cpu")
    least = ENV_BYTES * config.num_envs * seeds
    if least > free:
        what = f"num_envs {config.num_envs}, {_seeds(seeds)}"
        raise UserError(f"{what}, need at least {gibibytes(least)}; {gibibytes(free)} are free")
    if isinstance(settings, ReplaySettings):
        check_replay_memory(config, settings, spec, device)
    if isinstance(settings, RolloutSettings):
        free = min(_free(device), free)  # it is collected in main memory
        needed = seeds * rollout_bytes(spec, settings.rollout_steps * config.num_envs)
        if needed > 0.9 * free:
            what = f"rollout_steps {settings.rollout_steps} with num_envs {config.num_envs}, {_seeds(seeds)}"
            raise UserError(f"{what}, need {gibibytes(needed)}; {gibibytes(free)} are free")


def check_replay_memory(config: TrainConfig, settings: ReplaySettings, spec: EnvSpec, device: str) -> None:
    """Reject a replay that does not fit, before it is allocated; the error names the maximum capacity."""
    seeds, capacity = len(config.seed_list), replay_capacity(config, settings)
    free = _free("cpu" if settings.her is not None else device)
    needed = bytes_needed(spec, capacity=capacity, num_envs=config.num_envs, seeds=seeds)
    needed += BOUND_BYTES * capacity * seeds if settings.her is not None else 0
    needed += priority_bytes(capacity, seeds) if _priority_alpha(settings) is not None else 0
    if needed > 0.9 * free:
        fits = int(capacity * 0.9 * free / needed)
        raise UserError(
            f"buffer_capacity {capacity} for {_seeds(seeds)} needs {gibibytes(needed)}, "
            f"{gibibytes(free)} are free; at most {fits} fit"
        )


def check_capacity(inputs: RunInputs, weights: int, device: str) -> None:
    """Reject a run that needs more memory than there is: its networks, its replay, its dataset on a GPU."""
    config, settings, spec = inputs.config, inputs.settings, inputs.spec
    check_learner_memory(weights, config, settings, spec, device)
    if settings.uses_environment:
        check_data_memory(config, settings, spec, device)
    if inputs.dataset is not None:
        check_dataset_memory(inputs.dataset.dataset, device)


def _free(device: str) -> int:
    return torch.cuda.mem_get_info(device)[0] if device.startswith("cuda") else free_memory()


def _seeds(count: int) -> str:
    return f"{count} seed{'s' * (count > 1)}"


def resource_error(error: Exception, run_dir: Path) -> str | None:
    """The message of an error caused by a full disk or too little memory; None for other errors."""
    kept = "the last good checkpoint is kept"
    if isinstance(error, OSError):
        return f"{error.filename or run_dir}: {error.strerror}; {kept}" if error.errno in DISK_ERRORS else None
    message = str(error).partition("\n")[0]
    if isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "can't allocate memory" in message:
        return f"out of memory: {message}; a smaller batch_size, network or number of seeds needs less; {kept}"
    return None


def disk_note(run_dir: Path, keep: int, learner: Learner, regime: Regime, resumed: Checkpoint | None) -> str | None:
    """A notice if the disk cannot hold the run's checkpoints, which share one replay."""
    shared = regime.replay.nbytes if regime.replay is not None else 0
    own = sum(tensor.nbytes for tensor in learner.state_dict().values())
    own += regime.source.nbytes if isinstance(regime.source, Rollout) else 0
    present = sum(entry["bytes"] for entry in resumed.files.values()) if resumed is not None else 0
    needed, free = shared + (keep + 1) * own - present, shutil.disk_usage(run_dir).free
    if needed <= free:
        return None
    return (
        f"the checkpoints of this run need up to {needed / 2**30:.2g} GiB, {free / 2**30:.2g} GiB are free in {run_dir}"
    )


def check_dataset_memory(dataset: TransitionDataset, device: str) -> None:
    """Reject a dataset that does not fit the GPU; on the host it is already in memory."""
    tensors = (dataset.obs, dataset.actions, dataset.rewards, dataset.next_obs, dataset.dones)
    needed = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    free = torch.cuda.mem_get_info(device)[0] if device.startswith("cuda") else needed * 2
    if needed > 0.9 * free:
        raise UserError(
            f"the dataset of {len(dataset)} transitions needs {gibibytes(needed)} on {device}, "
            f"{gibibytes(free)} are free; train with device: cpu"
        )
