"""`OptunaPruning`: what it reports to a trial of an Optuna study, and that a pruned run stops."""

from __future__ import annotations

from pathlib import Path

import pytest
from conftest import make_quick_config

from rl_training.core.checks import UserError
from rl_training.run.run import train
from rl_training.studies.objective import objective, rungs_of
from rl_training.studies.optuna_callback import OptunaPruning

optuna = pytest.importorskip("optuna")


class Strict(optuna.pruners.BasePruner):
    """Prunes every trial but the first at its second report."""

    def prune(self, study: optuna.Study, trial: optuna.trial.FrozenTrial) -> bool:
        return trial.number > 0 and len(trial.intermediate_values) == 2


def test_evaluations_are_reported_and_a_pruned_run_stops(tmp_path: Path) -> None:
    study = optuna.create_study(direction="maximize", pruner=Strict())
    runs = []

    def trained(trial: optuna.Trial) -> float:
        pruning = OptunaPruning(trial, spread_penalty=0.5)
        config = make_quick_config("dqn", tmp_path, eval_interval=30, seeds=(0, 1), total_timesteps=120)
        result = train(config, callbacks=pruning, show_progress=False)
        runs.append((result.run_dir, result.metrics["global_step"]))
        pruning.raise_if_pruned()
        assert pruning.value is not None
        return pruning.value

    study.optimize(trained, n_trials=2)
    assert [one.state.name for one in study.trials] == ["COMPLETE", "PRUNED"]
    assert [step for _, step in runs] == [120, 60]
    for one, (run_dir, _) in zip(study.trials, runs, strict=True):
        rungs = rungs_of(run_dir, 2, 0.5)
        assert one.intermediate_values == pytest.approx(dict(rungs)), "as `tune` computes them from the run's files"
    assert study.trials[0].value == study.trials[0].intermediate_values[120]


def test_it_needs_evaluations(tmp_path: Path) -> None:
    trial = optuna.create_study().ask()
    with pytest.raises(UserError, match="OptunaPruning needs evaluations"):
        train(make_quick_config("dqn", tmp_path, eval_episodes=0), callbacks=OptunaPruning(trial), show_progress=False)


def test_the_objective_is_the_interquartile_mean_less_the_spread() -> None:
    assert objective([0.0, 10.0, 20.0, 1000.0]) == 15.0
    assert objective([1.0, 3.0], spread_penalty=2.0) == 0.0
