"""Ready-made callbacks: stop at a return or without improvement, save agents, record videos, change the environment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_training.config.conversion import is_number
from rl_training.core.checks import UserError, require, shown
from rl_training.core.signals import Stopped, interruptible
from rl_training.files.atomic import replace_file
from rl_training.report.video import check_video_path
from rl_training.run.artifacts import record_video
from rl_training.run.callbacks import Callback

if TYPE_CHECKING:
    from rl_training.run.session import Session

Stages = Mapping[int, Mapping[str, Any]]
StageFunction = Callable[[int], "Mapping[str, Any] | None"]


def _check_interval(value: Any, name: str) -> int:
    require(_is_whole(value, 1), name, f"a whole number >= 1, got {shown(value)}")
    return int(value)


def _is_whole(value: Any, at_least: int) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= at_least


def _check_number(value: Any, name: str) -> float:
    require(is_number(value) and value == value, name, f"a number, got {shown(value)}")
    return float(value)


class _OfEvaluations(Callback):
    """A callback that needs evaluations."""

    def on_start(self, session: Session) -> None:
        if not session.evaluates:
            raise UserError(f"{type(self).__name__} needs evaluations: an environment, and eval_episodes above 0")


class StopAtReturn(_OfEvaluations):
    """Stops the run when the mean return of an evaluation, over all seeds, reaches a value."""

    def __init__(self, value: float) -> None:
        self.value = _check_number(value, "value")

    def on_evaluation(self, session: Session, metrics: dict[str, Any]) -> bool:
        found = metrics["eval_return_mean"]
        if found >= self.value:
            session.note(f"StopAtReturn: the evaluation at step {session.step} has {found:g}, at least {self.value:g}")
        return bool(found < self.value)


class StopWithoutImprovement(_OfEvaluations):
    """Stops the run after `patience` evaluations in a row whose mean return was not above the best by `min_delta`.

    The first `min_evaluations` evaluations do not count.
    """

    def __init__(self, patience: int, min_delta: float = 0.0, min_evaluations: int = 0) -> None:
        self.patience = _check_interval(patience, "patience")
        self.min_delta = _check_number(min_delta, "min_delta")
        must = f"a whole number >= 0, got {shown(min_evaluations)}"
        require(_is_whole(min_evaluations, 0), "min_evaluations", must)
        self.min_evaluations = int(min_evaluations)
        self.best: float | None = None
        self.evaluations = self.without = 0

    def on_evaluation(self, session: Session, metrics: dict[str, Any]) -> bool:
        found = metrics["eval_return_mean"]
        self.evaluations += 1
        if self.best is None or found > self.best + self.min_delta:
            self.best, self.without = found, 0
        elif self.evaluations > self.min_evaluations:
            self.without += 1
        if self.without >= self.patience:
            last = f"the last {self.without} evaluations were not above {self.best:g}"
            session.note(f"StopWithoutImprovement: {last} (step {session.step})")
        return self.without < self.patience

    def state(self) -> dict[str, Any]:
        return {"best": self.best, "evaluations": self.evaluations, "without": self.without}

    def load(self, state: dict[str, Any]) -> None:
        self.best, self.evaluations, self.without = state["best"], state["evaluations"], state["without"]


class SaveAgents(Callback):
    """Saves every seed's agent each time another `every` steps are done: `agents/seed_<k>_step_<n>.safetensors`.

    `folder` is another folder than the run's `agents`.
    """

    def __init__(self, every: int, folder: str | Path | None = None) -> None:
        self.every, self.folder = _check_interval(every, "every"), None if folder is None else Path(folder)

    def on_step(self, session: Session) -> None:
        if not session.passed(self.every):
            return
        session.agent.step = session.step
        folder = self.folder or session.run_dir / "agents"
        for index, seed in enumerate(session.seeds):
            try:
                replace_file(folder / f"seed_{seed}_step_{session.step}.safetensors", session.agent.pack(index))
            except OSError as error:  # a full disk must not end the run, as for the best agent
                session.note(f"SaveAgents: the agent of step {session.step} could not be written: {error.strerror}")


class RecordVideo(Callback):
    """Records a video of the first seed's agent each time another `every` steps are done: `videos/step_<n>.webm`."""

    def __init__(self, every: int, episodes: int = 1, suffix: str = ".webm") -> None:
        self.every, self.episodes = _check_interval(every, "every"), _check_interval(episodes, "episodes")
        check_video_path(Path(f"step{suffix}"))
        self.suffix = suffix
        self.due = False  # a signal interrupted the video of this step

    def on_start(self, session: Session) -> None:
        if not session.inputs.has_environment:
            raise UserError("RecordVideo needs an environment, and this run has none")
        if self.due:
            self._record(session)

    def on_step(self, session: Session) -> None:
        if session.passed(self.every):
            self._record(session)

    def _record(self, session: Session) -> None:
        path = session.run_dir / "videos" / f"step_{session.step}{self.suffix}"
        self.due = True
        try:
            with interruptible():
                path.parent.mkdir(exist_ok=True)
                record_video(session.agent, session.source, path, self.episodes)
        except Stopped:
            session.signals.stopping = True
            return
        except Exception as error:  # an environment may raise anything when it is rendered
            session.note(f"RecordVideo: no video of step {session.step}: {error}")
        self.due = False

    def state(self) -> dict[str, Any]:
        return {"due": self.due}

    def load(self, state: dict[str, Any]) -> None:
        self.due = bool(state["due"])


class Curriculum(Callback):
    """Changes the training environments by the step: `Curriculum({0: {"length": 0.5}, 10_000: {"length": 1.0}})`.

    A name is a public attribute, which is set, or a method `set_...`, which is called with the value. A change takes
    effect at each environment's next reset, and stays until another one. Instead of the mapping, a function gives the
    changes at a step, or None. Evaluations and videos have the environment of the config.
    """

    def __init__(self, stages: Stages | StageFunction) -> None:
        self.function = stages if callable(stages) else None
        self.stages: dict[int, Mapping[str, Any]] = {}
        if not callable(stages):
            must = 'a mapping from steps to changes, such as {0: {"gravity": 5.0}}, or a function of the step'
            require(isinstance(stages, Mapping) and len(stages) > 0, "stages", f"{must}, got {shown(stages)}")
            for step, changes in stages.items():
                ok = _is_whole(step, 0) and isinstance(changes, Mapping)
                require(ok, "stages", f"{must}, got {shown({step: changes})}")
            self.stages = {int(step): stages[step] for step in sorted(stages)}
        self.loaded = False  # the environments of a resumed run have their changes, also those by other callbacks

    def changes(self, step: int) -> Mapping[str, Any]:
        """The changes that are made by a step."""
        if self.function is not None:
            found = self.function(step)
            return {} if found is None else found
        return {name: value for start, one in self.stages.items() if start <= step for name, value in one.items()}

    def on_start(self, session: Session) -> None:
        session.check_changes({name for one in self.stages.values() for name in one})
        if not self.loaded:
            session.change_environment(**self.changes(session.step))
        self.loaded = False  # it may be passed to a new run

    def on_step(self, session: Session) -> None:
        before = session.clock.previous_step
        if self.function is not None or any(before < start <= session.step for start in self.stages):
            session.change_environment(**self.changes(session.step))

    def state(self) -> dict[str, Any]:
        return {}  # its changes are saved with the environments; this reports a resume that lacks it

    def load(self, state: dict[str, Any]) -> None:
        self.loaded = True
