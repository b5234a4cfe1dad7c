"""tianshou's side of a comparison, REDQ only, run with an interpreter that has it."""

from __future__ import annotations

import json
import os
import sys

import gymnasium as gym
import numpy as np
import torch
from pacer import Pacer
from tianshou.algorithm import REDQ
from tianshou.algorithm.modelfree.redq import REDQPolicy
from tianshou.algorithm.modelfree.sac import AutoAlpha
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, CollectStats, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.utils.net.common import EnsembleLinear, Net
from tianshou.utils.net.continuous import ContinuousActorProbabilistic, ContinuousCritic
from tianshou.utils.torch_utils import policy_within_training_step


def make_algorithm(env: gym.Env, ensemble_size: int, subset_size: int, updates: int) -> REDQ:
    hidden = [256, 256]
    obs_shape, action_shape = env.observation_space.shape, env.action_space.shape

    def ensemble(n_in: int, n_out: int) -> EnsembleLinear:
        return EnsembleLinear(ensemble_size, n_in, n_out)

    actor = ContinuousActorProbabilistic(
        preprocess_net=Net(state_shape=obs_shape, hidden_sizes=hidden), action_shape=action_shape, unbounded=True,
        conditioned_sigma=True,
    )  # fmt: skip
    critic_net = Net(
        state_shape=obs_shape, action_shape=action_shape, hidden_sizes=hidden, concat=True, linear_layer=ensemble
    )
    critic = ContinuousCritic(preprocess_net=critic_net, linear_layer=ensemble, flatten_input=False)
    rate = AdamOptimizerFactory(lr=3e-4)
    return REDQ(
        policy=REDQPolicy(actor=actor, action_space=env.action_space),
        policy_optim=rate,
        critic=critic,
        critic_optim=rate,
        ensemble_size=ensemble_size,
        subset_size=subset_size,
        alpha=AutoAlpha(-float(np.prod(action_shape)), 0.0, rate),
        actor_delay=updates,
    )


def main() -> None:
    _library, _algo, env_id, warm_up, stretch, *settings = sys.argv[1:]
    values = {key: json.loads(value) for key, _, value in (word.partition("=") for word in settings)}
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    torch.manual_seed(0)
    envs, updates = DummyVectorEnv([lambda: gym.make(env_id)]), values["updates_per_step"]
    algorithm = make_algorithm(gym.make(env_id), values["ensemble_size"], values["subset_size"], updates)
    buffer = VectorReplayBuffer(1_000_000, 1)
    collector = Collector[CollectStats](algorithm, envs, buffer)
    collector.reset()
    collector.collect(n_step=values["learning_starts"], random=True)
    pacer = Pacer(int(warm_up) - values["learning_starts"], int(stretch))
    while True:
        with policy_within_training_step(algorithm.policy):
            collector.collect(n_step=1)
            for _ in range(updates):
                algorithm.update(buffer, values["batch_size"])
        pacer.step()


if __name__ == "__main__":
    main()
