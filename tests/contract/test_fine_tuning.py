"""A new run from given weights: of an agent file, a run or an agent; all of them, or named groups."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
import torch
from resume_harness import compare_runs

import rl_training
from rl_training.cli.main import main
from rl_training.core.checks import UserError
from rl_training.run.agent import load_agent
from rl_training.run.callbacks import Callback
from rl_training.run.resume import resume_training


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run of SAC with two seeds and running statistics; not changed by the tests."""
    config = make("sac", tmp_path_factory.mktemp("source"), seeds=(3, 5), eval_interval=None)
    return rl_training.SAC(config).learn(show_progress=False)


def make(algo: str, path: Path, settings: dict[str, Any] | None = None, **changes: Any) -> Any:
    from conftest import make_quick_config

    normalized = {"normalize_observations": True, **(settings or {})}
    return make_quick_config(algo, path, normalized, **{"total_timesteps": 60, "eval_episodes": 0, **changes})


class First(Callback):
    """The learner and the normaliser before anything is learned, and the number of random steps."""

    def __init__(self, go_on: bool = False) -> None:
        self.go_on = go_on

    def on_start(self, session: Any) -> bool:
        learner = session.learner
        self.seeds = [{k: v.clone() for k, v in learner.seed_parameters(i).items()} for i in range(len(learner.seeds))]
        self.count, self.mean = learner.normalizer.count, learner.normalizer.mean.clone()
        self.random_until = session.clock.random_until
        return self.go_on


def started_from(run_dir: Path) -> dict[str, Any]:
    return json.loads((run_dir / "run.json").read_text())["started_from"]


def equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor], groups: Any = None) -> bool:
    names = [name for name in a if groups is None or name.partition(".")[0] in groups]
    return bool(names) and all(torch.equal(a[name], b[name]) for name in names)


@pytest.mark.parametrize("how", ["run", "checkpoint", "agent", "managed"])
def test_each_seed_starts_from_its_own_where_the_seeds_are_equal(how: str, source, tmp_path: Path) -> None:
    given = {"run": source.run_dir, "checkpoint": str(source.checkpoint_path), "agent": source.agent, "managed": source}
    first = First()
    new = rl_training.SAC(make("sac", tmp_path, seeds=(3, 5)))
    new.learn(from_agent=given[how], callbacks=first, show_progress=False)
    for index in range(2):
        assert equal(source.agent.parameters(index), first.seeds[index])
    statistics = source.learner.normalizer
    assert first.count == statistics.count == 60 and torch.allclose(first.mean, statistics.mean, atol=1e-6)
    assert not torch.equal(first.mean[0], first.mean[1]) and first.random_until == 0
    about = started_from(new.run_dir)
    assert (about["path"], about["step"], about["seeds"]) == (str(source.checkpoint_path), 60, [3, 5])
    assert sorted(path.name for path in new.run_dir.glob("start*")) == [
        "start_seed_3.safetensors", "start_seed_5.safetensors",
    ]  # fmt: skip


@pytest.mark.parametrize("seeds", [(3,), (5, 3), (0, 1, 2)])
def test_otherwise_every_seed_starts_from_the_first(seeds: Any, source, tmp_path: Path) -> None:
    first = First()
    new = rl_training.SAC(make("sac", tmp_path, seeds=seeds))
    new.learn(from_agent=source.run_dir, callbacks=first, show_progress=False)
    assert all(equal(source.agent.parameters(0), one) for one in first.seeds) and len(first.seeds) == len(seeds)
    assert started_from(new.run_dir)["seeds"] == [3] and (new.run_dir / "start.safetensors").exists()


def test_named_groups_alone_are_taken(source, tmp_path: Path) -> None:
    """The others are fresh, the statistics come along, and the run begins with random steps as usual."""
    fresh, first = First(), First()
    rl_training.SAC(make("sac", tmp_path, seed=9)).learn(callbacks=fresh, show_progress=False)
    new = rl_training.SAC(make("sac", tmp_path, seed=9))
    new.learn(from_agent=source, from_groups=["critic"], callbacks=first, show_progress=False)
    weights = source.agent.parameters(0)
    assert equal(weights, first.seeds[0], ("critic", "normalizer")) and first.count == 60
    assert equal(fresh.seeds[0], first.seeds[0], ("actor",)) and not equal(weights, first.seeds[0], ("actor",))
    assert started_from(new.run_dir)["groups"] == ["critic"] and first.random_until == fresh.random_until == 20
    state = new.learner.engine.groups()  # targets are copies
    assert all(torch.equal(state["target_critic"][name], state["critic"][name]) for name in state["critic"])
    with pytest.raises(
        UserError, match=r"groups must be among actor, critic, temperature, got 'crtic'; did you mean cr"
    ):
        new.learn(from_agent=source, from_groups=["crtic"], show_progress=False)
    for wrong in ("actor", []):
        with pytest.raises(UserError, match="from_groups must be a list of names such as"):
            new.learn(from_agent=source, from_groups=wrong, show_progress=False)


def test_what_does_not_fit_is_rejected_in_one_line(source, tmp_path: Path) -> None:
    cases: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
        ("td3", {}, {}, r"step_000000000060: holds a sac agent, not td3"),
        ("sac", {"hidden_sizes": (8,)}, {}, r"its networks are not those of this run: \S+ is \(.*\), here it is"),
        ("sac", {"normalize_observations": False}, {}, r"normalizer\.mean is \(3,\), here it is missing"),
        ("sac", {}, {"env_id": "MountainCarContinuous-v0"}, r"was trained on .*, MountainCarContinuous-v0 has"),
    ]
    for algo, settings, changes, message in cases:
        new = rl_training.api.managed_class(algo)(make(algo, tmp_path / "runs", settings, **changes))
        with pytest.raises(UserError, match=message) as error:
            new.learn(from_agent=source, show_progress=False)
        assert "\n" not in str(error.value)
    new = rl_training.SAC(make("sac", tmp_path / "runs"))
    for wrong, message in ((3, "from_agent must be a path or a trained agent, got 3"), (new, "got None"),
                           (tmp_path / "none", "no such file or directory")):  # fmt: skip
        with pytest.raises(UserError, match=message):
            new.learn(from_agent=wrong, show_progress=False)
    for agent in (new, source):  # the second would be resumed
        with pytest.raises(UserError, match="from_groups must be left out without from_agent"):
            agent.learn(from_groups=["actor"], show_progress=False)
    with pytest.raises(UserError, match="reset must be left out with from_agent"):
        new.learn(from_agent=source, reset=True, show_progress=False)
    assert not (tmp_path / "runs").exists()


def test_sizes_of_groups_that_are_not_taken_may_differ(source, tmp_path: Path) -> None:
    new = rl_training.SAC(make("sac", tmp_path, {"num_critics": 3}))
    new.learn(5, from_agent=source, from_groups=["actor", "temperature"], show_progress=False)
    assert started_from(new.run_dir)["groups"] == ["actor", "temperature"]
    with pytest.raises(UserError, match=r"critic\.\S+ is \(2, .*\), here it is \(3, "):
        new.learn(5, from_agent=source, from_groups=["critic"], show_progress=False)


def test_another_environment_with_equal_spaces(source, tmp_path: Path) -> None:
    def heavy(**kwargs: Any) -> Any:
        env = gym.make("Pendulum-v1", **kwargs)
        env.unwrapped.m = 3.0  # type: ignore[attr-defined]
        return env

    agent = rl_training.SAC(make("sac", tmp_path))
    agent.set_env(heavy)
    assert agent.learn(30, from_agent=source, show_progress=False).config.env_id == "<heavy>"
    assert started_from(agent.run_dir)["step"] == 60


class Kill(Callback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step(self, session: Any) -> None:
        if session.step == self.step:
            raise LookupError("as if killed")


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("seeds", "groups", "step"),
    [
        ((3, 5), None, 30),
        ((0,), ["actor"], 55),
        pytest.param((3, 5), ["critic", "actor"], 55, marks=pytest.mark.sweep),
        pytest.param((0,), ["critic", "actor"], 30, marks=pytest.mark.sweep),
    ],
)
def test_a_cut_run_ends_with_the_same_bits(seeds, groups, step, source, tmp_path: Path, monkeypatch) -> None:
    """Cut before and after its first checkpoint (at 50), resumed from its directory alone."""
    runs = []
    for name in ("whole", "cut"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        agent = rl_training.SAC(make("sac", Path("runs"), seeds=seeds, total_timesteps=80, eval_episodes=1))
        options = {"from_agent": source.agent, "from_groups": groups, "show_progress": False}
        if name == "whole":
            runs.append(agent.learn(**options).run_dir)
            continue
        with pytest.raises(LookupError):
            agent.learn(callbacks=Kill(step), **options)
        runs.append(agent.run_dir)
        resume_training(agent.run_dir, show_progress=False)
    assert compare_runs(*runs) == []


def test_a_copy_of_a_cut_run_has_its_start_weights(source, tmp_path: Path) -> None:
    agent = rl_training.SAC(make("sac", tmp_path / "a", seeds=(3, 5)))
    with pytest.raises(LookupError):
        agent.learn(from_agent=source, callbacks=Kill(10), show_progress=False)
    copied = resume_training(agent.run_dir, output_dir=tmp_path / "b", show_progress=False)
    agent.learn(show_progress=False)
    assert equal(load_agent(copied.run_dir).parameters(1), agent.agent.parameters(1))
    other = rl_training.SAC(make("sac", tmp_path / "c", seeds=(3, 5)))
    with pytest.raises(LookupError):
        other.learn(from_agent=source, callbacks=Kill(10), show_progress=False)
    swapped = [other.run_dir / f"start_seed_{seed}.safetensors" for seed in (3, 5)]
    swapped[1].write_bytes(swapped[0].read_bytes())
    with pytest.raises(UserError, match=r"start_seed_3\.safetensors: damaged \(sha256\)"):
        other.learn(show_progress=False)


def test_from_the_command_line(source, tmp_path: Path, capsys) -> None:
    run, out = str(source.run_dir), str(tmp_path / "runs")
    quick = ["--quiet", "--json", "--output-dir", out, "--total-timesteps", "20"]
    assert main(["train", "--from", run, *quick, "--run-name", "tuned"]) == 0  # with the config of the run
    made = Path(json.loads(capsys.readouterr().out)["run_dir"])
    assert made.name == "tuned" and started_from(made)["seeds"] == [3, 5]
    config = load_agent(made).config
    assert config.seeds == (3, 5) and config.algo_kwargs["hidden_sizes"] == [16, 16] and config.eval_interval == 2
    file = str(source.run_dir / "agents" / "seed_5_final.safetensors")
    words = ["--from-groups", "actor, critic", "--set", "learning_rate=1e-5", "--set", "run_name=again"]
    assert main(["train", "--from", file, *words, *quick]) == 0
    made = Path(json.loads(capsys.readouterr().out)["run_dir"])
    assert started_from(made)["groups"] == ["actor", "critic"] and started_from(made)["path"] == file
    assert (made.name, load_agent(made).config.algo_kwargs["learning_rate"]) == ("again", 1e-5)
    for words, message in (
        (["sac", "Pendulum-v1", "--from", run], "its networks are not those of this run"),
        (["--from", run, "--from-groups", "policy"], "groups must be among actor, critic, temperature, got 'policy'"),
        (["--from-groups", "actor"], "--from-groups is only allowed with --from"),
        (["--from", str(tmp_path / "no")], "no such file or directory"),
        (["--from", run, "--set", "env_id=CartPole-v1", "--set", "env_kwargs={}"], "sac needs Box actions"),
    ):
        assert main(["train", *words, *quick]) == 2
        error = capsys.readouterr().err
        assert message in error and error.strip().count("\n") == 0, error


def test_an_environment_in_a_module_is_named_again(source, tmp_path: Path, capsys) -> None:
    """A config that comes from a file imports nothing."""
    from dataclasses import replace

    agent = load_agent(source.run_dir)
    agent.config = replace(agent.config, env_id="no_such_module_here:Env-v0")
    path = agent.save(tmp_path / "agent")
    assert main(["train", "--from", str(path), "--quiet"]) == 2
    assert "is in a module; name it again" in capsys.readouterr().err


def test_a_config_names_a_run(source, tmp_path: Path, capsys) -> None:
    named = {"path": str(source.run_dir), "groups": ["actor"]}
    agent = rl_training.SAC(make("sac", tmp_path, started_from=named)).learn(5, show_progress=False)
    assert started_from(agent.run_dir)["groups"] == ["actor"]
    for wrong in ({"path": "a", "groups": []}, {"path": "a", "groups": [[]]}, {"path": "a", "groups": "actor"}):
        with pytest.raises(UserError, match="started_from must be"):
            make("sac", tmp_path, started_from=wrong)


class Wide(torch.nn.Module):
    """A feature extractor of one's own."""

    def __init__(self, observation: Any) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(observation.size, 12)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        return self.layer(obs)


def test_networks_of_ones_own(tmp_path: Path) -> None:
    """The new run's own class makes the networks of the agent it starts from, also when it is resumed."""
    own = {"network": {"features": Wide}}
    trained = rl_training.SAC(make("sac", tmp_path, own)).learn(20, show_progress=False)
    first, new = First(go_on=True), rl_training.SAC(make("sac", tmp_path, own))
    with pytest.raises(LookupError):
        new.learn(from_agent=trained.run_dir, callbacks=[first, Kill(10)], show_progress=False)
    assert equal(trained.agent.parameters(0), first.seeds[0])
    assert new.learn(show_progress=False).agent.step == 60
    loaded = rl_training.load(new.run_dir, objects=own)
    assert equal(loaded.agent.parameters(0), new.agent.parameters(0))
    with pytest.raises(UserError, match="pass it with objects"):
        rl_training.SAC(make("sac", tmp_path)).learn(from_agent=trained.run_dir, show_progress=False)
