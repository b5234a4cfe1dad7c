"""What a user should know before a run starts or goes on."""

from __future__ import annotations

import dataclasses

import torch

from rl_training.algorithms.base import OffPolicySettings
from rl_training.algorithms.offline import OfflineSettings
from rl_training.core.checks import UserError
from rl_training.core.fields import parse
from rl_training.envs.vector import SeededEnvs
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.runs import RunRecord, versions
from rl_training.runtime.choices import Choices, choose_device
from rl_training.runtime.run_state import unfit
from rl_training.runtime.session import Session

NOT_REPLAYABLE = "the environment does not repeat itself for the same seed and actions, so a resumed run will differ"


def recorded_choices(record: RunRecord) -> tuple[Choices, list[str]]:
    """The choices of the run that goes on, and what stands in the way of the same bits."""
    try:
        choices = parse(Choices, record.values["engine"])
        if choices.device.startswith("cuda") and not torch.cuda.is_available():
            choices = dataclasses.replace(choices, device="cpu")
        choose_device(choices.device)
    except UserError as error:
        raise unfit(record.path, error) from error
    before, now = record.values.get("versions"), versions()
    before = {**(before if isinstance(before, dict) else {}), "device": record.values["engine"]["device"]}
    changed = [f"{name} {before.get(name)} -> {value}" for name, value in {**now, "device": choices.device}.items()
               if before.get(name) != value]  # fmt: skip
    return choices, [f"resume will not be bit-identical: {', '.join(changed)}"] if changed else []


def starting_notices(
    config: TrainConfig, settings: OffPolicySettings, choices: Choices, record: RunRecord, envs: SeededEnvs | None
) -> list[str]:
    """What the user should know before the run starts."""
    notices = [choices.note] if choices.note else []
    if envs is not None and envs.note and config.workers:
        notices.append(envs.note)
    if record.values["resume"] == "inexact":
        notices.append(f"resume: inexact ({record.values['resume_note']})")
    offline = settings.offline_steps if isinstance(settings, OfflineSettings) else 0
    if offline is not None and offline + settings.learning_starts >= config.total_timesteps:
        before = f"offline_steps ({offline}) and " if offline else ""
        notices.append(
            f"{before}learning_starts ({settings.learning_starts}) {'are' if offline else 'is'} not below "
            f"total_timesteps ({config.total_timesteps}): nothing will be learned{' online' if offline else ''}"
        )
    return notices


def ended_schedules(session: Session) -> list[str]:
    """Of a run that goes on behind the end that its schedules ran towards."""
    if not session.running() or session.progress < 1:
        return []
    engine = session.learner.engine
    session.learner.set_progress(session.progress)
    still = [", ".join(phase.groups) for phase, rate in zip(engine.phases, engine.rate_values, strict=True) if not rate]
    if not still:
        return []
    return [
        f"the learning rate of {', '.join(still)} fell to 0 by step {session.horizon}, where this run was to end at "
        "first, and stays there; train anew with more total_timesteps for it to fall later"
    ]
