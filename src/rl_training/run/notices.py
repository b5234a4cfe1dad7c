"""Notices that are shown when a run starts or resumes."""

from __future__ import annotations

from rl_training.config.settings import RolloutSettings
from rl_training.engine.rounding import numerics_warning, seeds_are_exact
from rl_training.envs.base import VectorEnv
from rl_training.envs.host.episode_bound import no_time_limit_notice
from rl_training.files.run_directory import RunRecord
from rl_training.run.environment_record import REBUILT
from rl_training.run.inputs import RunInputs
from rl_training.run.plan import ExecutionPlan
from rl_training.run.session import Session

WITHIN_ROUNDING = "is the seed alone within rounding, not bit for bit"


def starting_notices(inputs: RunInputs, plan: ExecutionPlan, record: RunRecord, envs: VectorEnv | None) -> list[str]:
    """The notices of a run that starts."""
    config, settings = inputs.config, inputs.settings
    limited = inputs.dataset.has_time_limit if inputs.dataset else envs is None or envs.spec.episode_limit is not None
    notices = [plan.note] if plan.note else []
    late = numerics_warning(plan.numerics)
    if late is not None:
        notices.append(late)
    elif len(config.seed_list) > 1 and not seeds_are_exact(plan.numerics) and plan.device == "cpu":
        notices.append(f"numerics: {plan.numerics['mode']}, so a seed among many {WITHIN_ROUNDING}")
    if envs is not None and envs.note and config.workers:
        notices.append(envs.note)
    if not limited:
        notices.append(no_time_limit_notice(config.env_id, config))
    environment = record.values.get("environment")
    if envs is not None and environment is not None and environment["restore"] == "rebuilt":
        took = environment.get("rebuild_ms")
        cost = f" ({took:.1f} ms each)" if took is not None else ""
        notices.append(f"environment {config.env_id!r} {REBUILT}{cost}: a resumed run is exact")
    if record.values["resume"] == "inexact":
        notices.append(f"resume: inexact ({record.values['resume_note']})")
    offline = settings.offline_updates or 0
    if settings.uses_environment and offline + settings.learning_starts >= config.total_timesteps:
        before = f"offline_steps ({offline}) and " if offline else ""
        notices.append(
            f"{before}learning_starts ({settings.learning_starts}) {'are' if offline else 'is'} not below "
            f"total_timesteps ({config.total_timesteps}): nothing will be learned{' online' if offline else ''}"
        )
    numeric = envs is not None and envs.spec.observation.numbers is not None
    if numeric and not settings.normalize_observations and settings.critic_layers.is_simba:
        notices.append("network simba without normalize_observations: true, the running statistics it is meant with")
    if isinstance(settings, RolloutSettings):
        rows = settings.rollout_steps * config.num_envs
        left = rows % settings.update_rows(config.num_envs)
        if left:
            what = f"batch_size ({settings.batch_size}) does not divide the {rows} transitions of a rollout"
            notices.append(f"{what}: {left} of them, others each time, are left out of an epoch")
    return notices


def ended_schedules(session: Session) -> list[str]:
    """The notices of a run that is extended beyond the end of its schedules."""
    clock = session.clock
    if not clock.running or clock.progress < 1:
        return []
    session.learner.set_progress(clock.progress)
    stopped = session.learner.stopped_groups()
    if not stopped:
        return []
    return [
        f"the learning rate of {', '.join(stopped)} fell to 0 by step {clock.horizon}, the end of this run's "
        "schedules, and stays there; a new run with more total_timesteps or schedule_steps reaches 0 later"
    ]
