"""PPO written plainly in eager torch, as in a file of one's own: the yardstick of `bench_on_policy.py`.

side_ppo_eager.py LIBRARY CLASS ENV WARM_UP STRETCH [setting=value …]      (the first two words are not used)
Collects in Gymnasium's SyncVectorEnv and learns with torch.optim.Adam. A truncated episode continues with the value of
its last observation.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from pacer import Pacer
from torch import Tensor, nn
from torch.distributions import Categorical, Distribution, Normal

Distribution.set_default_validate_args(False)
Rollout = dict[str, Tensor]  # (steps, environments, ...)


@dataclass(frozen=True)
class Settings:
    """Defaults: those of stable-baselines3 and CleanRL for continuous actions."""

    rollout_steps: int = 2048
    batch_size: int = 64
    epochs: int = 10
    learning_rate: float = 3e-4
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip_range: float = 0.2
    value_weight: float = 0.5
    max_grad_norm: float = 0.5
    num_envs: int = 1
    threads: int = 1


def layer(inputs: int, outputs: int, gain: float) -> nn.Linear:
    made = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(made.weight, gain)
    nn.init.zeros_(made.bias)
    return made


def mlp(inputs: int, outputs: int, gain: float) -> nn.Sequential:
    root = 2**0.5
    return nn.Sequential(
        layer(inputs, 64, root), nn.Tanh(), layer(64, 64, root), nn.Tanh(), layer(64, outputs, gain)
    )  # fmt: skip


class Policy(nn.Module):
    """A policy and its value function, two networks of 64x64 tanh."""

    def __init__(self, observations: int, actions: int, discrete: bool) -> None:
        super().__init__()
        self.actor, self.critic = mlp(observations, actions, 0.01), mlp(observations, 1, 1.0)
        self.log_std = None if discrete else nn.Parameter(torch.zeros(actions))

    def distribution(self, obs: Tensor) -> Distribution:
        out = self.actor(obs)
        return Categorical(logits=out) if self.log_std is None else Normal(out, self.log_std.exp())

    def logprob(self, distribution: Distribution, actions: Tensor) -> Tensor:
        found = distribution.log_prob(actions)
        return found if self.log_std is None else found.sum(-1)

    def value(self, obs: Tensor) -> Tensor:
        return self.critic(obs).squeeze(-1)


class PlainPPO:
    def __init__(self, observations: int, actions: int, discrete: bool, settings: Settings, device: str) -> None:
        self.policy, self.settings, self.device = Policy(observations, actions, discrete).to(device), settings, device
        self.optimizer = torch.optim.Adam(self.policy.parameters(), settings.learning_rate, eps=1e-5)

    @torch.no_grad()
    def advantages(self, rollout: Rollout, last_value: Tensor) -> Tensor:
        """Generalised advantage estimates; the reward of a truncated step has the value of what follows in it."""
        settings, values, alive = self.settings, rollout["values"], 1 - rollout["ended"]
        found, later, advantage = torch.zeros_like(values), last_value, torch.zeros_like(last_value)
        for step in reversed(range(len(values))):
            error = rollout["rewards"][step] + settings.gamma * later * alive[step] - values[step]
            advantage = error + settings.gamma * settings.gae_lambda * alive[step] * advantage
            found[step], later = advantage, values[step]
        return found

    def learn(self, rollout: Rollout, last_value: Tensor) -> None:
        advantages = self.advantages(rollout, last_value)
        columns = {**rollout, "advantages": advantages, "returns": advantages + rollout["values"]}
        flat = {name: column.flatten(0, 1) for name, column in columns.items()}
        for _ in range(self.settings.epochs):
            order = torch.randperm(len(flat["returns"]), device=self.device)
            for rows in order.split(self.settings.batch_size):
                self.update({name: column[rows] for name, column in flat.items()})

    def update(self, batch: Rollout) -> None:
        settings, distribution = self.settings, self.policy.distribution(batch["obs"])
        ratio = (self.policy.logprob(distribution, batch["actions"]) - batch["logprobs"]).exp()
        advantages = batch["advantages"]
        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
        clipped = ratio.clamp(1 - settings.clip_range, 1 + settings.clip_range)
        policy_loss = -torch.min(ratio * advantages, clipped * advantages).mean()
        value_loss = 0.5 * (self.policy.value(batch["obs"]) - batch["returns"]).square().mean()
        self.optimizer.zero_grad()
        (policy_loss + settings.value_weight * value_loss).backward()
        nn.utils.clip_grad_norm_(self.policy.parameters(), settings.max_grad_norm)
        self.optimizer.step()


class Collector:
    """Collects rollouts in CPU environments, and calls `pacer` after each of their steps."""

    def __init__(self, env_id: str, settings: Settings, pacer: Pacer) -> None:
        mode = gym.vector.AutoresetMode.SAME_STEP
        makers = [lambda: gym.make(env_id)] * settings.num_envs
        self.envs, self.settings, self.pacer = gym.vector.SyncVectorEnv(makers, autoreset_mode=mode), settings, pacer
        space = self.envs.single_action_space
        self.discrete = isinstance(space, gym.spaces.Discrete)
        self.bounds = None if self.discrete else (space.low, space.high)  # type: ignore[attr-defined]
        self.observations = int(np.prod(self.envs.single_observation_space.shape or ()))
        self.actions = int(space.n if isinstance(space, gym.spaces.Discrete) else np.prod(space.shape or ()))
        self.obs = torch.as_tensor(self.envs.reset(seed=0)[0], dtype=torch.float32)

    @torch.no_grad()
    def collect(self, policy: Policy) -> tuple[Rollout, Tensor]:
        shape = (self.settings.rollout_steps, self.settings.num_envs)
        rollout = {name: torch.zeros(shape) for name in ("rewards", "ended", "logprobs", "values")}
        rollout["obs"] = torch.zeros(*shape, self.observations)
        rollout["actions"] = torch.zeros(shape) if self.discrete else torch.zeros(*shape, self.actions)
        for step in range(shape[0]):
            distribution, values = policy.distribution(self.obs), policy.value(self.obs)
            actions = distribution.sample()
            logprobs = policy.logprob(distribution, actions)
            obs, rewards, terminated, truncated, infos = self.envs.step(self._for_envs(actions.numpy()))
            rewards = torch.as_tensor(rewards, dtype=torch.float32)
            for number in np.flatnonzero(truncated & ~terminated):
                last = torch.as_tensor(infos["final_obs"][number], dtype=torch.float32)
                rewards[number] += self.settings.gamma * policy.value(last)
            ended = torch.as_tensor(terminated | truncated)
            for name, value in (("obs", self.obs), ("actions", actions), ("rewards", rewards), ("ended", ended)):
                rollout[name][step] = value
            rollout["logprobs"][step], rollout["values"][step] = logprobs, values
            self.obs = torch.as_tensor(obs, dtype=torch.float32)
            self.pacer.step()
        return rollout, policy.value(self.obs)

    def _for_envs(self, actions: Any) -> Any:
        return actions if self.bounds is None else np.clip(actions, *self.bounds)


def main() -> None:
    _library, _algo, env_id, warm_up, stretch, *words = sys.argv[1:]
    settings = Settings(**{key: json.loads(value) for key, _, value in (word.partition("=") for word in words)})
    torch.set_num_threads(settings.threads)
    torch.manual_seed(0)
    collector = Collector(env_id, settings, Pacer(int(warm_up), int(stretch)))
    learner = PlainPPO(collector.observations, collector.actions, collector.discrete, settings, "cpu")
    while True:
        learner.learn(*collector.collect(learner.policy))


if __name__ == "__main__":
    main()
