"""Agents in Python: evaluate, predict, load, best_agent, learner, replay, set_env, run_name, workers of factories."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch

import rl_training
from rl_training.algorithms.base import Act
from rl_training.algorithms.registry import learner_class
from rl_training.core.checks import UserError
from rl_training.data.datasets.from_run import load_replay
from rl_training.run.agent import load_agent
from rl_training.run.callbacks import Callback
from rl_training.run.run import train


@pytest.fixture(scope="module")
def two_seeds(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A run of SAC with two seeds; not changed by the tests."""
    from conftest import make_quick_config

    changes = {"seeds": (3, 5), "total_timesteps": 60, "eval_interval": 20}
    config = make_quick_config("sac", tmp_path_factory.mktemp("two"), **changes)
    return rl_training.SAC(config).learn(show_progress=False)


def files_of(run_dir: Path) -> dict[str, bytes]:
    return {str(path.relative_to(run_dir)): path.read_bytes() for path in run_dir.rglob("*") if path.is_file()}


class Bonus(gym.RewardWrapper[Any, Any]):
    """Pendulum with another reward: the same spaces, other returns."""

    def reward(self, reward: Any) -> float:
        return float(reward) + 100.0


def make_bonus(**kwargs: Any) -> Any:
    return Bonus(gym.make("Pendulum-v1", **kwargs))


# --- evaluate ---------------------------------------------------------------------------------------------------------
def test_evaluate_returns_the_episodes_of_every_seed(two_seeds) -> None:
    plain = two_seeds.evaluate(3)
    assert "eval_returns" not in plain
    found = two_seeds.evaluate(3, return_episodes=True)
    assert {name: found[name] for name in plain} == plain
    assert len(found["eval_returns"]) == len(found["eval_lengths"]) == 6 and set(found["eval_lengths"]) == {50}
    assert found["eval_return_mean"] == pytest.approx(np.mean(found["eval_returns"]))
    assert found["seeds"]["5"] == pytest.approx(np.mean(found["eval_returns"][3:]))


def test_a_stochastic_evaluation_has_its_own_random_numbers(two_seeds, monkeypatch) -> None:
    greedy = two_seeds.evaluate(2, return_episodes=True)["eval_returns"]
    exploring = two_seeds.evaluate(2, deterministic=False, return_episodes=True)["eval_returns"]
    assert greedy != exploring
    assert two_seeds.evaluate(2, deterministic=False, return_episodes=True)["eval_returns"] == exploring
    two_seeds.predict([1.0, 0.0, 0.0], deterministic=False)  # other draws change nothing
    assert two_seeds.evaluate(2, deterministic=False, return_episodes=True)["eval_returns"] == exploring
    drawn, explore = [], two_seeds.learner.act_explore

    def spy(obs: Any, step: int, *rest: Any, stream: str) -> Any:
        drawn.append((stream, step))
        return explore(obs, step, *rest, stream=stream)

    monkeypatch.setattr(two_seeds.learner, "act_explore", spy)
    two_seeds.evaluate(34, deterministic=False)  # two batches of episodes, of 50 steps each
    assert len(set(drawn)) == 100 and {stream for stream, _ in drawn} == {"eval_explore"}


def test_a_stochastic_evaluation_changes_no_training(quick_config, tmp_path: Path) -> None:
    class Evaluate(Callback):
        def on_step(self, session: Any) -> None:
            if session.step == 40:
                agent = rl_training.SAC.of(session.agent, session.run_dir)
                agent.evaluate(2, deterministic=False)

    runs = []
    for hooks in ((), [Evaluate()]):
        config = quick_config("sac", tmp_path, total_timesteps=60, eval_episodes=0)
        runs.append(rl_training.SAC(config).learn(callbacks=hooks, show_progress=False).agent.parameters(0))
    assert all(torch.equal(runs[0][name], runs[1][name]) for name in runs[0])


def test_evaluate_in_another_environment(two_seeds) -> None:
    own = two_seeds.evaluate(2)["eval_return_mean"]
    assert two_seeds.evaluate(2, env=make_bonus)["eval_return_mean"] == pytest.approx(own + 5000.0)
    assert two_seeds.evaluate(2, env="Pendulum-v1")["eval_return_mean"] == own
    with pytest.raises(UserError, match=r"the agent was trained on .*, CartPole-v1 has"):
        two_seeds.evaluate(2, env="CartPole-v1")
    with pytest.raises(UserError, match="env must not be an environment"):
        two_seeds.evaluate(2, env=gym.make("Pendulum-v1"))


# --- predict ----------------------------------------------------------------------------------------------------------
def test_predict_chooses_a_seed_and_passes_a_state_through(two_seeds) -> None:
    obs = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 2.0]], np.float32)
    first, second = (two_seeds.predict(obs, seed_index=index) for index in (0, 1))
    assert first.shape == (2, 1) and not np.array_equal(first, second)
    alone = load_agent(two_seeds.run_dir / "agents" / "seed_5_final.safetensors")
    assert np.allclose(alone.predict(obs), second, atol=1e-6)
    state = {"anything": 3}
    action, after = two_seeds.predict(obs, state=state, episode_start=[True, False])
    assert np.array_equal(action, first) and after is state
    with pytest.raises(UserError, match="seed_index must be >= 0 and < 2, the number of seeds, got 2"):
        two_seeds.predict(obs, seed_index=2)
    with pytest.raises(UserError, match=r"episode_start must be one flag per row \(2\), got \(3,\)"):
        two_seeds.predict(obs, state={}, episode_start=[True, False, True])
    with pytest.raises(UserError, match="action_mask must not be given: sac does not support action masks"):
        two_seeds.predict(obs, action_mask=[[True]])


class Counting(learner_class("td3")):  # type: ignore[misc]
    """A policy whose action is the number of observations since the start of the episode, as a share of ten."""

    def initial_state(self, rows: int) -> dict[str, torch.Tensor]:
        return {"seen": torch.zeros(rows, 1)}

    def greedy(self, nets: Any, obs: torch.Tensor, state: Any) -> Act:
        seen = state["seen"] + 1
        return Act(seen / 10, state={"seen": seen})

    def explore(self, nets: Any, obs: torch.Tensor, noise: Any, amount: Any, state: Any) -> Act:
        return Act((state["seen"] + 1) / 10 + noise, state={"seen": state["seen"] + 1})


@pytest.mark.parametrize("seeds", [(0,), (0, 4)])
def test_a_recurrent_policy_gets_its_state_back(seeds: Any, quick_config, tmp_path: Path) -> None:
    from rl_training.run.agent import Agent
    from rl_training.run.evaluate import EvaluationPlan, evaluate

    trained = load_agent(train(quick_config("td3", tmp_path, total_timesteps=5), show_progress=False).run_dir)
    learner = Counting.create(trained.spec, trained.learner.settings, seeds)
    agent = Agent(trained.config, learner, trained.observation, trained.action)
    obs, one = np.zeros((2, 3), np.float32), len(seeds) - 1
    state: Any = {}
    for step in (1, 2, 3):
        action, state = agent.predict(obs, state=state, seed_index=one)
        assert np.allclose(action, 2 * step / 10)  # Pendulum's units
    assert np.allclose(agent.predict(obs), 0.2), "without a state an episode starts"
    action, state = agent.predict(obs, state=state, episode_start=[True, False])
    assert np.allclose(action, [[0.2], [0.8]]) and np.allclose(state["seen"], [[1], [4]])
    exploring, after = agent.predict(obs, deterministic=False, state=state)
    assert np.allclose(after["seen"], [[2], [5]]) and not np.allclose(exploring, [[0.4], [1.0]])
    with pytest.raises(UserError, match=r"state: seen must be of shape \(2, 1\), got \(3, 1\)"):
        agent.predict(obs, state={"seen": np.zeros((3, 1))})
    with pytest.raises(UserError, match="state must be a mapping with seen, got sen"):
        agent.predict(obs, state={"sen": 1})
    with pytest.raises(UserError, match="state must be a mapping with seen, got seen, sen"):
        agent.predict(obs, state={**state, "sen": 1})
    for wrong in (np.nan, 1e39):
        with pytest.raises(UserError, match="state: seen must be finite, got NaN or infinity"):
            agent.predict(obs, state={"seen": [[wrong], [0]]})

    actions: list[float] = []

    class Watched(gym.Env[Any, Any]):
        observation_space, action_space = trained.observation.space, trained.action.space

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            self.steps = 0
            return np.zeros(3, np.float32), {}

        def step(self, action: Any) -> Any:
            actions.append(float(action[0]))
            self.steps += 1
            return np.zeros(3, np.float32), 0.0, self.steps == 4, False, {}

        def render(self) -> Any:
            return np.zeros((8, 8, 3), np.uint8)

    from rl_training.data.datasets.generate import record_policy
    from rl_training.envs.host.episode_bound import EpisodeBound
    from rl_training.envs.host.factory import EnvSource
    from rl_training.run.artifacts import record_video

    source = EnvSource("<w>", {}, lambda render_mode=None: Watched(), restore="replay")
    evaluate(Counting.create(trained.spec, learner.settings, [0]), EvaluationPlan(source, 1), 0)
    assert actions == pytest.approx([0.2, 0.4, 0.6, 0.8])
    actions.clear()
    record_video(agent, source, tmp_path / "x.gif", 2)
    assert actions == pytest.approx([0.2, 0.4, 0.6, 0.8] * 2), "two episodes in a video"
    for limit in (4, 3):  # a terminal state, and an episode that is cut
        data = record_policy(agent, source, 7, seed=0, bound=EpisodeBound(override=limit))
        assert data.actions[:, 0] == pytest.approx([2 * (step % limit + 1) / 10 for step in range(7)])


# --- load, best_agent, learner, replay --------------------------------------------------------------------------------
def test_load_gives_the_class_of_any_agent(two_seeds, finished_run, tmp_path: Path) -> None:
    run_dir = two_seeds.run_dir
    for path in (run_dir, run_dir / "checkpoints", two_seeds.checkpoint_path):
        loaded = rl_training.load(path)
        assert type(loaded) is rl_training.SAC and loaded.run_dir == run_dir and loaded.agent.step == 60
    file = rl_training.load(run_dir / "agents" / "seed_5_final.safetensors", gamma=0.5)
    assert type(file) is rl_training.SAC and file.config.algo_kwargs["gamma"] == 0.5 and file.run_dir is None
    assert type(rl_training.load(finished_run("iql").run_dir)) is rl_training.IQL
    with pytest.raises(UserError, match=f"{run_dir}: holds a sac agent, not td3"):
        rl_training.TD3.load(run_dir)
    (tmp_path / "x").write_text("no agent")
    with pytest.raises(UserError, match="not a rl_training agent or checkpoint"):
        rl_training.load(tmp_path / "x")
    bonus = rl_training.load(run_dir, env=make_bonus)
    assert bonus.evaluate(1)["eval_return_mean"] > two_seeds.evaluate(1)["eval_return_mean"] + 4000


def test_the_best_agent_is_the_file_of_the_best_evaluation(two_seeds) -> None:
    rows = [json.loads(line) for line in (two_seeds.run_dir / "evaluations.jsonl").read_text().splitlines()]
    best = max(rows, key=lambda row: np.mean(row["returns"]))
    agent = two_seeds.best_agent
    assert type(agent) is rl_training.SAC and agent.config.seed == best["seed"] and agent.agent.step == best["step"]
    file = two_seeds.run_dir / "agents" / f"seed_{best['seed']}_best.safetensors"
    assert agent.agent.file == file.read_bytes() and agent.evaluate(1)["eval_episodes"] == 1
    with pytest.raises(UserError, match="an agent file has no best agent; load its run instead"):
        _ = agent.best_agent
    with pytest.raises(UserError, match="an agent file has no replay; load its run instead"):
        _ = agent.replay


def test_a_run_without_evaluations_has_no_best_agent(quick_config, tmp_path: Path) -> None:
    agent = rl_training.DQN(quick_config("dqn", tmp_path, total_timesteps=10, eval_episodes=0))
    with pytest.raises(UserError, match="best_agent needs a trained agent"):
        _ = agent.best_agent
    with pytest.raises(UserError, match="there is no best agent, since the run has no evaluation so far"):
        _ = agent.learn(show_progress=False).best_agent


@pytest.mark.parametrize("algo", ["rainbow_dqn", "sac"])
def test_the_replay_is_that_of_the_run(algo: str, quick_config, tmp_path: Path) -> None:
    """The ring has wrapped; priorities come with it. It is a copy: changing it changes no later training."""
    seen: dict[str, Any] = {}

    class Keep(Callback):
        def on_end(self, session: Any) -> None:
            replay = session.replay
            seen.update(replay.read(replay.oldest(), replay.added))
            seen["learner"] = {name: tensor.clone() for name, tensor in session.learner.state_dict().items()}
            if replay.priorities is not None:
                places = replay.places(replay.oldest(), replay.added)
                seen["leaves"] = replay.priorities.state(places)["priorities"].clone()

    agent = rl_training.api.managed_class(algo)(quick_config(algo, tmp_path))
    agent.learn(callbacks=Keep(), show_progress=False)
    replay = agent.replay
    assert agent.replay is replay and (replay.size, replay.added) == (64, 120)
    found = replay.read(replay.oldest(), replay.added)
    assert all(torch.equal(found[name], seen[name]) for name in found)
    if "leaves" in seen:
        places = replay.places(replay.oldest(), replay.added)
        assert torch.equal(replay.priorities.state(places)["priorities"], seen["leaves"])
    state = agent.learner.state_dict()
    assert all(torch.equal(state[name], seen["learner"][name]) for name in state)
    rows = load_replay(agent.run_dir)
    assert np.array_equal(rows.rewards, found["rewards"][0].numpy())
    before = files_of(agent.run_dir)
    replay.storage["rewards"].fill_(9.0)
    assert files_of(agent.run_dir) == before
    again = agent.learn(10, show_progress=False).replay
    assert again is not replay and again.added == 130 and not (again.storage["rewards"] == 9.0).any()


def test_the_replay_of_images_and_of_a_dataset(quick_config, tmp_path: Path, finished_run) -> None:
    agent = rl_training.DrQ(quick_config("drq", tmp_path, total_timesteps=40)).learn(show_progress=False)
    batch = agent.replay.gather(torch.tensor([[3, 7]]))
    assert agent.replay.size == 40 and batch["obs"].shape == (1, 2, *agent.agent.spec.observation.shape)
    offline = rl_training.load(finished_run("iql").run_dir)
    with pytest.raises(UserError, match="there is no replay, since iql has learned from a dataset alone"):
        _ = offline.replay
    assert offline.learner.update_count == 120


# --- set_env ----------------------------------------------------------------------------------------------------------
def test_set_env_for_learning_and_evaluating(quick_config, tmp_path: Path) -> None:
    agent = rl_training.SAC(quick_config("sac", tmp_path, total_timesteps=40, eval_episodes=0))
    agent.set_env(make_bonus)  # before the first run
    agent.learn(show_progress=False)
    assert agent.config.env_id == "<make_bonus>" and agent.replay.read(0, 40)["rewards"].min() > 50
    agent.set_env("Pendulum-v1")
    assert agent.evaluate(1)["eval_return_mean"] < 0
    agent.learn(20, show_progress=False)
    assert (agent.replay.read(40, 60)["rewards"] < 0).all() and agent.config.env_id == "Pendulum-v1"
    record = json.loads((agent.run_dir / "run.json").read_text())
    assert record["resume"] == "inexact"
    assert record["resume_note"] == "its environment has changed: <make_bonus> -> Pendulum-v1"
    agent.set_env(make_bonus)
    agent.learn(5, show_progress=False)
    assert agent.config.env_id == "<make_bonus>" and (agent.replay.read(60, 65)["rewards"] > 50).all()
    agent.set_env("Pendulum-v1")
    with pytest.raises(UserError, match=r"the agent was trained on .*, CartPole-v1 has"):
        agent.set_env("CartPole-v1")
    with pytest.raises(UserError, match="env must not be an environment"):
        agent.set_env(gym.make("Pendulum-v1"))
    assert agent.env_id == "Pendulum-v1" and agent.evaluate(1)["eval_return_mean"] < 0


# --- run names --------------------------------------------------------------------------------------------------------
def test_a_run_is_named(quick_config, tmp_path: Path) -> None:
    changes = {"total_timesteps": 5, "eval_episodes": 0, "run_name": "walk.2"}
    first, second = (train(quick_config("dqn", tmp_path, **changes), show_progress=False) for _ in range(2))
    assert [one.run_dir.name for one in (first, second)] == ["walk.2", "walk.2-2"]
    suffixed = train(quick_config("dqn", tmp_path, **changes), "a", show_progress=False)
    assert suffixed.run_dir.name == "walk.2-a"
    file = first.run_dir / "agents" / "seed_0_final.safetensors"
    new = rl_training.load(file, output_dir=tmp_path / "new").learn(show_progress=False)
    assert new.run_dir.name == "dqn-CartPole-v1-seed0", "the name is the run's, not the agent's"
    for wrong in ("", "a/b", "..", "-x", ".x", "a b", "x" * 201):
        with pytest.raises(UserError, match="run_name must be a name of at most 200 letters"):
            quick_config("dqn", tmp_path, run_name=wrong)


# --- workers ----------------------------------------------------------------------------------------------------------
def test_a_factory_is_sent_to_workers_where_they_are_given(quick_config, tmp_path: Path, monkeypatch) -> None:
    """With the same results: the runs differ in their plan alone."""
    length = 7  # a lambda with a value of its own goes by value

    def made(**kwargs: Any) -> Any:
        return gym.wrappers.TimeLimit(gym.make("CartPole-v1", **kwargs), length)

    runs, notes = {}, {}

    class Keep(Callback):
        def on_start(self, session: Any) -> None:
            stepper = session.envs.rows.stepper
            notes[session.config.workers] = (type(stepper).__name__, session.envs.note)

    for workers in (None, 0, 2):
        (tmp_path / str(workers)).mkdir()
        monkeypatch.chdir(tmp_path / str(workers))
        config = quick_config("dqn", Path("runs"), num_envs=4, total_timesteps=60, workers=workers)
        factory = {"env_factory": made, "show_progress": False}
        runs[workers] = train(config, None, [Keep()], **factory)
    assert notes == {None: ("LocalStepper", None), 0: ("LocalStepper", None), 2: ("WorkerStepper", None)}
    one, two = (load_agent(runs[workers].run_dir).parameters(0) for workers in (0, 2))
    assert all(torch.equal(one[name], two[name]) for name in one)
    logs = [(runs[workers].run_dir / "evaluations.jsonl").read_text() for workers in (None, 0, 2)]
    assert logs[0] == logs[1] == logs[2] and set(json.loads(logs[0].splitlines()[-1])["lengths"]) == {7}


def test_a_factory_that_cannot_be_sent_runs_here_with_one_line(quick_config, tmp_path: Path, capsys) -> None:
    lock = threading.Lock()

    def made(**kwargs: Any) -> Any:
        with lock:
            return gym.make("CartPole-v1", **kwargs)

    config = quick_config("dqn", tmp_path, num_envs=4, total_timesteps=8, workers=2, eval_episodes=0)
    train(config, env_factory=made)
    text = capsys.readouterr().err
    assert "runs in this process, without workers: its factory cannot be sent to a worker process: TypeError" in text
