"""tianshou's side of a comparison, run with an interpreter that has it:

side_tianshou.py tianshou CLASS ENV WARM_UP STRETCH [setting=value …]      (CLASS is one of MAKERS)
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from pacer import Pacer
from tianshou.algorithm import C51, IQN, REDQ, DiscreteSAC
from tianshou.algorithm.algorithm_base import Algorithm
from tianshou.algorithm.modelfree.c51 import C51Policy
from tianshou.algorithm.modelfree.discrete_sac import DiscreteSACPolicy
from tianshou.algorithm.modelfree.iqn import IQNPolicy
from tianshou.algorithm.modelfree.redq import REDQPolicy
from tianshou.algorithm.modelfree.sac import AutoAlpha
from tianshou.algorithm.optim import AdamOptimizerFactory
from tianshou.data import Collector, CollectStats, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.utils.net.common import EnsembleLinear, Net
from tianshou.utils.net.continuous import ContinuousActorProbabilistic, ContinuousCritic
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic, ImplicitQuantileNetwork
from tianshou.utils.torch_utils import policy_within_training_step

Values = dict[str, Any]
RATE = AdamOptimizerFactory(lr=3e-4)


def make_redq(env: gym.Env, values: Values) -> Algorithm:
    hidden, ensemble_size = [256, 256], values["ensemble_size"]
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
    return REDQ(
        policy=REDQPolicy(actor=actor, action_space=env.action_space),
        policy_optim=RATE,
        critic=critic,
        critic_optim=RATE,
        ensemble_size=ensemble_size,
        subset_size=values["subset_size"],
        alpha=AutoAlpha(-float(np.prod(action_shape)), 0.0, RATE),
        actor_delay=values["updates_per_step"],
    )


def features(env: gym.Env, values: Values, **more: Any) -> Net:
    return Net(state_shape=env.observation_space.shape, hidden_sizes=values["hidden_sizes"], **more)


def make_c51(env: gym.Env, values: Values) -> Algorithm:
    atoms = values["num_atoms"]
    net = features(env, values, action_shape=env.action_space.n, softmax=True, num_atoms=atoms)
    bounds = {"num_atoms": atoms, "v_min": values["v_min"], "v_max": values["v_max"]}
    policy = C51Policy(model=net, action_space=env.action_space, eps_training=0.1, **bounds)
    return C51(policy=policy, optim=RATE, target_update_freq=values["target_update_interval"])


def make_iqn(env: gym.Env, values: Values) -> Algorithm:
    net = ImplicitQuantileNetwork(preprocess_net=features(env, values), action_shape=env.action_space.n)
    samples = {"sample_size": 32, "online_sample_size": 8, "target_sample_size": 8}
    policy = IQNPolicy(model=net, action_space=env.action_space, eps_training=0.1, **samples)
    return IQN(policy=policy, optim=RATE, target_update_freq=values["target_update_interval"])


def make_discrete_sac(env: gym.Env, values: Values) -> Algorithm:
    choices = env.action_space.n
    actor = DiscreteActor(preprocess_net=features(env, values), action_shape=choices, softmax_output=False)
    critics = [DiscreteCritic(preprocess_net=features(env, values), last_size=choices) for _ in range(2)]
    return DiscreteSAC(
        policy=DiscreteSACPolicy(actor=actor, action_space=env.action_space), policy_optim=RATE, critic=critics[0],
        critic_optim=RATE, critic2=critics[1], critic2_optim=RATE, alpha=AutoAlpha(0.98 * np.log(choices), 0.0, RATE),
    )  # fmt: skip


MAKERS = {"REDQ": make_redq, "C51": make_c51, "IQN": make_iqn, "DiscreteSAC": make_discrete_sac}


def main() -> None:
    _library, algo, env_id, warm_up, stretch, *settings = sys.argv[1:]
    values = {key: json.loads(value) for key, _, value in (word.partition("=") for word in settings)}
    torch.set_num_threads(values.get("threads", len(os.sched_getaffinity(0))))
    torch.manual_seed(0)
    envs, updates = DummyVectorEnv([lambda: gym.make(env_id)]), values.setdefault("updates_per_step", 1)
    algorithm = MAKERS[algo](gym.make(env_id), values)
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
