"""A callback for Optuna studies of one's own: reports every evaluation of a run, and stops a pruned one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rl_training.core.checks import UserError
from rl_training.run.callbacks import Callback
from rl_training.studies.objective import objective

if TYPE_CHECKING:
    from rl_training.run.session import Session


class OptunaPruning(Callback):
    """Reports the objective of every evaluation to an Optuna trial, and stops the run where the trial is pruned.

    `SAC("Pendulum-v1").learn(callbacks=pruning)`, then `pruning.raise_if_pruned()` and return `pruning.value`.
    """

    def __init__(self, trial: Any, spread_penalty: float = 0.0) -> None:
        self.trial, self.spread_penalty = trial, spread_penalty
        self.value: float | None = None  # of the newest evaluation
        self.pruned = False

    def on_start(self, session: Session) -> None:
        if not session.evaluates:
            raise UserError("OptunaPruning needs evaluations: an environment, and eval_episodes above 0")

    def on_evaluation(self, session: Session, metrics: dict[str, Any]) -> bool:
        self.value = objective(metrics["eval_return_means"], self.spread_penalty)
        self.trial.report(self.value, session.step)
        if session.step < session.total and self.trial.should_prune():
            self.pruned = True
            session.note(f"OptunaPruning: pruned at step {session.step} with {self.value:g}")
        return not self.pruned

    def raise_if_pruned(self) -> None:
        """Raise `optuna.TrialPruned` for a run that was stopped."""
        if self.pruned:
            import optuna

            raise optuna.TrialPruned(f"pruned with {self.value:g}")
