"""From a config to a finished run: the one way in for every algorithm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from rl_training.algorithms.base import Learner
from rl_training.checkpoint.read import Checkpoint
from rl_training.checkpoint.schema import check_metrics
from rl_training.checkpoint.write import remove_leftovers, remove_newer
from rl_training.config.settings import OfflineSettings, ReplaySettings
from rl_training.config.train_config import TrainConfig
from rl_training.core.checks import UserError
from rl_training.core.results import TrainResult
from rl_training.core.signals import Stopped, active_signals, deferred, interruptible, stoppable
from rl_training.data.datasets.conversion import with_dataset
from rl_training.data.datasets.memory import Dataset
from rl_training.data.datasets.prepare import OfflineData, observation_statistics, prepare_offline
from rl_training.data.datasets.transition_dataset import ResidentData
from rl_training.envs.host.conformance import knowing
from rl_training.envs.host.episode_bound import EpisodeBound
from rl_training.envs.host.factory import EnvFactory, EnvSource
from rl_training.envs.host.vector import EnvironmentFailure, SeededEnvs
from rl_training.files.atomic import remove_temporaries
from rl_training.files.run_directory import CAN_BE_ASKED, RunLock, RunRecord, create_run_dir
from rl_training.loops.off_policy import run_off_policy
from rl_training.loops.offline import run_offline
from rl_training.run.agent import Agent
from rl_training.run.callbacks import Callback, Callbacks, as_callbacks
from rl_training.run.capacity import check_learner_memory, check_memory, disk_note, make_replay
from rl_training.run.ending import conclude, mark_stopped, stopped_half_way
from rl_training.run.environment_record import NOT_REPLAYABLE, decide, environment_entries, recorded_restore
from rl_training.run.failures import recorded_failures, report_hang
from rl_training.run.notices import ended_schedules, recorded_choices, starting_notices
from rl_training.run.plan import Choices, choose
from rl_training.run.saver import Saver, restore
from rl_training.run.session import Session
from rl_training.run.start_weights import check_start, keep_start, load_start, settle_start
from rl_training.run.validate import (
    check_data_memory,
    check_fit,
    check_same_spaces,
    filled,
    parse_settings,
    with_task_defaults,
)
from rl_training.run.watchdog import Watchdog


class TrainFunction(Protocol):
    def __call__(
        self,
        config: TrainConfig,
        run_suffix: str | None = None,
        callbacks: Callbacks | None = None,
        env_factory: EnvFactory | None = None,
        show_progress: bool = True,
        *,
        dataset: Dataset | None = None,
        start: Agent | None = None,
    ) -> TrainResult: ...


def trainer_for(*classes: type[Learner]) -> TrainFunction:
    """The training function of one algorithm, or of a family that shares it."""
    names = [cls.name for cls in classes]

    def train_one(
        config: TrainConfig,
        run_suffix: str | None = None,
        callbacks: Callbacks | None = None,
        env_factory: EnvFactory | None = None,
        show_progress: bool = True,
        *,
        dataset: Dataset | None = None,
        start: Agent | None = None,
    ) -> TrainResult:
        if config.algo not in names:
            raise UserError(f"algo must be {' or '.join(names)}, got {config.algo!r}")
        return train(config, run_suffix, callbacks, env_factory, show_progress, dataset=dataset, start=start)

    return train_one


@stoppable
def train(
    config: TrainConfig,
    run_suffix: str | None = None,
    callbacks: Callbacks | None = None,
    env_factory: EnvFactory | None = None,
    show_progress: bool = True,
    *,
    dataset: Dataset | None = None,
    start: Agent | None = None,
) -> TrainResult:
    """Train a new run, from fresh weights or from those of `start`, an agent that was loaded from a file."""
    hooks = as_callbacks(callbacks)
    config, cls, settings = with_task_defaults(with_dataset(config, dataset))
    config, agent = settle_start(config, start)
    source = EnvSource(config.env_id, dict(config.env_kwargs), env_factory)
    bound = EpisodeBound.of(config)
    offline = prepare_offline(settings, source, dataset, bound) if isinstance(settings, OfflineSettings) else None
    found = decide(source, offline)
    source, checked = knowing(source, found), offline or found
    assert checked is not None
    spec = checked.spec
    weights = check_fit(cls, spec, config.env_id, settings)
    choices = choose(config, settings, spec)
    check_learner_memory(weights, config, settings, spec, choices.device)
    if settings.uses_environment:
        check_memory(config, settings, spec, choices.device)
    if offline is not None:
        check_data_memory(offline.dataset, choices.device)
    check_start(agent, cls, spec, settings, config.env_id)
    with deferred():
        run_dir, lock, record = _open_run(config, run_suffix, choices, agent)
        try:
            record.update(**environment_entries(source, found, settings.uses_environment))
            with recorded_failures(config, run_dir, record):
                session = _execute(
                    config, cls, settings, source, run_dir, record, choices, hooks, show_progress, offline=offline
                )
            return conclude(session)
        finally:
            lock.release()


def _open_run(
    config: TrainConfig, run_suffix: str | None, choices: Choices, start: Agent | None
) -> tuple[Path, RunLock, RunRecord]:
    run_dir = create_run_dir(config, run_suffix)
    lock = RunLock(run_dir)
    lock.acquire()
    keep_start(start, run_dir)
    return run_dir, lock, RunRecord.create(run_dir, config, choices.to_dict(), choices.promises)


@stoppable
def resume(
    checkpoint: Checkpoint | None,
    config: TrainConfig,
    run_dir: Path,
    *,
    callbacks: Callbacks | None = None,
    env_factory: EnvFactory | None = None,
    show_progress: bool = True,
    notes: Sequence[str] = (),
    force: bool = False,
    dataset: Dataset | None = None,
) -> TrainResult:
    """Go on from a checkpoint (None: from the start) in `run_dir`, which holds the run's record and logs."""
    hooks = as_callbacks(callbacks)
    cls, settings = parse_settings(config)
    config = filled(config, settings)  # of a run that was written with less
    source = EnvSource(config.env_id, dict(config.env_kwargs), env_factory, recorded_restore(run_dir, config.env_id))
    bound = EpisodeBound.of(config)
    offline = prepare_offline(settings, source, dataset, bound) if isinstance(settings, OfflineSettings) else None
    found = decide(source, offline)
    source = knowing(source, found)
    with deferred():
        lock = RunLock(run_dir)
        lock.acquire()
        try:
            record = RunRecord.read(run_dir)
            choices, rounding = recorded_choices(record)
            change = None
            if offline is not None:
                told = record.values.get("dataset") if checkpoint is None else checkpoint.state.get("dataset") or {}
                change = offline.change_since(told, checkpoint.path if checkpoint else run_dir, force)
            remove_leftovers(run_dir / "checkpoints")
            for directory in (run_dir, run_dir / "agents"):
                remove_temporaries(directory)
            # Asked for now, in the next checkpoint's config later: a kill in between must not forget it.
            wanted = config.to_dict()
            begun: dict[str, Any] = {"asked": {name: wanted[name] for name in CAN_BE_ASKED}}
            begun |= environment_entries(source, found, settings.uses_environment, checkpoint)
            if change is not None or rounding is not None:
                begun |= {"resume": "inexact", "resume_note": change or rounding}
            with recorded_failures(config, run_dir, record):
                session = _execute(
                    config, cls, settings, source, run_dir, record, choices, hooks, show_progress,
                    resumed=checkpoint, notes=notes, offline=offline, begun=begun,
                )  # fmt: skip
            return conclude(session)
        finally:
            lock.release()


def _execute(
    config: TrainConfig,
    cls: type[Learner],
    settings: ReplaySettings,
    source: EnvSource,
    run_dir: Path,
    record: RunRecord,
    choices: Choices,
    callbacks: Sequence[Callback],
    show_progress: bool,
    resumed: Checkpoint | None = None,
    notes: Sequence[str] = (),
    offline: OfflineData | None = None,
    begun: Mapping[str, Any] | None = None,  # for the record, once nothing can be refused any more
) -> Session:
    device = choices.apply()
    session: Session | None = None
    envs, replay = None, None
    signals = active_signals()
    signals.on_give_up = partial(mark_stopped, record)
    try:
        if settings.uses_environment:
            with interruptible():
                envs = SeededEnvs(
                    source, config.seed_list, config.num_envs, workers=choices.workers, timeout=config.env_timeout
                )
        home = offline or envs
        assert home is not None
        if resumed is not None:
            check_same_spaces(resumed, home.observation, home.action, any_bounds=offline is not None)
        if resumed is not None and envs is not None:
            check_memory(config, settings, home.spec, choices.device)
        with interruptible():
            learner = cls.create(home.spec, settings, config.seed_list, device=device, compiled=choices.compiled)
            if envs is not None:
                replay = make_replay(config, settings, envs.spec, device)
            data = ResidentData(offline.dataset, device) if offline is not None else None
        agent = Agent(config, learner, home.observation, home.action)
        room = disk_note(run_dir, config.keep_checkpoints, learner, replay, resumed)

        def guard(watched: SeededEnvs) -> Watchdog:
            return Watchdog(watched, lambda hang: report_hang(hang, config, run_dir, record))

        with guard(envs) if envs is not None else nullcontext():
            with interruptible():
                exact = resumed is None or restore(resumed, learner, envs, replay)
                if resumed is not None and data is not None:
                    check_metrics(resumed, learner, data)
                if resumed is None and envs is not None:
                    envs.reset_all()
                if resumed is None and offline is not None and settings.normalize_observations:
                    learner.set_obs_stats(*observation_statistics(offline.dataset))
                if resumed is None:
                    load_start(config, run_dir, learner)
            if resumed is not None:
                remove_newer(run_dir / "checkpoints", resumed.step)
            # Where the replay had to end an episode that could not be brought back, it is not what was saved.
            saver = Saver(run_dir / "checkpoints", config, resumed, lambda text: _note(session, text), not exact)
            session = Session(
                config, agent, source, run_dir, record, saver, envs=envs, replay=replay, callbacks=callbacks,
                signals=signals, guard=guard, show_progress=show_progress, resumed=resumed,
                about=offline.about if offline else None, has_environment=offline is None or offline.has_environment,
            )  # fmt: skip
            if begun is not None:
                record.begin(**begun)
            has_limit = offline.has_time_limit if offline else home.spec.episode_limit is not None
            notices = [
                *notes,
                *(offline.notices if offline else ()),
                *starting_notices(config, settings, choices, record, envs, has_limit),
                *([room] if room else ()),
            ]
            if not exact:
                record.update(resume="inexact", resume_note=NOT_REPLAYABLE)
                notices.append(f"resume: inexact ({NOT_REPLAYABLE}); the open episodes start afresh")
            for notice in [*notices, *ended_schedules(session)]:
                session.display.note(notice)
            session.start()
            mixed = None
            if offline is not None and data is not None:
                record.update(**offline.about)
                run_offline(session, data)
                mixed = offline.mixed_with(replay, data, settings) if replay is not None else None  # type: ignore[arg-type]
            if envs is not None and replay is not None:
                run_off_policy(session, envs, replay, mixed)
            session.end()
    except Stopped as stop:
        signals.obeyed = True
        stopped_half_way(stop, run_dir, record, session.saver.newest if session else resumed)
        raise
    except EnvironmentFailure as failure:
        if signals.received is None:
            raise
        cut = Stopped.by(signals.received)  # its own child processes received the signal too
        stopped_half_way(cut, run_dir, record, session.saver.newest if session else resumed)
        raise cut from failure
    finally:
        if session is not None:
            session.close()
        if envs is not None:
            envs.close()
    return session


def _note(session: Session | None, text: str) -> None:
    if session is not None:
        session.display.note(text)
