"""The managed classes over the whole registry."""

from __future__ import annotations

from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest
from conftest import one_of_a_kind

import rl_training
from rl_training.algorithms.registry import learner_class
from rl_training.core.checks import UserError
from rl_training.envs.host.factory import EnvSource


def managed_class(algo: str):
    return getattr(rl_training, learner_class(algo).__name__)


def quick_agent(algo: str, quick_config, tmp_path: Path, env=None):
    config = quick_config(algo, tmp_path)
    keywords = {k: v for k, v in config.to_dict().items() if k not in ("algo", "env_id", "algo_kwargs")}
    return managed_class(algo)(env or config.env_id, **keywords, **config.algo_kwargs)


@pytest.mark.parametrize("algo", one_of_a_kind("rainbow_dqn", "iql", "ppo"))
def test_learn_predict_save_load_resume(algo: str, quick_config, tmp_path: Path) -> None:
    agent = quick_agent(algo, quick_config, tmp_path).learn(show_progress=False)
    assert agent.result.metrics["global_step"] == 120
    env = EnvSource(agent.config.env_id, agent.config.env_kwargs).make()
    obs, _ = env.reset(seed=1)
    one = agent.predict(obs)
    assert env.action_space.contains(one)
    assert type(one) is int if ("discrete" in learner_class(algo).actions) else one.shape == env.action_space.shape
    batch = agent.predict([obs.tolist()] * 3)
    assert np.allclose(batch[1], np.asarray(one), atol=1e-6)  # a batch rounds differently from one row
    path = agent.save(tmp_path / "deep" / "agent.bin")
    loaded = managed_class(algo).load(path)
    assert np.array_equal(np.asarray(loaded.predict(obs)), np.asarray(one))
    assert loaded.evaluate(num_episodes=2) == agent.evaluate(num_episodes=2)
    longer = agent.resume(total_timesteps=130, show_progress=False)
    assert longer.result.metrics["global_step"] == 130


@pytest.mark.parametrize("algo", one_of_a_kind("dqn", "bc"))
def test_an_environment_factory(algo: str, quick_config, tmp_path: Path) -> None:
    made = []

    def make_env(**kwargs):
        made.append(kwargs)
        return gym.make(quick_config(algo, tmp_path).env_id, **kwargs)

    agent = quick_agent(algo, quick_config, tmp_path, env=make_env).learn(show_progress=False)
    assert made and agent.config.env_id == "<make_env>"
    assert agent.evaluate(num_episodes=1)["eval_episodes"] == 1
    loaded = managed_class(algo).load(agent.save(tmp_path / "agent"))
    with pytest.raises(UserError, match="came from Python; pass it again with env="):
        loaded.evaluate(1)


@pytest.mark.sweep
@pytest.mark.parametrize("algo", one_of_a_kind())
def test_exploring_predictions_differ_and_greedy_ones_do_not(algo: str, finished_run) -> None:
    agent = managed_class(algo).load(finished_run(algo).run_dir)
    obs, _ = EnvSource(agent.config.env_id, agent.config.env_kwargs).make().reset(seed=0)
    obs = np.stack([obs] * 64)
    greedy, exploring = agent.predict(obs), agent.predict(obs, deterministic=False)
    assert (greedy == greedy[0]).all()
    assert not (exploring == exploring[0]).all()


def test_mistakes_are_told_at_construction() -> None:
    with pytest.raises(ValueError, match="gamma must be in"):
        rl_training.SAC("Pendulum-v1", gamma=1.5)
    with pytest.raises(ValueError, match=r"unknown key 'gama'; did you mean gamma\?"):
        rl_training.SAC("Pendulum-v1", gama=0.9)
    with pytest.raises(ValueError, match="total_timesteps must be >= 1"):
        rl_training.SAC("Pendulum-v1", total_timesteps=0)
    with pytest.raises(ValueError, match="algo must be sac, got 'dqn'"):
        rl_training.SAC(rl_training.TrainConfig("dqn", "CartPole-v1"))
    with pytest.raises(ValueError, match="predict needs a trained agent"):
        rl_training.SAC("Pendulum-v1").predict([0.0, 0.0, 0.0])


@pytest.mark.parametrize("wrong", [[0.0, 1.0], [[0.0] * 3], [[0.0, 0.0], [0.0]], "text", [float("nan")] * 4, []])
def test_wrong_observations_are_refused(wrong, finished_run) -> None:
    agent = rl_training.RainbowDQN.load(finished_run("rainbow_dqn").run_dir)
    with pytest.raises(ValueError, match="observation must be"):
        agent.predict(wrong)


def test_an_agent_that_training_never_evaluated_can_be(tmp_path: Path) -> None:
    agent = rl_training.DQN("CartPole-v1", total_timesteps=60, eval_episodes=0, output_dir=tmp_path)
    assert agent.learn(show_progress=False).evaluate()["eval_episodes"] == 5


def test_an_environment_instance_is_rejected_with_what_to_pass_instead() -> None:
    make = "a function that makes a new one at every call: def make_env(**kwargs): return "
    cases = (
        (gym.make("Pendulum-v1"), f"its id 'Pendulum-v1', or {make}gymnasium.make('Pendulum-v1', **kwargs)"),
        (gym.make_vec("CartPole-v1", 2), f"its id 'CartPole-v1', or {make}gymnasium.make('CartPole-v1', **kwargs)"),
        (type("Mine", (gym.Env,), {})(), f"got Mine; pass {make}Mine(**kwargs)"),
        (3, "env must be an id or a function that makes an environment, got 3"),
    )
    for wrong, message in cases:
        for reject in (rl_training.SAC, lambda env: EnvSource("Mine-v0", {}, env)):
            with pytest.raises(UserError) as refused:
                reject(wrong)
            assert str(refused.value).endswith(message) and "\n" not in str(refused.value)


def test_a_factory_that_returns_the_same_environment_is_rejected(tmp_path: Path) -> None:
    env = gym.make("Pendulum-v1")
    with pytest.raises(UserError, match="must make a new environment at every call, got the same one again"):
        rl_training.SAC(lambda: env, output_dir=tmp_path).learn()


def test_arguments_that_do_not_exist_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"SAC takes one positional argument, the environment: SAC\('Pend"):
        rl_training.SAC("MlpPolicy", "Pendulum-v1")
    with pytest.raises(UserError, match="resume must be called without 'total_timestep'; did you mean"):
        rl_training.SAC("Pendulum-v1").resume(tmp_path, total_timestep=10)
