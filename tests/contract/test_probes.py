"""Every registry entry finds the known answers of the probe environments, through the real loop."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from conftest import one_of_a_kind
from probes import (
    GAMMA,
    ConstantReward,
    DelayedReward,
    Endless,
    Probe,
    Recall,
    RewardIsChoice,
    RewardIsObservation,
    action_values,
    greedy_action,
    remembering,
    train_on,
)

from rl_training.algorithms.base import Learner
from rl_training.algorithms.registry import algorithm_names, learner_class
from rl_training.data.datasets.generate import record_policy
from rl_training.envs.host.factory import EnvSource
from rl_training.run.agent import load_agent
from rl_training.run.workflows import evaluate_agent

# A policy that is cloned from random actions has neither values nor a choice of its own.
VECTOR_ALGORITHMS = [
    name for name in algorithm_names() if name != "bc" and learner_class(name).observations != ("image",)
]
every_algorithm = pytest.mark.parametrize("algo", one_of_a_kind("dqn", "sac", "iql", "ppo", among=VECTOR_ALGORITHMS))


def assert_values(learner: Learner, state: float, expected: float, within: float) -> None:
    values = action_values(learner, state)
    torch.testing.assert_close(values, torch.full_like(values, expected), atol=within, rtol=0)


@every_algorithm
@pytest.mark.parametrize(
    ("probe", "answers"),
    [
        # The last of a delayed reward's states has a constant one, and its states are observed.
        pytest.param(ConstantReward, {1.0: 1.0}, marks=pytest.mark.sweep),
        pytest.param(RewardIsObservation, {1.0: 1.0, -1.0: -1.0}, marks=pytest.mark.sweep),
        (DelayedReward, {0.0: GAMMA, 1.0: 1.0}),
    ],
    ids=["constant reward", "reward is observation", "delayed reward"],
)
def test_values_of_episodes_that_end(
    algo: str, probe: type[Probe], answers: dict[float, float], tmp_path: Path
) -> None:
    learner = train_on(probe, algo, tmp_path)
    for state, value in answers.items():
        assert_values(learner, state, value, within=0.1)


@pytest.mark.sweep
@every_algorithm
def test_the_greedy_policy_picks_the_right_action(algo: str, tmp_path: Path) -> None:
    steps = 1500 if algo == "crossq" else 600  # its policy learns at every third update, in small steps
    learner = train_on(RewardIsChoice, algo, tmp_path, steps)
    right = {1.0: 1.0, -1.0: 0.0} if ("discrete" in learner.actions) else {1.0: 0.5, -1.0: -0.5}
    for state, action in right.items():
        assert greedy_action(learner, state) == pytest.approx(action, abs=0.2)


@every_algorithm
def test_a_time_limit_is_not_an_end(algo: str, tmp_path: Path) -> None:
    """1 / (1 - 0.8) = 5. Were every fourth step terminal, Q = 1 + 0.8 * 3/4 * Q = 2.5 would come out."""
    learner = train_on(Endless, algo, tmp_path, steps=800)
    assert_values(learner, 1.0, 1 / (1 - GAMMA), within=0.25)


# --- memory ----------------------------------------------------------------------------------------------------------
RECURRENT = {"rollout_steps": 60, "batch_size": 60, "sequence_length": 6, "epochs": 10}
memories = pytest.mark.parametrize("kind", ["lstm", pytest.param("gru", marks=pytest.mark.sweep)])


@pytest.mark.sweep
@memories
def test_an_observation_is_remembered(kind: str, tmp_path: Path) -> None:
    random = {"entropy_weight": 0.02, "learning_rate": 5e-3}  # for long enough to see what the first step is good for
    learner = train_on(
        Recall, "ppo", tmp_path, 3000, recurrent=kind, gamma=0.99, recurrent_size=16, **RECURRENT, **random
    )
    assert [remembering(learner, [cue, 0.0, 0.0])[1][-1] for cue in (-1.0, 1.0)] == [0.0, 1.0]
    for cue in (-1.0, 1.0):
        assert remembering(learner, [cue, 0.0, 0.0])[0] == pytest.approx([0.98, 0.99, 1.0], abs=0.25)
    agent, source = load_agent(next(tmp_path.iterdir())), EnvSource("<recall>", factory=lambda: Recall(discrete=True))
    data = record_policy(agent, source, 30, seed=0)
    assert evaluate_agent(agent, source, 10)["eval_return_mean"] == 1.0
    assert data.rewards.sum() == data.terminated.sum() == 10, "a recording is of the policy that is evaluated"


@pytest.mark.sweep
def test_without_memory_it_is_not(tmp_path: Path) -> None:
    """The last observation says nothing: whatever is chosen pays as often as not."""
    learner = train_on(Recall, "ppo", tmp_path, 1200, gamma=0.99, **RECURRENT)
    (before, right), (other, left) = (remembering(learner, [cue, 0.0, 0.0]) for cue in (-1.0, 1.0))
    assert right[-1] == left[-1] and before[-1] == other[-1] == pytest.approx(0.0, abs=0.4)


@pytest.mark.sweep
@memories
def test_a_time_limit_is_not_an_end_for_a_memory(kind: str, tmp_path: Path) -> None:
    learner = train_on(Endless, "ppo", tmp_path, 800, recurrent=kind, recurrent_size=16, **RECURRENT)
    assert remembering(learner, [1.0] * 4)[0] == pytest.approx([1 / (1 - GAMMA)] * 4, abs=0.25)
