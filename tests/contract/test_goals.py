"""Runs with hindsight relabelling: exact resume, seeds, every algorithm that takes it, and what is rejected."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from compiler import needs_compiler
from resume_harness import whole_and_cut
from seed_harness import assert_same_bits, saved_arrays

import rl_training
from rl_training import Curriculum
from rl_training.algorithms.registry import learner_class
from rl_training.cli import load_config, main
from rl_training.config.train_config import TrainConfig
from rl_training.core.checks import UserError
from rl_training.core.specs import EnvSpec
from rl_training.data.replay.hindsight import HindsightReplay
from rl_training.envs.host.factory import EnvSource
from rl_training.envs.host.goals import Goals
from rl_training.envs.spaces import ActionCodec
from rl_training.files.run_directory import RunLock
from rl_training.run.callbacks import Callback
from rl_training.run.resume import resume_training
from rl_training.run.run import train

QUICK = {"total_timesteps": 90, "eval_episodes": 1, "eval_interval": 40, "video": False, "report": False}
SETTINGS = {"learning_starts": 20, "batch_size": 16, "hidden_sizes": [16], "buffer_capacity": 64, "her": {"n": 4}}
BITS, POINT = ("rl_training/BitFlip-v0", {"bits": 5}), ("rl_training/PointReach-v0", {"max_steps": 9})
TASKS = {"dqn": BITS, "sac": POINT, "td3": POINT, "tqc": POINT}


class StopAt(Callback):
    def __init__(self, step: int) -> None:
        self.last = step

    def on_step(self, session: Any) -> bool:
        return bool(session.step < self.last)


def run(path: Path, algo: str, callbacks: Any = (), **changes: Any) -> Any:
    settings = {**SETTINGS, **changes.pop("settings", {})}
    env_id, kwargs = TASKS[algo]
    values: dict[str, Any] = {**QUICK, "checkpoint_interval": 30, "log_interval": 30, **changes}
    config = TrainConfig(algo, env_id, output_dir=path, algo_kwargs=settings, env_kwargs=kwargs, **values)
    return train(config, callbacks=callbacks, show_progress=False)


@pytest.mark.parametrize(
    ("algo", "strategy"),
    [
        ("dqn", "future"),
        pytest.param("sac", "episode", marks=pytest.mark.sweep),
        *(pytest.param(a, "future", marks=pytest.mark.sweep) for a in TASKS),
    ],
)
def test_a_cut_run_ends_in_the_same_bits(algo: str, strategy: str, tmp_path: Path, monkeypatch: Any) -> None:
    """The ring of 64 rows is overwritten within the 90 steps of each of two environments."""
    options = {"seeds": (0, 7), "num_envs": 2, "total_timesteps": 180, "settings": {"her": {"strategy": strategy}}}
    start = partial(run, Path("runs"), algo, **options)
    assert whole_and_cut(start, 103, tmp_path, monkeypatch) == []


@pytest.mark.parametrize("algo", ["dqn", "sac"])
def test_a_seed_among_others_is_the_seed_alone(algo: str, tmp_path: Path) -> None:
    together = run(tmp_path / "together", algo, seeds=(4, 2))
    alone = run(tmp_path / "alone", algo, seeds=(2,))
    assert_same_bits(saved_arrays(together, 1), saved_arrays(alone, 0))


def test_relabelling_changes_what_is_learned_and_not_what_is_stored(tmp_path: Path) -> None:
    """Until the first update both runs act alike."""
    settings = {"learning_starts": 60, "gradient_updates_per_step": 2}
    runs = [
        saved_arrays(
            run(tmp_path / str(n), "sac", seeds=(1,), total_timesteps=61, settings={**settings, "her": her}), 0
        )
        for n, her in enumerate((None, {"n": 4}))
    ]
    for name in runs[0]:
        same = np.array_equal(runs[0][name].numpy(), runs[1][name].numpy())
        if name.startswith("replay_"):
            assert same, name
    critics = [{k: v for k, v in one.items() if k.startswith("params.critic")} for one in runs]
    assert any(not np.array_equal(critics[0][k].numpy(), critics[1][k].numpy()) for k in critics[0])


@pytest.mark.parametrize("change", [Curriculum({0: {"tolerance": 2.0}}), lambda s: s.change_environment(tolerance=2.0)])
def test_an_environment_that_changes_is_rejected(change: Any, tmp_path: Path) -> None:
    """Relabelled rewards would be those of the environment before the change."""
    with pytest.raises(UserError, match="her needs an environment that does not change"):
        run(tmp_path, "sac", change)
    run(tmp_path, "sac", change, settings={"her": None})


def test_a_rejected_run_closes_the_environment_of_the_goals(tmp_path: Path, monkeypatch: Any) -> None:
    open_ones: set[Goals] = set()
    opened, closed = Goals.__init__, Goals.close

    def opening(goals: Goals, source: EnvSource) -> None:
        opened(goals, source)
        open_ones.add(goals)

    def closing(goals: Goals) -> None:
        closed(goals)
        open_ones.remove(goals)

    monkeypatch.setattr(Goals, "__init__", opening)
    monkeypatch.setattr(Goals, "close", closing)
    stopped = run(tmp_path / "runs", "dqn", StopAt(40))
    with RunLock(stopped.run_dir), pytest.raises(UserError):
        resume_training(stopped.run_dir, show_progress=False)
    assert not open_ones
    monkeypatch.setitem(TASKS, "sac", BITS)
    with pytest.raises(UserError):  # its actions are discrete
        run(tmp_path / "runs", "sac")
    assert not open_ones


@needs_compiler
@pytest.mark.sweep
@pytest.mark.parametrize("algo", ["sac", "dqn"])
def test_a_compiled_run_agrees_within_rounding(algo: str, tmp_path: Path, monkeypatch: Any) -> None:
    runs = [run(tmp_path / mode, algo, seeds=(0, 1), compile=mode) for mode in ("off", "on")]
    eager, compiled = (saved_arrays(one, 1) for one in runs)
    group = "params.q" if algo == "dqn" else "params.critic"
    for name in (name for name in eager if name.startswith(group)):
        assert np.allclose(eager[name].numpy(), compiled[name].numpy(), atol=1e-4), name


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("mode", ["off", "on"])
@pytest.mark.parametrize("algo", TASKS)
def test_a_gpu_run_is_resumed_exactly(algo: str, mode: str, tmp_path: Path, monkeypatch: Any) -> None:
    options = {"seeds": (0, 7), "num_envs": 2, "device": "cuda", "compile": mode}
    assert whole_and_cut(partial(run, Path("runs"), algo, **options), 53, tmp_path, monkeypatch) == []


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("algo", TASKS)
def test_a_captured_update_of_a_given_batch_is_the_eager_one(algo: str, compiled: bool) -> None:
    torch.set_float32_matmul_precision("highest")
    env_id, kwargs = TASKS[algo]
    goals, cls = Goals(EnvSource(env_id, kwargs)), learner_class(algo)
    spec = EnvSpec(goals.observation.spec, ActionCodec(goals.env.action_space).spec)
    # With that eps: of a gradient that is nothing but rounding Adam would make a full step.
    rates = {"learning_rate": 1e-2, "adam_eps": 1e-2}
    settings = cls.settings_type(batch_size=16, hidden_sizes=(16,), her={"n": 4}, **rates)  # type: ignore
    rng, parameters = np.random.default_rng(0), []
    size, choices = spec.observation.size, spec.action.choices
    steps = [
        {
            "obs": rng.normal(size=(2, 1, size)), "next_obs": rng.normal(size=(2, 1, size)),
            "actions": rng.integers(choices, size=(2, 1)) if choices else rng.uniform(-1, 1, (2, 1, 2)),
            "rewards": rng.normal(size=(2, 1)), "terminated": rng.random((2, 1)) < 0.1,
            "truncated": rng.random((2, 1)) < 0.1,
        }
        for _ in range(60)
    ]  # fmt: skip
    for device in ("cpu", "cuda"):
        on_gpu = device == "cuda"
        learner = cls.create(spec, settings, (3, 4), device=device, compiled=compiled and on_gpu)
        options = {"capacity": 50, "num_envs": 1, "seeds": 2, "device": device}
        replay = HindsightReplay(spec, goals=goals, her=settings.her, **options)
        for number, step in enumerate(steps):
            replay.add(**step)
            if number >= 50:
                learner.train(replay, 2, number)
        assert learner.update_count == int(learner.engine.count_tensor) == 20
        groups = learner.engine.groups_by_seed()[1]
        parameters.append(torch.cat([one.cpu().flatten() for group in groups.values() for one in group.values()]))
    assert (parameters[0] - parameters[1]).abs().max() < 2e-3


@pytest.mark.parametrize(
    ("algo", "env_id", "settings", "message"),
    [
        ("dqn", BITS[0], {"n_step": 3}, "n_step must be 1 with her, got 3"),
        ("dqn", BITS[0], {"prioritized": True}, "prioritized must be false with her"),
        ("cql", POINT[0], {}, "her must be null for an algorithm that learns from a dataset"),
        ("sac", POINT[0], {"her": {"n": 0}}, "her.n must be >= 1, got 0"),
        ("sac", POINT[0], {"her": {"strategy": "futur"}}, "future, final, episode, got 'futur'; did you mean future?"),
        ("sac", POINT[0], {"her": {"k": 4}}, "her: unknown key 'k'"),
        ("sac", POINT[0], {"her": 4}, "her must be a mapping or null, got 4"),
        ("sac", "Pendulum-v1", {}, "the keys observation, achieved_goal, desired_goal; Pendulum-v1 has Box"),
        ("dqn", "torch/CartPole-v1", {}, "the keys observation, achieved_goal, desired_goal; torch/CartPole-v1 has"),
    ],
)
def test_what_cannot_be_relabelled_is_rejected_in_one_line(
    algo: str, env_id: str, settings: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError) as refused:
        train(
            TrainConfig(algo, env_id, output_dir=tmp_path, algo_kwargs={"her": {}, **settings}), show_progress=False
        )
    assert message in str(refused.value) and "\n" not in str(refused.value)
    assert not list(tmp_path.iterdir())


def test_the_environments_and_the_setting_are_known_by_name(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    values = ["learning_starts=20", "her.n=2", "her.strategy=final", "video=false", "report=false", "eval_episodes=2"]
    options = [part for value in values for part in ("--set", value)]
    assert main(["train", "sac", POINT[0], "--total-timesteps", "60", *options]) == 0
    run_dir = next((tmp_path / "runs").iterdir())
    resolved = load_config(run_dir / "config.yaml")
    assert resolved.algo_kwargs["her"] == {"strategy": "final", "n": 2} and resolved.algo_kwargs["gamma"] == 0.95
    agent = rl_training.SAC.load(run_dir)
    obs = {"observation": np.zeros(4), "achieved_goal": np.zeros(2), "desired_goal": np.ones(2)}
    assert agent.predict(obs).shape == (2,)
    assert agent.predict({name: np.stack([value] * 3) for name, value in obs.items()}).shape == (3, 2)


@pytest.mark.sweep
def test_flipped_bits_are_learned_with_relabelling_and_not_without(tmp_path: Path) -> None:
    """Eight bits: a solved episode returns -3 on average, a failed one -8."""
    config = load_config("configs/dqn/bitflip.yaml", output_dir=str(tmp_path), total_timesteps=3000, seeds=[0, 1])
    returns = []
    for her in ({"n": 4}, None):
        changed = {"algo_kwargs": {**config.algo_kwargs, "her": her}, "env_kwargs": {"bits": 8}}
        values = {**config.to_dict(), **changed, "video": False, "report": False}
        returns.append(train(TrainConfig(**values), show_progress=False).metrics["eval_return_mean"])
    assert returns[0] > -4.5 and returns[1] < -6
