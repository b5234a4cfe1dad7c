"""Executes a run from a config: build, restore or start, loop, finish."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch

from rl_training.checkpoint.parts import Part, restore
from rl_training.checkpoint.read import Checkpoint, DamagedCheckpoint
from rl_training.config.settings import ReplaySettings, RolloutSettings
from rl_training.config.train_config import TrainConfig
from rl_training.core.checks import UserError
from rl_training.core.results import TrainResult
from rl_training.core.signals import Stopped, active_signals, deferred, interruptible, stop_signals
from rl_training.core.specs import EnvSpec
from rl_training.data.datasets.memory import Dataset
from rl_training.data.datasets.transition_dataset import ResidentData
from rl_training.envs.base import VectorEnv
from rl_training.envs.device.part import DeviceEnvironmentsPart
from rl_training.envs.environments_part import EnvironmentsPart
from rl_training.envs.host.factory import EnvFactory, EnvSource
from rl_training.envs.host.vector import EnvironmentFailure, SeededEnvs
from rl_training.envs.make import make_envs
from rl_training.envs.spaces import ActionCodec, ObservationCodec
from rl_training.files.run_directory import RunLock, RunRecord, create_run_dir
from rl_training.loops.clock import Clock
from rl_training.loops.off_policy import OffPolicy
from rl_training.loops.offline import Offline
from rl_training.loops.on_policy import OnPolicy
from rl_training.loops.regime import Regime
from rl_training.run.agent import Agent
from rl_training.run.callbacks import Callbacks, as_callbacks
from rl_training.run.capacity import check_capacity, check_data_memory, disk_note, make_replay, make_rollout
from rl_training.run.ending import conclude, mark_interrupted, mark_stopped
from rl_training.run.environment_record import NOT_REPLAYABLE, environment_entries
from rl_training.run.failures import recorded_failures, report_hang
from rl_training.run.inputs import RunInputs, check_inputs
from rl_training.run.notices import ended_schedules, starting_notices
from rl_training.run.plan import ExecutionPlan, choose_plan
from rl_training.run.saver import LearnerPart
from rl_training.run.session import Session
from rl_training.run.start_weights import check_start, copy_start, load_start, resolve_start
from rl_training.run.validate import check_compatible, check_same_spaces, with_dataset, with_task_defaults
from rl_training.run.watchdog import Watchdog

ENVIRONMENT_PARTS = {EnvironmentsPart.name, DeviceEnvironmentsPart.name}  # a run has one of them at most


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
    """Train a new run, from fresh weights or from those of the agent `start`."""
    with stop_signals():
        hooks = as_callbacks(callbacks)
        config, cls, settings = with_task_defaults(with_dataset(config, dataset))
        config, agent = resolve_start(config, start, settings)
        source = EnvSource(config.env_id, dict(config.env_kwargs), env_factory, info_metrics=config.info_metrics)
        with closing(check_inputs(config, cls, settings, source, dataset, hooks, show_progress)) as inputs:
            weights = check_compatible(cls, inputs.spec, config.env_id, settings)
            plan = choose_plan(config, settings, inputs.spec, env_factory is not None, weights)
            check_capacity(inputs, weights, plan.device)
            check_start(agent, cls, inputs.spec, settings, config)
            with deferred():
                run_dir = create_run_dir(config, run_suffix)
                with RunLock(run_dir):
                    copy_start(agent, run_dir, config)
                    record = RunRecord.create(run_dir, config, plan.to_dict(), plan.promises)
                    record.update(**environment_entries(inputs))
                    return Run(inputs, plan, run_dir, record).execute()


class Run:
    """The execution of one run in its directory."""

    def __init__(
        self,
        inputs: RunInputs,
        plan: ExecutionPlan,
        run_dir: Path,
        record: RunRecord,
        resumed: Checkpoint | None = None,
    ) -> None:
        self.inputs, self.plan, self.run_dir, self.record, self.resumed = inputs, plan, run_dir, record, resumed
        self.config, self.signals = inputs.config, active_signals()
        self.regime: Regime | None = None
        self.session: Session | None = None

    def execute(self, notes: Sequence[str] = (), begun: dict[str, Any] | None = None) -> TrainResult:
        """Train to the end. `begun`: entries for the record of a resumed run, once nothing can be rejected any more."""
        self.signals.on_give_up = partial(mark_stopped, self.record)
        with recorded_failures(self.config, self.run_dir, self.record):
            try:
                regime = self._build_regime()
                watched = regime.envs.watched if regime.envs is not None else None
                with self._guard(watched) if watched is not None else nullcontext():
                    session, exact = self._build_session(regime)
                    if begun is not None:
                        self.record.begin(**begun)
                    self._announce(session, [*notes, *self._notices(session, regime, exact)])
                    session.start()
                    regime.run(session.clock, session.learner, session.after_step)
                    session.end()
            except Stopped as stop:
                self.signals.stopping = True
                mark_interrupted(stop, self.run_dir, self.record, self._newest())
                raise
            except EnvironmentFailure as failure:
                if self.signals.received is None:
                    raise
                cut = Stopped.by(self.signals.received)  # its worker processes received the signal too
                mark_interrupted(cut, self.run_dir, self.record, self._newest())
                raise cut from failure
            finally:
                with ExitStack() as closed:  # the regime too where the session's environments raise
                    if self.regime is not None:
                        closed.callback(self.regime.close)
                    if self.session is not None:
                        closed.callback(self.session.close, failed=sys.exc_info()[0] is not None)
        return conclude(session)

    # --- build -----------------------------------------------------------------------------------------------------
    def _build_regime(self) -> Regime:
        """The regime of the run, with its environments, replay and dataset."""
        dataset, device, online = self.inputs.dataset, self.plan.apply(), None
        if self.resumed is not None and dataset is not None:
            check_same_spaces(self.resumed, dataset.observation, dataset.action, any_bounds=True)
        if self.inputs.settings.uses_environment:
            self.regime = online = self._build_online(device)
        if dataset is None:
            assert online is not None
            return online
        with interruptible():
            data = ResidentData(dataset.dataset, device)
        assert not isinstance(online, OnPolicy), "the settings of an offline algorithm have a replay"
        self.regime = offline = Offline(dataset, data, online)
        if online is not None:
            online.source = dataset.mixed_with(online.replay, data)
        return offline

    def _build_online(self, device: torch.device) -> OffPolicy | OnPolicy:
        inputs, config, plan = self.inputs, self.config, self.plan
        seeds, num_envs = config.seed_list, config.num_envs
        with interruptible():
            envs = make_envs(
                inputs.source,
                seeds,
                num_envs,
                device,
                workers=plan.workers,
                threads=plan.env_threads,
                timeout=config.env_timeout,
            )
        try:
            if self.resumed is not None:
                check_same_spaces(self.resumed, *envs.codecs, any_bounds=inputs.dataset is not None)
                check_data_memory(config, inputs.settings, envs.spec, plan.device)
            with interruptible():
                return self._regime_of(envs, device)
        except BaseException:
            envs.close()
            raise

    def _regime_of(self, envs: VectorEnv, device: torch.device) -> OffPolicy | OnPolicy:
        """The online regime that the settings of the algorithm belong to."""
        inputs, config, settings = self.inputs, self.config, self.inputs.settings
        if isinstance(settings, RolloutSettings):
            return OnPolicy(envs, make_rollout(config, inputs.learner_class, settings, envs, device))
        assert isinstance(settings, ReplaySettings)
        return OffPolicy(envs, make_replay(config, settings, envs.spec, device, inputs.goals))

    def _build_session(self, regime: Regime) -> tuple[Session, bool]:
        """The session, new or restored from the checkpoint, and whether it was restored exactly."""
        inputs, config = self.inputs, self.config
        spec, observation, action = self._spaces(regime)
        with interruptible():
            learner = inputs.learner_class.create(
                spec, inputs.settings, config.seed_list, device=self.plan.device, compiled=self.plan.compiled
            )
        if regime.envs is not None:
            learner.start_collecting(regime.envs.num_envs)
        agent, clock = Agent(config, learner, observation, action), Clock(config, inputs.settings)
        session = Session(inputs, agent, clock, regime, self.run_dir, self.record)
        parts: list[Part] = [*regime.parts, LearnerPart(learner, regime.source), clock, session]
        exact = True
        with interruptible():
            if self.resumed is None:
                regime.begin(learner)
                load_start(config, self.run_dir, learner)
            else:
                exact = self._restore(self.resumed, regime, parts)
        session.open(parts, self.resumed, self._guard)
        self.session = session
        return session, exact

    def _spaces(self, regime: Regime) -> tuple[EnvSpec, ObservationCodec, ActionCodec]:
        """The spec and codecs of the learner: the dataset's, or those of the environments."""
        if self.inputs.dataset is not None:
            return self.inputs.dataset.spec, self.inputs.dataset.observation, self.inputs.dataset.action
        assert regime.envs is not None
        return regime.envs.spec, *regime.envs.codecs

    def _restore(self, checkpoint: Checkpoint, regime: Regime, parts: Sequence[Part]) -> bool:
        """Load every part; the checkpoint of an offline run that continues online has no environments yet."""
        online, stored = {part.name for part in regime.parts}, checkpoint.state["parts"].keys()
        others = bool((ENVIRONMENT_PARTS - online) & stored)
        if regime.envs is not None and (others or regime.envs.part.name not in ENVIRONMENT_PARTS | stored):
            env_id = checkpoint.state["config"]["env_id"]
            raise UserError(f"a run of {env_id} cannot be resumed in {self.config.env_id}, whose state is another one")
        if self.inputs.dataset is not None and online and not online & stored:
            if checkpoint.names("replay_") or checkpoint.names("envs."):
                raise DamagedCheckpoint(f"{checkpoint.path.name} damaged (its environments are missing)")
            restore(checkpoint, [part for part in parts if part.name not in online])
            assert regime.envs is not None
            regime.envs.reset_all()
            return True
        restore(checkpoint, parts)
        return regime.restored(checkpoint)

    def _guard(self, watched: SeededEnvs) -> AbstractContextManager[object]:
        return Watchdog(watched, lambda hang: report_hang(hang, self.config, self.run_dir, self.record))

    def _newest(self) -> Checkpoint | None:
        return self.session.saver.newest if self.session is not None else self.resumed

    # --- notices ---------------------------------------------------------------------------------------------------
    def _notices(self, session: Session, regime: Regime, exact: bool) -> list[str]:
        inputs = self.inputs
        disk = disk_note(self.run_dir, self.config.keep_checkpoints, session.learner, regime, self.resumed)
        notices = [
            *(inputs.dataset.notices if inputs.dataset is not None else ()),
            *starting_notices(inputs, self.plan, self.record, regime.envs),
            *session.hooks.notices(),
            *([disk] if disk else ()),
        ]
        if not exact:
            self.record.update(resume="inexact", resume_note=NOT_REPLAYABLE)
            notices.append(f"resume: inexact ({NOT_REPLAYABLE}); the open episodes start again")
        return notices

    def _announce(self, session: Session, notices: Sequence[str]) -> None:
        for notice in [*notices, *ended_schedules(session)]:
            session.display.note(notice)
        if self.inputs.dataset is not None:
            self.record.update(**self.inputs.dataset.about)
