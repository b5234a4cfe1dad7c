"""A run in progress: its counters, logs, evaluations and checkpoints. It never changes what is learned."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.checkpoint.read import Checkpoint
from rl_training.config.train_config import TrainConfig
from rl_training.core.schedules import Every
from rl_training.core.signals import StopSignals
from rl_training.data.replay.buffer import ReplayBuffer
from rl_training.envs.host.episode_bound import EpisodeBound
from rl_training.envs.host.episodes import EpisodeStatistics
from rl_training.envs.host.factory import EnvSource
from rl_training.envs.host.vector import LONGEST_LOG, SeededEnvs
from rl_training.files.atomic import replace_file
from rl_training.files.run_directory import RunRecord
from rl_training.run.agent import Agent
from rl_training.run.callbacks import Callback, callback_name
from rl_training.run.evaluate import Evaluation, Guard, evaluate_until_stopped, evaluation_summary
from rl_training.run.nonfinite import newly_diverged_seeds
from rl_training.run.progress import Progress
from rl_training.run.saver import BestAgents, Saver
from rl_training.run.writers import JsonLines, TensorBoard


class TrainingFailure(Exception):
    """The run failed: exit 1. What was saved before is intact."""


TOO_LONG = f"an episode went on for more than {LONGEST_LOG} steps: on a resume it starts afresh"


class Session:
    def __init__(
        self,
        config: TrainConfig,
        agent: Agent,
        source: EnvSource,
        run_dir: Path,
        record: RunRecord,
        saver: Saver,
        *,
        envs: SeededEnvs | None = None,
        replay: ReplayBuffer | None = None,
        about: dict[str, Any] | None = None,
        has_environment: bool = True,
        callbacks: Sequence[Callback] = (),
        signals: StopSignals | None = None,
        guard: Guard = nullcontext,
        show_progress: bool = True,
        resumed: Checkpoint | None = None,
    ) -> None:
        self.config, self.agent, self.source, self.run_dir = config, agent, source, run_dir
        self.learner, self.settings, self.seeds = agent.learner, agent.learner.settings, agent.learner.seeds
        self.record, self.saver, self.callbacks = record, saver, tuple(callbacks)
        self.envs, self.replay = envs, replay
        self.about = about or {}  # more for the checkpoints' state, such as the digest of the data set
        self.has_environment = has_environment
        self.evaluates = has_environment and config.eval_episodes > 0
        self.signals, self.guard = signals or StopSignals(), guard
        self.total = config.total_timesteps
        self.step, self.previous_step, self.since_training = 0, 0, 0
        # A run that began offline counts its environment's steps from here on.
        self.online_from: int = self.settings.offline_updates or 0
        self.horizon = self.online_from or self.total  # what schedules run towards: extending a run does not change it
        self.elapsed_before, self.started = 0.0, time.monotonic()
        self.episodes = EpisodeStatistics(len(self.seeds), config.num_envs)
        self.best: list[float | None] = [None] * len(self.seeds)
        self.last_evaluation: list[Evaluation] | None = None
        self.last_evaluation_step, self.evaluation_due = -1, False  # due: cut by a signal, repeated on resume
        self.failed: dict[str, dict[str, Any]] = {}
        self.stop_reason: str | None = None
        offsets = {"metrics": 0, "evaluations": 0}
        if resumed is not None:
            offsets = self._restore(resumed.state)
        self.metrics_log = JsonLines(run_dir / "metrics.jsonl", offsets["metrics"])
        self.evaluations_log = JsonLines(run_dir / "evaluations.jsonl", offsets["evaluations"])
        self.tensorboard = TensorBoard(run_dir, self.seeds, self.step) if config.tensorboard else None
        label = f"{config.algo} {config.env_id}" + (f" x {len(self.seeds)} seeds" if len(self.seeds) > 1 else "")
        self.display = Progress(self.total, label, start=self.step, enabled=show_progress)
        self.learner.while_compiling = self.display.compiling
        self.best_agents = BestAgents(run_dir / "agents", self.display.note)
        self._log_every = Every(config.log_interval)
        self._evaluate_every = Every(config.steps_between_evaluations)
        self._checkpoint_every = Every(config.checkpoint_interval)
        self._due = (self._log_every, self._evaluate_every, self._checkpoint_every)
        self._fps_mark = (self.step, time.monotonic())

    # --- what the loop asks ----------------------------------------------------------------------------------------
    @property
    def progress(self) -> float:
        # Schedules belong to the offline stage: behind it IQL's actor, at its end, would never learn again.
        return 0.0 if 0 < self.online_from <= self.step else self.step / self.horizon

    @property
    def gradient_steps(self) -> int:
        return self.learner.update_count

    def running(self) -> bool:
        return self.step < self.total and self.stop_reason is None

    def count_step(self, envs: SeededEnvs) -> None:
        self.episodes.count(envs)
        self.previous_step = self.step
        self.step += envs.num_envs

    def count_updates(self, count: int) -> None:
        """Offline, a step is an update."""
        self.previous_step = self.step
        self.step += count

    def updates_until(self, end: int, interval: int) -> int:
        """How many updates may follow at once: up to `end`, a multiple of `interval`, or the next thing that is due."""
        intervals = [interval, *(every.interval for every in self._due)]
        return min(end - self.step, *(length - self.step % length for length in intervals))

    def updates_owed(self, transitions: int) -> int:
        """A constant update-to-data ratio whatever `num_envs` is: the remainder is carried over."""
        beyond = self.step - self.online_from - self.settings.learning_starts
        if beyond <= 0:
            return 0
        self.since_training += min(transitions, beyond)
        trainings, self.since_training = divmod(self.since_training, self.settings.train_frequency)
        return int(trainings * self.settings.gradient_updates_per_step)

    def after_step(self) -> None:
        if self._log_every.passed(self.previous_step, self.step):
            self.log()
        if self.evaluates and self._evaluate_every.passed(self.previous_step, self.step):
            self.evaluate()
        if self._checkpoint_every.passed(self.previous_step, self.step) and self.step < self.total:
            self.checkpoint()
        self._call("on_step")
        if self.signals.received is not None:
            self.signals.obeyed, self.stop_reason = True, "signal"
        self.display.update(self.step, {})

    # --- logs --------------------------------------------------------------------------------------------------------
    @property
    def elapsed(self) -> float:
        return self.elapsed_before + time.monotonic() - self.started

    def log(self) -> None:
        self.check_finite()
        now = time.monotonic()
        fps = (self.step - self._fps_mark[0]) / max(now - self._fps_mark[1], 1e-9)
        self._fps_mark = (self.step, now)
        means = self.learner.take_metrics()
        for index, seed in enumerate(self.seeds):
            row: dict[str, Any] = {"step": self.step, "seed": seed, **self.episodes.row(index)}
            row.update({f"train/{name}": value for name, value in means[index].items()})
            row["train/n_updates"] = self.gradient_steps
            row["train/learning_rate"] = self.learner.learning_rate
            row["rollout/exploration_rate"] = self.learner.exploration(self.progress)
            row.update({"time/fps": fps, "time/time_elapsed": self.elapsed})
            self._write(self.metrics_log, row)
        self._show(means[0])

    def _write(self, log: JsonLines, row: dict[str, Any]) -> None:
        log.write(row)
        if self.tensorboard is not None:
            self.tensorboard.write(row)

    def _show(self, train: dict[str, float | None]) -> None:
        values: dict[str, float | None] = {}
        returns = [np.mean(window) for window in self.episodes.returns if window]
        if returns:
            values["return"] = float(np.mean(returns))
        if self.last_evaluation is not None:
            values["eval"] = float(np.mean([one.mean for one in self.last_evaluation]))
        values.update({name: value for name, value in train.items() if name.endswith("loss")})
        self.display.update(self.step, values)

    def check_finite(self) -> None:
        """A seed whose update produced NaN is marked with that update; the others go on."""
        found = newly_diverged_seeds(self.learner, self.failed, self.step)
        for seed, entry in found.items():
            self.display.note(f"seed {seed} failed: {entry['reason']} at update {entry['update']}")
        if found:
            self.failed.update(found)
            self.record.update(failed_seeds=self.failed)
        if len(self.failed) == len(self.seeds):
            first = min(self.failed.values(), key=lambda entry: int(entry["update"]))
            kept = "the last good checkpoint is kept" if self.saver.newest else "there is no checkpoint yet"
            raise TrainingFailure(f"{first['reason']} at update {first['update']}; {kept} in {self.run_dir}")

    # --- evaluation --------------------------------------------------------------------------------------------------
    def evaluate(self) -> None:
        self.check_finite()
        play = (self.learner, self.source, self.seeds, self.config.eval_episodes, self.step, self.guard)
        results = evaluate_until_stopped(*play, EpisodeBound.of(self.config), self.signals, self.display.note)
        self.evaluation_due = results is None
        if results is None:
            self.stop_reason = "signal"
            return
        self.last_evaluation, self.last_evaluation_step = results, self.step
        for index, (seed, one) in enumerate(zip(self.seeds, results, strict=True)):
            row = {"step": self.step, "seed": seed}
            self.evaluations_log.write({**row, "returns": one.returns, "lengths": one.lengths})
            self._write(self.metrics_log, {**row, **one.metrics()})
            best = self.best[index]
            if str(seed) not in self.failed and (best is None or one.mean > best):
                self.best[index] = one.mean
                self.agent.step = self.step
                self.best_agents.save(seed, self.agent.pack(index))
        self._show({})
        self._call("on_evaluation", self.evaluation_metrics())

    def evaluation_metrics(self) -> dict[str, Any]:
        if self.last_evaluation is None:
            return {}
        by_seed = zip(self.seeds, self.last_evaluation, strict=True)
        healthy = [one for seed, one in by_seed if str(seed) not in self.failed] or self.last_evaluation
        return evaluation_summary(self.config.env_id, healthy, [value for value in self.best if value is not None])

    # --- checkpoints -------------------------------------------------------------------------------------------------
    def checkpoint(self) -> None:
        self.check_finite()
        self.best_agents.write()
        for log in (self.metrics_log, self.evaluations_log):
            log.sync()  # a checkpoint counts on the rows before it
        checkpoint = self.saver.save(self.step, self.state(), self.agent, self.envs, self.replay)
        if self.envs is not None and not self.envs.can_return and self.record.values["resume"] == "exact":
            self.record.update(resume="inexact", resume_note=TOO_LONG)
            self.display.note(f"resume: inexact ({TOO_LONG})")
        if checkpoint is not None:
            self._call("on_checkpoint", checkpoint.path)

    def state(self) -> dict[str, Any]:
        return {
            **self.about,
            "environment": {"env_id": self.source.env_id, "restore": self.source.restore},
            "step": self.step,
            "since_training": self.since_training,
            "horizon": self.horizon,
            "elapsed": self.elapsed,
            "episode_statistics": self.episodes.state(),
            # A best agent that is not on the disk does not count: a resumed run finds its own.
            "best": [None if s in self.best_agents.waiting else b for s, b in zip(self.seeds, self.best, strict=True)],
            "failed": self.failed,
            "evaluation_due": self.evaluation_due,
            "last_evaluation_step": self.last_evaluation_step,
            "last_evaluation": [[one.returns, one.lengths] for one in self.last_evaluation or []],
            "offsets": {"metrics": self.metrics_log.offset, "evaluations": self.evaluations_log.offset},
        }

    def _restore(self, state: dict[str, Any]) -> dict[str, int]:
        self.step = self.previous_step = int(state["step"])
        self.since_training, self.horizon = int(state["since_training"]), int(state["horizon"])
        self.elapsed_before = float(state["elapsed"])
        self.episodes.load(state["episode_statistics"])
        self.episodes.forget(self.envs.lost if self.envs is not None else ())
        self.best, self.failed = list(state["best"]), dict(state["failed"])
        self.last_evaluation_step = int(state["last_evaluation_step"])
        self.evaluation_due = bool(state["evaluation_due"]) and self.evaluates
        evaluations = [Evaluation(returns, lengths) for returns, lengths in state["last_evaluation"]]
        self.last_evaluation = evaluations or None
        return dict(state["offsets"])

    # --- start and end -----------------------------------------------------------------------------------------------
    def _call(self, hook: str, *arguments: Any) -> None:
        for callback in self.callbacks:
            self.record.hook = f"{callback_name(callback)}.{hook}"
            answer, self.record.hook = getattr(callback, hook)(self, *arguments), None
            if isinstance(answer, (bool, np.bool_)) and not answer:
                self.stop_reason = self.stop_reason or "callback"

    def start(self) -> None:
        self._call("on_start")
        if self.evaluation_due and self.running():
            self.evaluate()

    def end(self) -> None:
        """The last evaluation, checkpoint and agents of a run that came to its end or was told to stop."""
        was_due = self.evaluation_due
        if self.step >= self.total and self.gradient_steps:
            self.check_finite()
        if self.step >= self.total and self.evaluates and self.last_evaluation_step != self.step:
            self.evaluate()
        if self.saver.newest_step != self.step or was_due != self.evaluation_due:
            self.checkpoint()
        if self.saver.newest_step != self.step:
            kept = f"what was saved before is in {self.run_dir}"
            raise TrainingFailure(f"the last checkpoint could not be written; {kept}")
        self.best_agents.write()
        self.agent.step = self.step
        for index, seed in enumerate(self.seeds):
            replace_file(self.run_dir / "agents" / f"seed_{seed}_final.safetensors", self.agent.pack(index))
        self._call("on_end")

    def close(self) -> None:
        self.display.close()
        self.saver.close()
        for log in (self.metrics_log, self.evaluations_log, self.tensorboard):
            if log is not None:
                log.close()
