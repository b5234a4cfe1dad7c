"""Environments whose values can be written down, and a run of any registry entry on them through the real loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import torch
from conftest import settings_of
from gymnasium import spaces

from rl_training.algorithms.actor_critic import ActorCritic
from rl_training.algorithms.base import Learner
from rl_training.algorithms.registry import learner_class
from rl_training.config.train_config import TrainConfig
from rl_training.run.callbacks import Callback
from rl_training.run.run import train
from rl_training.run.session import Session

GAMMA = 0.8
# Applied where the algorithm has a setting of that name. The tiny temperature leaves values without entropy.
SETTINGS: dict[str, Any] = {
    "actor_learning_rate": None,
    "actor_schedule": "constant",
    "alpha": 1e-3,
    "batch_size": 32,
    "bc_alpha": 100.0,  # the recorded actions, which are random, count for little
    "beta": 10.0,
    "buffer_capacity": 400,
    "cql_alpha": 1e-3,  # values without a penalty
    "critic_hidden_sizes": (16,),
    "dataset_kind": "random",
    "dataset_size": 400,
    "epochs": 4,
    "epsilon_end": 0.3,
    "gamma": GAMMA,
    "gradient_updates_per_step": 1,
    "hidden_sizes": (16,),
    "learning_rate": 1e-2,
    "learning_starts": 100,
    "normalize_observations": False,
    "normalize_rewards": False,
    "num_cql_samples": 2,
    "num_quantiles": 16,
    "reward_scale": 1.0,
    "rollout_steps": 64,
    "target_update_interval": 10,
    "tau": 0.1,
    "train_frequency": 1,
    "v_max": 10.0,
    "v_min": -10.0,
}
OWN_SETTINGS = {
    "a2c": {"rollout_steps": 8},  # one update each
    "droq": {"gradient_updates_per_step": 4},  # with layer norm, values of actions that are rarely taken come later
    # Running statistics, by which values are judged, must follow within 500 updates: they do where the networks come to
    # rest. Without any entropy the actions of a batch become equal, and batch statistics say nothing about others.
    "crossq": {"batch_norm_momentum": 0.1, "alpha": 0.02, "batch_size": 128, "learning_rate_schedule": "linear"},
    # Weights of length 1 learn slowly.
    "flashsac": {"batch_norm_momentum": 0.1, "policy_delay": 1, "gradient_updates_per_step": 2,
                 "learning_rate_schedule": "constant"},
    # RAdam's steps are small for hundreds of updates.
    "pqn": {"optimizer": "Adam", "epochs": 12, "learning_rate_schedule": "constant"},
}


class Probe(gym.Env[np.ndarray, Any]):
    """A one-number observation; subclasses say what a step gives."""

    observation_space = spaces.Box(-2, 2, (1,), np.float32)
    time_limit: ClassVar[int | None] = None

    def __init__(self, discrete: bool) -> None:
        self.discrete = discrete
        self.action_space = spaces.Discrete(2) if discrete else spaces.Box(-1, 1, (1,), np.float32)
        self.state = 0.0

    def start(self) -> float:
        return 1.0

    def outcome(self, action: Any) -> tuple[float, float, bool]:
        """Next state, reward, terminated."""
        raise NotImplementedError

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.state = self.start()
        return np.array([self.state], np.float32), {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.state, reward, terminated = self.outcome(action if self.discrete else float(action[0]))
        return np.array([self.state], np.float32), reward, terminated, False, {}


class ConstantReward(Probe):
    """One step, reward 1: Q = 1."""

    def outcome(self, action: Any) -> tuple[float, float, bool]:
        return 0.0, 1.0, True


class RewardIsObservation(Probe):
    """One step, the observation is +1 or -1 and so is the reward: Q(s) = s."""

    def start(self) -> float:
        return float(self.np_random.choice([-1.0, 1.0]))

    def outcome(self, action: Any) -> tuple[float, float, bool]:
        return 0.0, self.state, True


class DelayedReward(Probe):
    """Two steps, from 0 to 1 to the end, reward 1 at the end: Q(1) = 1, Q(0) = gamma."""

    def start(self) -> float:
        return 0.0

    def outcome(self, action: Any) -> tuple[float, float, bool]:
        return (1.0, 0.0, False) if self.state == 0 else (-1.0, 1.0, True)


class RewardIsChoice(RewardIsObservation):
    """One step; right is action 1 (discrete) or 0.5 (continuous) at +1, and action 0 or -0.5 at -1."""

    def outcome(self, action: Any) -> tuple[float, float, bool]:
        if self.discrete:
            return 0.0, float((action == 1) == (self.state > 0)), True
        return 0.0, 1.0 - (action - 0.5 * self.state) ** 2, True


class Endless(Probe):
    """Reward 1 for ever, cut off every 4 steps: Q = 1 / (1 - gamma), not the sum up to the time limit."""

    time_limit = 4

    def outcome(self, action: Any) -> tuple[float, float, bool]:
        return 1.0, 1.0, False


class Recall(Probe):
    """Three steps; only the first observation, +1 or -1, says which action pays at the last one: 1, else -1."""

    def start(self) -> float:
        self.cue, self.age = float(self.np_random.choice([-1.0, 1.0])), 0
        return self.cue

    def outcome(self, action: Any) -> tuple[float, float, bool]:
        self.age += 1
        if self.age < 3:
            return 0.0, 0.0, False
        right = (action == 1) if self.discrete else action > 0
        return 0.0, 1.0 if right == (self.cue > 0) else -1.0, True


class KeepLearner(Callback):
    learner: Learner

    def on_end(self, session: Session) -> None:
        self.learner = session.learner


def train_on(probe: type[Probe], algo: str, output_dir: Path, steps: int = 600, **changes: Any) -> Learner:
    """The learner at the end of a short run."""
    cls = learner_class(algo)

    def make() -> gym.Env[Any, Any]:
        env = probe("discrete" in cls.actions)
        return gym.wrappers.TimeLimit(env, probe.time_limit) if probe.time_limit else env

    config = TrainConfig(
        algo=algo,
        env_id=f"<{probe.__name__}>",
        total_timesteps=steps,
        output_dir=output_dir,
        device="cpu",
        eval_episodes=0,
        log_interval=steps,
        checkpoint_interval=steps,
        compile="off",
        threads=1,
        video=False,
        report=False,
        algo_kwargs=settings_of(algo, SETTINGS, OWN_SETTINGS.get(algo, {})) | changes,
    )
    keep = KeepLearner()
    train(config, callbacks=[keep], env_factory=make, show_progress=False)
    return keep.learner


@torch.no_grad()
def action_values(learner: Learner, state: float) -> torch.Tensor:
    """Q at one state for a few actions, as one vector: each discrete action, or five between -1 and 1, every critic."""
    model: Any = learner.model
    if isinstance(learner, ActorCritic):  # the value of the state, whatever the action
        return model.critic(torch.tensor([[state]]))  # type: ignore[no-any-return]
    if "discrete" in learner.actions:
        obs = torch.tensor([[state]])
        return model.action_values(obs).flatten()  # type: ignore[no-any-return]
    actions = torch.linspace(-1, 1, 5).unsqueeze(1)
    values = model.q_values(torch.full((5, 1), state), actions)
    return torch.cat([v.flatten() for v in values]) if isinstance(values, tuple) else values.flatten()


@torch.no_grad()
def remembering(learner: Learner, observations: list[float]) -> tuple[list[float], list[float]]:
    """The values and greedy actions along an episode with these observations, of a policy that has memory or not."""
    nets, state, values, actions = learner.nets(), learner.initial_states(1), [], []
    for one in observations:
        obs = torch.full((1, 1, 1), one)
        features, inner = obs[0], {name: tensor[0] for name, tensor in state.items()}
        if inner:
            features, _ = nets.memory(features, inner, torch.zeros(1, dtype=torch.bool))
        values.append(float(nets.critic(features)))
        act = learner.act_greedy(obs, state)
        actions.append(float(act.action.item()))
        state = act.state
    return values, actions


def greedy_action(learner: Learner, state: float) -> float:
    return float(learner.act_greedy(torch.full((len(learner.seeds), 1, 1), state)).action[0].item())
