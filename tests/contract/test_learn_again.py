"""`learn` again: more of the same run, a new run from an agent's weights, or a new run from fresh ones."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from conftest import one_of_a_kind
from resume_harness import compare_runs

import rl_training
from rl_training.algorithms.registry import learner_class
from rl_training.checkpoint.read import load_checkpoint
from rl_training.config.yaml_loading import load_yaml
from rl_training.core.checks import UserError
from rl_training.run.agent import load_agent
from rl_training.run.callbacks import Callback
from rl_training.run.manager import DefaultExperimentManager
from rl_training.run.resume import resume_training
from rl_training.run.run import train


def managed(algo: str, quick_config: Any, path: Path, algo_kwargs: dict[str, Any] | None = None, **changes: Any) -> Any:
    config = quick_config(algo, path, algo_kwargs, **{"total_timesteps": 60, "eval_episodes": 0, **changes})
    return getattr(rl_training, learner_class(algo).__name__)(config)


def record_of(run_dir: Path) -> dict[str, Any]:
    return json.loads((run_dir / "run.json").read_text())


def parameters(path: Path, seed_index: int = 0) -> dict[str, torch.Tensor]:
    """What the agent of a run, a checkpoint or a file has learned."""
    return {name: tensor.clone() for name, tensor in load_agent(path).parameters(seed_index).items()}


def equal(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


# --- more of the same run ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("algo", "seeds"), [("sac", ()), ("dqn", (0, 1, 2)), ("iql", ())], ids=["sac", "several seeds", "offline"]
)
def test_learn_again_is_a_resume_of_the_same_run(algo: str, seeds: Any, quick_config, tmp_path, monkeypatch) -> None:
    changes = {"total_timesteps": 60, "seeds": seeds, "eval_interval": 50, "eval_episodes": 1}
    for name in ("a", "b"):  # configs and agents hold the output directory, so it must be the same
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "a")
    expected = train(quick_config(algo, Path("runs"), **changes), show_progress=False)
    resume_training(expected.run_dir, total_timesteps=120, show_progress=False)
    monkeypatch.chdir(tmp_path / "b")
    agent = managed(algo, quick_config, Path("runs"), **changes).learn(show_progress=False)
    first = agent.run_dir
    agent.learn(60, show_progress=False)
    assert agent.run_dir == first == agent.result.run_dir and agent.result.metrics["global_step"] == 120
    assert agent.checkpoint_path == agent.result.checkpoint_path == first / "checkpoints" / "step_000000000120"
    assert compare_runs(expected.run_dir, first) == []


def test_learn_without_a_number(quick_config, tmp_path: Path) -> None:
    """Completes a run that was stopped; trains a finished one for as long as the config says."""
    agent = managed("dqn", quick_config, tmp_path)
    agent.learn(callbacks=lambda session: session.step < 25, show_progress=False)
    assert agent.result.metrics["global_step"] == 25
    assert agent.learn(show_progress=False).result.metrics["global_step"] == 60
    assert agent.learn(10, show_progress=False).result.metrics["global_step"] == 70
    assert agent.learn(show_progress=False).result.metrics["global_step"] == 130
    assert len(list(tmp_path.iterdir())) == 1
    for wrong in (0, -5, "many", 1.5):
        with pytest.raises(UserError, match="total_timesteps must be"):
            agent.learn(wrong)


def test_a_loaded_run_is_continued(quick_config, tmp_path: Path) -> None:
    run_dir = managed("sac", quick_config, tmp_path).learn(show_progress=False).run_dir
    for path, more, total in ((run_dir, 10, 70), (run_dir / "checkpoints", None, 140)):
        loaded = rl_training.SAC.load(path)
        assert loaded.run_dir == run_dir and loaded.checkpoint_path is not None
        assert loaded.learn(more, show_progress=False).result.metrics["global_step"] == total
    resumed = rl_training.SAC.load(run_dir).resume(total_timesteps=150, show_progress=False)
    assert resumed.run_dir == run_dir and resumed.result.metrics["global_step"] == 150
    older = rl_training.SAC.load(run_dir / "checkpoints" / "step_000000000140").learn(5, show_progress=False)
    assert older.result.metrics["global_step"] == 145
    assert record_of(run_dir)["started_from"] is None
    with pytest.raises(UserError, match="a run keeps its settings, got gamma; load one of its agent files"):
        rl_training.SAC.load(run_dir, gamma=0.9)


def test_a_loaded_checkpoint_has_metrics_of_its_own_step(quick_config, tmp_path: Path) -> None:
    trained = managed("dqn", quick_config, tmp_path, eval_episodes=1).learn(show_progress=False)
    for path in (trained.run_dir, trained.checkpoint_path):
        loaded = rl_training.DQN.load(path)
        assert loaded.result.metrics == trained.result.metrics and "eval_return_mean" in loaded.result.metrics
    older = trained.run_dir / "checkpoints" / "step_000000000050"
    assert rl_training.DQN.load(older).result.metrics == {"global_step": 50}
    shutil.copytree(older, tmp_path / "away" / "checkpoints" / older.name)
    assert rl_training.DQN.load(tmp_path / "away" / "checkpoints").result.metrics == {"global_step": 50}


def test_reset_starts_a_new_run_from_fresh_weights(quick_config, tmp_path: Path) -> None:
    agent = managed("sac", quick_config, tmp_path).learn(show_progress=False)
    first, weights = agent.run_dir, agent.agent.parameters(0)
    agent.learn(10, show_progress=False).learn(reset=True, show_progress=False)
    assert agent.run_dir != first and agent.result.metrics["global_step"] == 60
    assert equal(weights, agent.agent.parameters(0))  # the same config and seed are the same run
    loaded = rl_training.SAC.load(agent.save(tmp_path / "agent"), total_timesteps=60)
    loaded.learn(reset=True, show_progress=False)
    assert equal(weights, loaded.agent.parameters(0)) and record_of(loaded.run_dir)["started_from"] is None


# --- a new run from weights -------------------------------------------------------------------------------------------
FROM_WEIGHTS = ("rainbow_dqn", "sac", "td3", "iql", "drq")


@pytest.mark.parametrize("algo", one_of_a_kind("rainbow_dqn", "iql", among=FROM_WEIGHTS))
def test_a_new_run_starts_from_exactly_these_weights(algo: str, quick_config, tmp_path: Path) -> None:
    trained = managed(algo, quick_config, tmp_path / "old", seed=3).learn(show_progress=False)
    path = trained.save(tmp_path / "agent.bin")
    cls = type(trained)

    class First(Callback):
        """What the learner is before anything is learned."""

        def on_start(self, session: Any) -> bool:
            self.state = {name: tensor.clone() for name, tensor in session.learner.state_dict().items()}
            return False

    first = First()
    loaded = cls.load(path, output_dir=tmp_path / "new", seeds=(5, 6)).learn(callbacks=first, show_progress=False)
    learner = loaded.agent.learner
    for name, tensor in trained.agent.parameters(0).items():
        for index in range(2):
            assert torch.equal(first.state[f"params.{name}"][index], tensor), name
    rule = learner.target_update()
    for target, source in rule.groups.items() if rule is not None else ():
        names = [name for name in first.state if name.startswith(f"params.{target}.")]
        assert names
        for name in names:
            assert torch.equal(first.state[name], first.state[name.replace(f"params.{target}.", f"params.{source}.")])
    fresh = [tensor for name, tensor in first.state.items() if name.startswith("adam_")]
    assert fresh and not any(tensor.any() for tensor in fresh) and first.state["update_count"] == 0
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    told = {"path": str(path), "sha256": digest, "step": 60}
    assert record_of(loaded.run_dir)["started_from"] == told
    assert load_yaml(loaded.run_dir / "config.yaml").values["started_from"] == told == loaded.config.started_from
    assert (loaded.run_dir / "start.safetensors").read_bytes() == path.read_bytes()


class Kill(Callback):
    def on_step(self, session: Any) -> None:
        if session.step == 30:
            raise LookupError("as if killed")


@pytest.mark.sweep
@pytest.mark.parametrize("algo", ["sac", "td3_bc"])
def test_a_run_from_weights_that_was_cut_is_resumed_exactly(algo: str, quick_config, tmp_path: Path) -> None:
    """Before its first checkpoint it starts from the same weights again, and needs nothing outside its directory."""
    settings = {"normalize_observations": True}
    path = managed(algo, quick_config, tmp_path / "old", settings).learn(show_progress=False).save(tmp_path / "agent")
    cls = getattr(rl_training, learner_class(algo).__name__)
    whole = cls.load(path, output_dir=tmp_path / "a").learn(70, show_progress=False)
    loaded = cls.load(path, output_dir=tmp_path / "b")
    with pytest.raises(LookupError):
        loaded.learn(70, callbacks=Kill(), show_progress=False)
    assert loaded.run_dir is not None and loaded.checkpoint_path is None
    path.unlink()
    moved = tmp_path / "moved"
    loaded.run_dir.rename(moved)
    resumed = resume_training(moved, show_progress=False)
    assert resumed.metrics["global_step"] == 70
    a, b = (load_checkpoint(one) for one in (whole.checkpoint_path, resumed.checkpoint_path))
    tensors, others = (one.tensors("learner.safetensors") for one in (a, b))
    assert [name for name in tensors if not torch.equal(tensors[name], others[name])] == []
    (moved / "start.safetensors").write_bytes(b"\0" * 99)
    shutil.rmtree(moved / "checkpoints")
    (moved / "run.json").write_text(json.dumps({**record_of(moved), "status": "running"}))
    with pytest.raises(UserError, match=r"start\.safetensors"):
        resume_training(moved, show_progress=False)


def test_a_run_from_weights_copied_before_its_first_checkpoint(quick_config, tmp_path: Path) -> None:
    path = managed("dqn", quick_config, tmp_path / "old").learn(show_progress=False).save(tmp_path / "agent")
    whole = rl_training.DQN.load(path, output_dir=tmp_path / "whole").learn(70, show_progress=False)
    cut = rl_training.DQN.load(path, output_dir=tmp_path / "cut")
    with pytest.raises(LookupError):
        cut.learn(70, callbacks=Kill(), show_progress=False)
    copied = resume_training(cut.run_dir, output_dir=tmp_path / "copy", show_progress=False)
    assert equal(parameters(whole.run_dir), parameters(copied.run_dir))
    assert cut.learn(show_progress=False).result.metrics["global_step"] == 70
    assert equal(parameters(whole.run_dir), parameters(cut.run_dir))


def test_other_weights_in_the_run_are_noticed(quick_config, tmp_path: Path) -> None:
    """An agent file that is whole, and not the one that the run started from."""
    first = managed("dqn", quick_config, tmp_path / "old").learn(show_progress=False)
    path, other = first.save(tmp_path / "agent"), first.learn(5, show_progress=False).save(tmp_path / "other")
    loaded = rl_training.DQN.load(path, output_dir=tmp_path / "new")
    with pytest.raises(LookupError):
        loaded.learn(70, callbacks=Kill(), show_progress=False)
    shutil.copy(other, loaded.run_dir / "start.safetensors")
    with pytest.raises(UserError, match=r"start.safetensors: damaged \(sha256\)"):
        loaded.learn(show_progress=False)


def test_the_weights_act_from_the_first_step_and_settings_may_change(quick_config, tmp_path: Path) -> None:
    trained = managed("sac", quick_config, tmp_path / "old").learn(show_progress=False)
    path = trained.save(tmp_path / "agent")
    actions: list[np.ndarray] = []

    def keep(session: Any) -> None:
        actions.append(session.replay.read(session.replay.added - 1, session.replay.added)["actions"].clone())

    changed = {"learning_starts": 50, "alpha": 0.25, "output_dir": tmp_path / "new", "total_timesteps": 20}
    loaded = rl_training.SAC.load(path, **changed).learn(callbacks=keep, show_progress=False)
    assert loaded.config.algo_kwargs["learning_starts"] == 50 and loaded.agent.learner.alpha == pytest.approx(0.25)
    env = gym.make("Pendulum-v1", max_episode_steps=50)
    from rl_training.core.rng import episode_seed

    obs, _ = env.reset(seed=episode_seed(0, "episode", 0, 0))
    shown = torch.from_numpy(obs[None, None].astype(np.float32))
    expected = load_agent(path).learner.act_explore(shown, 0, 0.0).action
    assert torch.equal(actions[0].reshape(-1), expected.reshape(-1))


@pytest.mark.sweep
def test_a_new_run_from_a_file_evaluates_ten_times_unless_told(quick_config, tmp_path: Path) -> None:
    trained = managed("dqn", quick_config, tmp_path / "old", eval_interval=None).learn(show_progress=False)
    path = trained.save(tmp_path / "agent")
    assert trained.agent.config.eval_interval == 6
    loaded = rl_training.DQN.load(path, output_dir=tmp_path / "new").learn(200, show_progress=False)
    assert loaded.config.eval_interval == 20
    told = rl_training.DQN.load(path, output_dir=tmp_path / "told", eval_interval=15).learn(200, show_progress=False)
    assert told.config.eval_interval == 15
    assert rl_training.DQN.load(trained.run_dir).learn(5, show_progress=False).config.eval_interval == 6


def test_running_statistics_of_observations_are_continued(quick_config, tmp_path: Path) -> None:
    settings = {"normalize_observations": True}
    trained = managed("sac", quick_config, tmp_path / "old", settings).learn(show_progress=False)
    before, path = trained.agent.learner.normalizer, trained.save(tmp_path / "agent")
    read = load_agent(path).learner.normalizer
    assert np.allclose(read.mean, before.mean, atol=1e-6) and np.allclose(read.squares, before.squares, rtol=1e-4)
    for seen in (60, 80):  # and of a run that itself started from weights
        loaded = rl_training.SAC.load(path, output_dir=tmp_path / "new")
        assert loaded.agent.learner.normalizer.count == seen
        assert loaded.learn(20, show_progress=False).agent.learner.normalizer.count == seen + 20
        path = loaded.save(tmp_path / f"again{seen}")


def test_what_does_not_fit_is_rejected_before_a_run_is_made(quick_config, tmp_path: Path) -> None:
    trained = managed("sac", quick_config, tmp_path / "old").learn(show_progress=False)
    path, out = trained.save(tmp_path / "agent"), tmp_path / "new"
    cases = [
        ({"hidden_sizes": (8,)}, r"agent: its networks are not those of this run: \S+ is \(.*\), here it is"),
        ({"env_id": "MountainCarContinuous-v0", "env_kwargs": {}}, "the agent was trained on observations of shape"),
        ({"gama": 0.9}, r"unknown key 'gama'; did you mean gamma\?"),
    ]
    for changes, message in cases:
        with pytest.raises(UserError, match=message):
            rl_training.SAC.load(path, output_dir=out, **changes).learn(show_progress=False)
    assert not out.exists()
    with pytest.raises(UserError, match=r"an agent file starts a new run with learn\(\)"):
        rl_training.SAC.load(path).resume()
    with pytest.raises(UserError, match="this agent has not been trained"):
        rl_training.SAC("Pendulum-v1").resume()


def test_a_run_config_starts_from_the_same_file_again(quick_config, tmp_path: Path) -> None:
    path = managed("dqn", quick_config, tmp_path / "old").learn(show_progress=False).save(tmp_path / "agent")
    first = rl_training.DQN.load(path, output_dir=tmp_path / "new").learn(show_progress=False)
    second = DefaultExperimentManager().setup(first.config, show_progress=False).train()
    assert second.run_dir != first.run_dir and equal(parameters(first.run_dir), parameters(second.run_dir))
    first.save(path)
    with pytest.raises(UserError, match="is another agent than the one that started_from names"):
        DefaultExperimentManager().setup(first.config, show_progress=False).train()
    with pytest.raises(
        UserError, match=r"started_from must be a mapping with the path of an agent file or a run, got \{\}"
    ):
        rl_training.TrainConfig("dqn", "CartPole-v1", started_from={})


def test_a_module_named_in_a_file_is_not_imported_by_learn(quick_config, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "learn_module.py").write_text(
        "import gymnasium\ngymnasium.register('Mine-v0', entry_point='gymnasium.envs.classic_control:CartPoleEnv')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    agent = managed("dqn", quick_config, tmp_path / "old", env_id="learn_module:Mine-v0")
    path = agent.learn(show_progress=False).save(tmp_path / "agent")
    with pytest.raises(UserError, match=r"is in a module; name it again with env_id=\.\.\."):
        rl_training.DQN.load(path).learn()
    named = rl_training.DQN.load(path, env_id="learn_module:Mine-v0", output_dir=tmp_path / "new")
    assert named.learn(20, show_progress=False).evaluate(1)["eval_episodes"] == 1


# --- stopped from outside ---------------------------------------------------------------------------------------------
def test_after_an_interrupt_the_agent_has_what_was_saved(quick_config, tmp_path: Path) -> None:
    def interrupt(session: Any) -> None:
        if session.step == 55:
            raise KeyboardInterrupt

    agent = managed("dqn", quick_config, tmp_path)
    with pytest.raises(KeyboardInterrupt):
        agent.learn(callbacks=interrupt, show_progress=False)
    assert agent.checkpoint_path.name == "step_000000000050" and agent.agent.step == 50
    assert agent.learn(show_progress=False).result.metrics["global_step"] == 60
    assert len(list(tmp_path.iterdir())) == 1
