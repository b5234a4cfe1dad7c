"""The session of a run: logs, evaluates and saves on schedule, without influence on training."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from rl_training.algorithms.base import Learner
from rl_training.checkpoint.parts import Part, PartState, StoredPart
from rl_training.checkpoint.read import Checkpoint
from rl_training.checkpoint.schema import LOGS, SessionState
from rl_training.checkpoint.write import remove_newer
from rl_training.core.signals import Stopped, active_signals, interruptible
from rl_training.envs.base import Statistics
from rl_training.envs.host.episodes import EpisodeStatistics
from rl_training.envs.host.vector import MAX_LOG
from rl_training.envs.spaces import codecs_to_dict
from rl_training.files.atomic import replace_file
from rl_training.files.json_lines import read_rows
from rl_training.files.run_directory import RunRecord
from rl_training.loops.clock import Clock
from rl_training.loops.regime import Regime
from rl_training.run.agent import Agent
from rl_training.run.callback_interface import CallbackInterface
from rl_training.run.evaluate import Evaluation, EvaluationPlan, Evaluator, Guard, evaluation_summary
from rl_training.run.hooks import Hooks
from rl_training.run.inputs import RunInputs
from rl_training.run.logged_values import LoggedValues
from rl_training.run.progress import Progress
from rl_training.run.saver import BestAgents, Saver
from rl_training.run.writers.files import JsonLines, Writer
from rl_training.run.writers.opening import open_files, start_services

W = TypeVar("W", bound=Writer)


class TrainingFailure(Exception):
    """A run that failed: exit code 1; its checkpoints are intact."""


TOO_LONG = f"an episode lasted more than {MAX_LOG} steps: on resume it starts again"


class Session(CallbackInterface):
    """Logs, evaluations, checkpoints and callbacks of one run."""

    name = "session"

    def __init__(
        self, inputs: RunInputs, agent: Agent, clock: Clock, regime: Regime, run_dir: Path, record: RunRecord
    ) -> None:
        self.inputs, self.config, self.source = inputs, inputs.config, inputs.source
        self.agent, self.learner, self.seeds = agent, agent.learner, agent.learner.seeds
        self.clock, self.run_dir, self.record = clock, run_dir, record
        self.envs, self.regime = regime.envs, regime
        self.statistics: Statistics = EpisodeStatistics(len(self.seeds), 1)
        if self.envs is not None:
            self.statistics = self.envs.statistics
        self.hooks, self.logged = Hooks(inputs.callbacks, record), LoggedValues(self.seeds)
        self.evaluates = inputs.has_environment and self.config.eval_episodes > 0
        self.signals = active_signals()
        self.elapsed_before, self.started = 0.0, time.monotonic()
        self.best: list[float | None] = [None] * len(self.seeds)
        self.last_evaluation: list[Evaluation] | None = None
        self.last_evaluation_step, self.evaluation_due = -1, False  # due: interrupted by a signal, repeated on resume
        self.failed: dict[str, dict[str, Any]] = {}
        self.offsets = dict.fromkeys(LOGS, 0)
        self.logs: dict[str, JsonLines] = {}
        self._opened, self._ends_failed = ExitStack(), False
        self._infos_reported = False

    def open(self, parts: Sequence[Part], resumed: Checkpoint | None, guard: Guard) -> None:
        """Open the display, the logs at the offsets of the loaded state, the writers and the saver, or none of them."""
        try:
            self._open_display()
            self.evaluator = Evaluator(self.learner, EvaluationPlan.of(self.config, self.source, guard))
            self._opened.callback(self.evaluator.close)
            for name in LOGS:
                self.logs[name] = self._closed_later(JsonLines(self.run_dir / f"{name}.jsonl", self.offsets[name]))
            note = self.display.note
            services = [self._closed_later(one) for one in start_services(self.config, self.run_dir, self.record, note)]
            # Only now: a resume that is rejected leaves the run as it was.
            if resumed is not None:
                remove_newer(self.run_dir / "checkpoints", resumed.step)
            for log in self.logs.values():
                log.cut()
            for service in services:
                service.write(list(read_rows(self.run_dir / "metrics.jsonl")))  # those that it does not have
            at = resumed.step if resumed is not None else None
            files = [self._closed_later(one) for one in open_files(self.config, self.run_dir, at, note)]
            self.writers: list[Writer] = [self.logs["metrics"], *services, *files]
            self.best_agents = BestAgents(self.run_dir / "agents", note)
            self.saver = Saver(self.run_dir / "checkpoints", self.config, parts, resumed, note)
            self._opened.callback(self.saver.close)
        except BaseException:
            self.close(failed=True)
            raise
        self._speed_mark = (self.step, time.monotonic())

    def _open_display(self) -> None:
        config, several = self.config, f" x {len(self.seeds)} seeds" if len(self.seeds) > 1 else ""
        label = f"{config.algo} {config.env_id}{several}"
        self.display = Progress(self.clock.total, label, start=self.step, enabled=self.inputs.show_progress)
        self._opened.callback(self.display.close)
        self.learner.while_compiling = self.display.compiling

    def _closed_later(self, writer: W) -> W:
        self._opened.callback(lambda: writer.close(self._ends_failed))
        return writer

    # --- after every step ------------------------------------------------------------------------------------------
    def after_step(self) -> None:
        clock = self.clock
        # First: a checkpoint of this step has what the callbacks did at it.
        self._call("on_step")
        if clock.is_due(clock.log):
            self.log_metrics()
        if self.evaluates and clock.is_due(clock.evaluate):
            self.evaluate()
        if clock.is_due(clock.checkpoint) and not clock.finished:
            self.checkpoint()
        if self.signals.received is not None:
            self.signals.stopping, clock.stop_reason = True, "signal"
        self.display.update(self.step, {})

    # --- logs ------------------------------------------------------------------------------------------------------
    def log_metrics(self) -> None:
        self.check_finite()
        now = time.monotonic()
        fps = (self.step - self._speed_mark[0]) / max(now - self._speed_mark[1], 1e-9)
        self._speed_mark = (self.step, now)
        means, episodes, rows = self.learner.take_metrics(), self.statistics.rows(), []
        logged = self.logged.take()
        for index, seed in enumerate(self.seeds):
            row: dict[str, Any] = {"step": self.step, "seed": seed, **episodes[index]}
            row |= {"train/n_updates": self.gradient_steps, "train/learning_rate": self.learner.learning_rate}
            row.update({f"train/{name}": value for name, value in means[index].items()})  # perhaps its own rate
            row["rollout/exploration_rate"] = self.learner.exploration(self.learner.progress)
            row.update({"time/fps": fps, "time/time_elapsed": self.elapsed})
            rows.append({**row, **logged[index]})
        self._write(rows)
        self._show(episodes, means[0])
        self._report_missing_infos()

    def _report_missing_infos(self) -> None:
        """Report, once episodes have ended, the numbers that none of them had in its info."""
        found = self.statistics
        if self._infos_reported or not isinstance(found, EpisodeStatistics) or not sum(found.finished):
            return
        self._infos_reported = True
        missing = [name for name, by_seed in found.infos.items() if name != "is_success" and not any(by_seed)]
        if missing:
            self.display.note(f"info_metrics: no number {', '.join(missing)} in the info of any episode's last step")

    def _write(self, rows: Sequence[dict[str, Any]]) -> None:
        self._call("on_log", rows)
        for writer in self.writers:
            writer.write(rows)

    def _show(self, episodes: Sequence[dict[str, Any]], train: dict[str, float | None]) -> None:
        values: dict[str, float | None] = {}
        returns = [row["rollout/ep_rew_mean"] for row in episodes if row["rollout/ep_rew_mean"] is not None]
        if returns:
            values["return"] = float(np.mean(returns))
        if self.last_evaluation is not None:
            values["eval"] = float(np.mean([one.mean for one in self.last_evaluation]))
        values.update({name: value for name, value in train.items() if name.endswith("loss")})
        self.display.update(self.step, values)

    def check_finite(self) -> None:
        """Record seeds with nonfinite metrics as failed; the others continue. Raises if all seeds failed."""
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

    # --- evaluation ------------------------------------------------------------------------------------------------
    def evaluate(self) -> None:
        self.check_finite()
        results = self._run_evaluation()
        self.evaluation_due = results is None
        if results is None:
            self.clock.stop_reason = "signal"
            return
        self.last_evaluation, self.last_evaluation_step = results, self.step
        rows = [{"step": self.step, "seed": seed} for seed in self.seeds]
        episodes = [{"returns": one.returns, "lengths": one.lengths, **one.infos} for one in results]
        self.logs["evaluations"].write([{**row, **one} for row, one in zip(rows, episodes, strict=True)])
        self._write([{**row, **one.metrics()} for row, one in zip(rows, results, strict=True)])
        for index, one in enumerate(results):
            self._save_if_best(index, one.mean)
        self._show((), {})
        self._call("on_evaluation", self.evaluation_metrics())

    def _run_evaluation(self) -> list[Evaluation] | None:
        """Evaluate at this step; None if a signal interrupted it."""
        try:
            with interruptible():
                results = self.evaluator.run(self.step)
        except Stopped:
            self.signals.stopping = True
            return None
        cut = sum(one.cut for one in results)
        if cut:
            plan = self.evaluator.plan
            report = plan.bound.report(cut, plan.episodes * len(self.seeds))
            self.display.note(f"evaluation at step {self.step}: {report}")
        return results

    def _save_if_best(self, index: int, mean: float) -> None:
        seed, best = self.seeds[index], self.best[index]
        if str(seed) not in self.failed and (best is None or mean > best):
            self.best[index] = mean
            self.agent.step = self.step
            self.best_agents.save(seed, self.agent.pack(index))

    def evaluation_metrics(self) -> dict[str, Any]:
        if self.last_evaluation is None:
            return {}
        by_seed = zip(self.seeds, self.last_evaluation, strict=True)
        healthy = [one for seed, one in by_seed if str(seed) not in self.failed] or self.last_evaluation
        return evaluation_summary(self.config.env_id, healthy, [value for value in self.best if value is not None])

    # --- checkpoints -----------------------------------------------------------------------------------------------
    def checkpoint(self) -> None:
        self.check_finite()
        self.best_agents.write()
        for log in self.logs.values():
            log.sync()  # a checkpoint refers to the rows before it
        checkpoint = self.saver.save(self.step, self._about())
        endless = self.envs is not None and not self.envs.can_restore
        if endless and self.record.values["resume"] == "exact":
            self.record.update(resume="inexact", resume_note=TOO_LONG)
            self.display.note(f"resume: inexact ({TOO_LONG})")
        if checkpoint is not None:
            self._call("on_checkpoint", checkpoint.path)

    def _about(self) -> dict[str, Any]:
        """The values of a checkpoint besides the state of the parts."""
        dataset = self.inputs.dataset
        return {
            **(dataset.about if dataset is not None else {}),
            "environment": {"env_id": self.source.env_id, "restore": self.source.restore, "masked": self.source.masked},
            **codecs_to_dict(self.agent.observation, self.agent.action),
        }

    def state(self, previous: Checkpoint | None) -> PartState:
        values = {
            "elapsed": self.elapsed,
            # A best agent that was not written does not count: a resumed run would lack its file.
            "best": [None if s in self.best_agents.pending else b for s, b in zip(self.seeds, self.best, strict=True)],
            "failed": self.failed,
            "evaluation_due": self.evaluation_due,
            "last_evaluation_step": self.last_evaluation_step,
            "last_evaluation": [[one.returns, one.lengths] for one in self.last_evaluation or []],
            "last_infos": [one.infos for one in self.last_evaluation or []],
            "callbacks": self.hooks.states(),
            "logged": self.logged.state(),
            "offsets": {name: log.offset for name, log in self.logs.items()},
        }
        return PartState(values)

    def check(self, stored: StoredPart) -> None:
        problem = self.logged.check(stored.parse(SessionState).logged)
        if problem is not None:
            raise stored.invalid(problem)

    def load(self, stored: StoredPart) -> None:
        state = stored.parse(SessionState)
        self.elapsed_before, self.best, self.failed = state.elapsed, list(state.best), dict(state.failed)
        self.last_evaluation_step = state.last_evaluation_step
        self.evaluation_due = state.evaluation_due and self.evaluates
        last_infos: Sequence[dict[str, Any]] = state.last_infos or [{}] * len(state.last_evaluation)
        infos = [{name: list(values) for name, values in one.items()} for one in last_infos]
        found = zip(state.last_evaluation, infos, strict=False)
        self.last_evaluation = [Evaluation(list(r), list(n), infos=info) for (r, n), info in found] or None
        self.hooks.load(state.callbacks)
        self.logged.load(state.logged)
        self.offsets = {name: state.offsets[name] for name in LOGS}

    # --- start and end ---------------------------------------------------------------------------------------------
    def _call(self, hook: str, *arguments: Any) -> None:
        if not self.hooks.call(hook, self, *arguments):
            self.clock.stop_reason = self.clock.stop_reason or "callback"

    def start(self) -> None:
        self._call("on_start")
        self.hooks.states()  # rejects one that cannot be saved now, not at the first checkpoint
        if self.evaluation_due and self.clock.running:
            self.evaluate()

    def end(self) -> None:
        """Write the last evaluation, checkpoint and agents of a run that is finished or was stopped."""
        was_due, finished = self.evaluation_due, self.clock.finished
        if finished and self.gradient_steps:
            self.check_finite()
        if finished and self.evaluates and self.last_evaluation_step != self.step:
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

    def close(self, failed: bool) -> None:
        """Close everything; `failed`: the run ends with an exception."""
        self._ends_failed = failed
        self._opened.close()


def newly_diverged_seeds(learner: Learner, known: Any, step: int) -> dict[str, dict[str, Any]]:
    """By seed, those not in `known`: the update, the metrics that became nonfinite first, and all metrics, for JSON."""
    found: dict[str, dict[str, Any]] = {}
    updates = learner.nonfinite_updates() if learner.update_count else []
    for index, (seed, update) in enumerate(zip(learner.seeds, updates, strict=False)):
        if update >= 0 and str(seed) not in known:
            names, metrics = learner.failure(index)
            found[str(seed)] = {
                "update": update,
                "step": step,
                "reason": f"{', '.join(names)} became NaN or infinite",
                "metrics": {name: value if math.isfinite(value) else str(value) for name, value in metrics.items()},
            }
    return found
