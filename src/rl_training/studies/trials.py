"""The trials of a tuning study in Optuna's journal: values drawn by the trial's number, reports, results."""

from __future__ import annotations

import json
import warnings
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.core.checks import UserError, one_line
from rl_training.studies.space import Dimension
from rl_training.studies.tune_file import TuneFile

FINGERPRINT = "fingerprint"
REASON = "reason"


def import_optuna() -> Any:
    """Optuna, or a UserError that names the extra."""
    try:
        import optuna
    except ImportError as error:
        raise UserError("Optuna is not installed: pip install 'rl-training[tune]'") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


class Trials:
    """The trials of a study, stored in a journal file that survives kill -9."""

    def __init__(self, study: TuneFile, folder: Path, first_rung: int) -> None:
        self.file, self.optuna = study, import_optuna()
        journal = folder / "journal.log"
        _drop_incomplete_line(journal)
        backend = self.optuna.storages.journal.JournalFileBackend(str(journal))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            storage = self.optuna.storages.JournalStorage(backend)
        self.study = self.optuna.create_study(
            storage=storage,
            study_name="tune",
            direction="maximize",
            pruner=self._pruner(first_rung),
            load_if_exists=True,
        )
        before = self.study.user_attrs.get(FINGERPRINT)
        if before not in (None, study.fingerprint):
            raise UserError(
                f"{folder}: the algorithm, environment, config, seeds, search or objective have changed since its "
                "first trial, so that trials cannot be compared; give the study another name"
            )
        if before is None:
            self.study.set_user_attr(FINGERPRINT, study.fingerprint)

    def _pruner(self, first_rung: int) -> Any:
        pruning, pruners = self.file.pruning, self.optuna.pruners
        first = pruning.first_rung or first_rung
        if pruning.kind == "median":
            return pruners.MedianPruner(n_startup_trials=pruning.startup_trials, n_warmup_steps=first - 1)
        if pruning.kind == "halving":
            return pruners.SuccessiveHalvingPruner(min_resource=first, reduction_factor=pruning.reduction_factor)
        return pruners.NopPruner()

    @property
    def count(self) -> int:
        return len(self.study.trials)

    def all(self) -> list[Any]:
        """Every trial as it is stored."""
        return list(self.study.get_trials(deepcopy=False))

    def in_flight(self) -> list[Any]:
        """The trials that a kill or a signal left, ready to continue."""
        running = self.optuna.trial.TrialState.RUNNING
        return [self.optuna.trial.Trial(self.study, one._trial_id) for one in self.all() if one.state == running]

    def next(self) -> Any:
        """A new trial."""
        self.study.sampler = self._sampler(self.count, "")
        return self.study.ask()

    def values(self, trial: Any) -> dict[str, Any]:
        """The settings of a trial: those that it has, and the others drawn by its number."""
        drawn = {}
        for name, dimension in self.file.space.items():
            self.study.sampler = self._sampler(trial.number, name)  # what a kill left is drawn again as it was
            drawn[name] = _suggest(trial, name, dimension)
        return drawn

    def _sampler(self, number: int, name: str) -> Any:
        seed = int(np.random.SeedSequence([self.file.seed, number, zlib.crc32(name.encode())]).generate_state(1)[0])
        samplers = self.optuna.samplers
        if self.file.sampler == "random":
            return samplers.RandomSampler(seed=seed)
        return samplers.TPESampler(seed=seed, n_startup_trials=self.file.startup_trials, constant_liar=True)

    def report(self, trial: Any, rungs: list[tuple[int, float]]) -> int | None:
        """Report evaluations that are new; the step at which the trial is pruned, or None."""
        stored = self.study.get_trials(deepcopy=False)[trial.number].intermediate_values
        newest = max(stored, default=-1)  # a kill may have come between its report and the decision
        for step, value in rungs:
            if step not in stored:
                trial.report(value, step)
            if step >= newest and trial.should_prune():
                return step
        return None

    def finish(self, trial: Any, value: float | None, state: str = "COMPLETE", reason: str = "") -> None:
        """Record the end of a trial."""
        if reason:
            trial.set_user_attr(REASON, one_line(reason))
        self.study.tell(trial, value, state=self.optuna.trial.TrialState[state])

    def best(self) -> Any:
        """The best finished trial, or None."""
        finished = [one for one in self.all() if one.state == self.optuna.trial.TrialState.COMPLETE]
        return max(finished, key=lambda one: (one.value, -one.number), default=None)

    def importance(self) -> dict[str, float]:
        """How much each setting decides about the value, most important first; empty with too few trials."""
        evaluator = self.optuna.importance.PedAnovaImportanceEvaluator()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = self.optuna.importance.get_param_importances(self.study, evaluator=evaluator)
        except (ValueError, RuntimeError):
            return {}
        return {name: float(value) for name, value in found.items()}

    def settings(self, stored: Any) -> dict[str, Any]:
        """The settings of a stored trial, as plain values."""
        space: Mapping[str, Dimension] = self.file.space
        return {name: _plain(space[name], value) for name, value in stored.params.items() if name in space}


def _suggest(trial: Any, name: str, dimension: Dimension) -> Any:
    if dimension.choices:
        return _plain(dimension, trial.suggest_categorical(name, [_key(one) for one in dimension.choices]))
    low, high = dimension.bounds
    if dimension.integer:
        return trial.suggest_int(name, int(low), int(high), log=dimension.log)
    return trial.suggest_float(name, low, high, log=dimension.log)


def _key(choice: Any) -> Any:
    """A choice as Optuna stores it: lists and mappings as JSON."""
    return json.dumps(choice) if isinstance(choice, (list, tuple, dict)) else choice


def _plain(dimension: Dimension, stored: Any) -> Any:
    return next((one for one in dimension.choices if _key(one) == stored), stored)


def _drop_incomplete_line(journal: Path) -> None:
    """Cut a line that a kill left incomplete: the next one would be appended to it."""
    if not journal.exists():
        return
    data = journal.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        with journal.open("rb+") as file:
            file.truncate(whole)
