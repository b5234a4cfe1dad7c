"""Study files: what they expand to, which names their runs get, and every problem at its line."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from rl_training.algorithms.registry import algorithm_names, learner_class
from rl_training.config.fields import parse
from rl_training.config.yaml_loading import dump_yaml
from rl_training.core.assets import packaged_configs
from rl_training.core.checks import ConfigError, UserError
from rl_training.run.loading import load_config
from rl_training.run.validate import setting_names
from rl_training.studies.planned_runs import PlannedRun, choice_config
from rl_training.studies.search import SEARCH, packaged_space
from rl_training.studies.space import parse_space
from rl_training.studies.study_file import StudyFile
from rl_training.studies.sweep import plan_sweep
from rl_training.studies.tune_file import load_tune
from rl_training.studies.variants import Choice

BASE = """
algorithms: [dqn, qr_dqn]
environments: [CartPole-v1]
seeds: 0-3
config: {total_timesteps: 500}
"""


def plan(text: str, tmp_path: Path) -> list[PlannedRun]:
    file = tmp_path / "study.yaml"
    file.write_text(text)
    return plan_sweep(file).runs


def changes(runs: list[PlannedRun]) -> list[tuple[str, dict[str, object]]]:
    return [(run.config.algo, dict(run.changes)) for run in runs]


def test_blocks_multiply_and_conditions_limit_them(tmp_path: Path) -> None:
    text = (
        BASE
        + """
overrides:
  - grid: {gamma: [0.9, 0.99]}
  - list: [{num_quantiles: 7, kappa: 0.5}, {num_quantiles: 9}]
    only: {algo: qr_dqn}
  - grid: {batch_size: [8, 16]}
    only: {gamma: 0.9, algo: dqn}
exclude:
  - {algo: qr_dqn, gamma: 0.99, num_quantiles: 9}
"""
    )
    runs = plan(text, tmp_path)
    assert changes(runs) == [
        ("dqn", {"gamma": 0.9, "batch_size": 8}),
        ("dqn", {"gamma": 0.9, "batch_size": 16}),
        ("dqn", {"gamma": 0.99}),
        ("qr_dqn", {"gamma": 0.9, "num_quantiles": 7, "kappa": 0.5}),
        ("qr_dqn", {"gamma": 0.9, "num_quantiles": 9}),
        ("qr_dqn", {"gamma": 0.99, "num_quantiles": 7, "kappa": 0.5}),
    ]
    assert runs[1].config.algo_kwargs["batch_size"] == 16
    assert all(run.config.seeds == (0, 1, 2, 3) and run.config.total_timesteps == 500 for run in runs)
    assert all(run.config.run_name == run.name for run in runs)


def test_random_draws_do_not_change_when_the_study_grows(tmp_path: Path) -> None:
    values = "learning_rate: {low: 1e-5, high: 1e-2, log: true}"
    text = BASE + "overrides: [{random: {count: %d, seed: 3, values: {%s}}}]"
    few = changes(plan(text % (2, values), tmp_path))
    more = changes(plan(text % (3, values + ", batch_size: [8, 16]"), tmp_path))
    rates = [[one["learning_rate"] for algo, one in found if algo == "dqn"] for found in (few, more)]
    assert rates[0] == rates[1][:2] and len(set(rates[1])) == 3
    assert all(1e-5 <= rate <= 1e-2 for rate in rates[1])
    other = changes(plan((text % (2, values)).replace("seed: 3", "seed: 4"), tmp_path))
    assert other != few


def test_a_part_keeps_its_name_while_its_config_is_the_same(tmp_path: Path) -> None:
    grid = "overrides: [{grid: {gamma: [%s]}}]"
    before = {run.name for run in plan(BASE + grid % "0.9, 0.99", tmp_path)}
    after = {run.name for run in plan(BASE + grid % "0.99, 0.999", tmp_path)}
    assert len(before & after) == 2, "gamma 0.99 of both algorithms"
    longer = {run.name for run in plan(BASE.replace("500", "501") + grid % "0.9, 0.99", tmp_path)}
    assert not before & longer


def test_seeds_are_split_over_runs(tmp_path: Path) -> None:
    runs = plan(BASE + "seeds_per_run: 3", tmp_path)
    assert [run.config.seeds for run in runs] == [(0, 1, 2), (3,)] * 2


def test_the_packaged_config_is_the_start(tmp_path: Path) -> None:
    text = "algorithms: [ppo]\nenvironments: [Pendulum-v1]\nconfig: {algo_kwargs: {gamma: 0.95}}"
    (run,) = plan(text, tmp_path)
    assert run.config.algo_kwargs["rollout_steps"] == 1024 and run.config.algo_kwargs["gamma"] == 0.95


def test_all_problems_are_reported_with_their_lines(tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(
        "algorithms: [dqn, sacc]\n"
        "environments: [CartPole-v1]\n"
        "sed: 3\n"
        "config:\n"
        "  total_timestep: 400\n"
        "  run_name: x\n"
        "overrides:\n"
        "  - grid: {gama: [0.9, 0.99]}\n"
        "  - list: [{num_quantiles: 7}]\n"
        "  - random: {count: 3, values: {learning_rate: {low: 1, high: 0.1}}}\n"
        "  - grid: {batch_size: [8, 8]}\n"
    )
    with pytest.raises(ConfigError) as error:
        plan_sweep(file)
    found = [line.removeprefix(f"{file}:") for line in str(error.value).splitlines()]
    wanted = [
        ("1: algo must be one of", "got 'sacc'; did you mean sac?"),
        ("3: unknown key 'sed'", "did you mean seeds?"),
        ("6: run_name is decided by the study: see name", ""),
        ("8: unknown key 'gama'; did you mean algo_kwargs.gamma?", ""),
        ("9: unknown key 'num_quantiles'; it is a setting of other algorithms, not of dqn", "only: {algo: ...}"),
        ("10: random: learning_rate: low must be < high, got 1 and 0.1", ""),
        ("11: batch_size must be distinct values", ""),
    ]
    assert len(found) == len(wanted), found
    for line, (start, middle) in zip(found, wanted, strict=True):
        assert line.startswith(start) and middle in line, line


@pytest.mark.parametrize(
    ("extra", "problem"),
    [
        ("overrides: [{grid: {gamma: [0.9]}, only: {algos: dqn}}]", "unknown condition 'algos'; did you mean algo?"),
        ("overrides: [{grid: {gamma: [0.9]}, only: {algo: ddqn}}]", "no run has algo 'ddqn'; did you mean dqn?"),
        ("overrides: [{grid: {gamma: []}}]", "gamma must be a list of values"),
        ("overrides: [{only: {algo: dqn}}]", "overrides must be blocks with one of grid, list, random"),
        ("overrides: [{list: [{gamma: 0.9}, {gamma: 0.9}], only: {algo: dqn}}]", "the same run twice: dqn CartPole-v1"),
        ("exclude: [{env: CartPole-v1}]", "exclude must leave at least one run"),
        ("resources: {cpus: 0}", "cpus must be >= 1"),
        ("name: ../x", "name must be a name"),
        ("overrides: [{random: {count: 9999, values: {gamma: {low: 0.1, high: 0.9}}}}]", "more than 10000 runs"),
    ],
)
def test_a_bad_study_is_one_line(extra: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        plan(BASE + extra, tmp_path)
    assert len(str(error.value).splitlines()) == 1 and problem in str(error.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (BASE.replace("CartPole-v1", "my_package:Env-v0"), "an id without a module"),
        (BASE.replace("[CartPole-v1]", "[]"), "environments must be a list of at least one entry"),
        ("algorithms: [dqn]", "environments is required"),
        (BASE.replace("CartPole-v1", "Pendulum-v1"), "needs Discrete actions; Pendulum-v1 has"),
        (BASE.replace("CartPole-v1", "CartPol-v1"), "CartPol"),
    ],
)
def test_environments_are_checked_before_anything_starts(text: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        plan(text, tmp_path)
    assert problem in str(error.value)


# --- tune ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("algo", sorted(path.stem for path in SEARCH.glob("*.yaml")))
def test_packaged_search_spaces_are_valid(algo: str) -> None:
    env_id = "CartPole-v1" if algo in ("dqn", "pqn", "a2c") else "Pendulum-v1"
    study = StudyFile()
    for name, dimension in packaged_space(algo).items():
        for value in dimension.corners():
            config = choice_config(study, algo, env_id, [Choice(name, value, ())], (0,))
            assert config.algo == algo


# How many updates belong to a step, and so how long a trial takes.
PACE = ("train_frequency", "gradient_updates_per_step", "rollout_steps", "batch_size", "epochs")


@pytest.mark.parametrize("path", packaged_configs(), ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_no_trial_makes_more_than_one_update_per_step(path: Path) -> None:
    """REDQ's and DroQ's many updates are theirs: there a trial makes no more than the packaged config."""
    config = load_config(path)
    cls = learner_class(config.algo)
    if cls.name == "drqv2" or cls.offline:  # it has no packaged space; a step is an update
        return
    space = {name: one.corners() for name, one in packaged_space(config.algo).items() if name in PACE}
    steps, envs = 100_000, config.num_envs

    def updates(**drawn: Any) -> float:
        return parse(cls.settings_type, {**config.algo_kwargs, **drawn}).updates_in(steps, envs)

    start = {"learning_starts": 0} if "learning_starts" in setting_names(cls) else {}
    allowed = max(steps, updates(**start))
    for values in itertools.product(*space.values()):
        assert updates(**start, **dict(zip(space, values, strict=True))) <= allowed


def test_a_setting_in_config_is_not_searched(tmp_path: Path) -> None:
    file = tmp_path / "tune.yaml"
    study = {"algo": "dqn", "env_id": "CartPole-v1", "config": {"gamma": 0.9, "algo_kwargs": {"batch_size": 32}}}
    file.write_text(dump_yaml(study))
    assert packaged_space("dqn").keys() - load_tune(file)[0].space.keys() == {"gamma", "batch_size"}
    file.write_text(dump_yaml({**study, "search": {"batch_size": [32, 64]}}))
    with pytest.raises(ConfigError, match="batch_size is in config too"):
        load_tune(file)


def test_variants_take_the_space_of_their_parent() -> None:
    assert packaged_space("rainbow_dqn") == packaged_space("dqn")
    assert {name for name in algorithm_names() if (SEARCH / f"{name}.yaml").exists()} >= {"dqn", "ppo", "sac", "td3"}


def test_a_bad_tuning_study_reports_all_its_problems(tmp_path: Path) -> None:
    file = tmp_path / "tune.yaml"
    search = {"gamma": {"low": 0.9, "high": 1.5}, "tau": [0.1], "batch_size": {"low": 2, "high": 1}}
    file.write_text(dump_yaml({"algo": "dqn", "env_id": "CartPole-v1", "prunning": {}, "search": search}))
    with pytest.raises(ConfigError) as error:
        load_tune(file)
    found = str(error.value)
    assert "unknown key 'prunning'; did you mean pruning?" in found
    assert "batch_size: low must be < high" in found
    search["batch_size"] = {"low": 1, "high": 64}
    file.write_text(dump_yaml({"algo": "dqn", "env_id": "CartPole-v1", "search": search}))
    with pytest.raises(ConfigError) as error:
        load_tune(file)
    found = str(error.value)
    assert "gamma must be in" in found and "unknown key 'tau'" in found


def test_draws_stay_inside_their_ranges() -> None:
    import numpy as np

    space = parse_space(
        {"a": {"low": 1, "high": 3, "integer": True}, "b": {"low": 1, "high": 100, "integer": True, "log": True}}, "x"
    )
    rng = np.random.default_rng(0)
    assert {space["a"].draw(rng) for _ in range(100)} == {1, 2, 3}
    assert all(isinstance(value, int) and 1 <= value <= 100 for value in (space["b"].draw(rng) for _ in range(100)))
