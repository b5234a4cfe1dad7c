"""A policy and its value function on rollouts: what PPO and A2C share."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from rl_training.algorithms.base import Act, Batch, BoundNetwork, LossResult, Metrics, Networks, Noise, NoiseSpec, Phase
from rl_training.algorithms.definition import ANY_OBSERVATION
from rl_training.algorithms.on_policy import OnPolicyLearner, Targets, flat_rows, in_pieces
from rl_training.algorithms.returns import EPSILON, gae, merged_statistics, return_scale, standardized
from rl_training.config.fields import above, at_least, closed_interval, one_of, setting
from rl_training.config.network import TanhNetworkSettings
from rl_training.config.settings import RolloutSettings
from rl_training.core.checks import require
from rl_training.core.specs import ArraySpec, EnvSpec, Kind
from rl_training.data.rollout import RolloutLayout
from rl_training.models.actor_critic import ActorCriticModel
from rl_training.models.features import network_input
from rl_training.models.memory import memory
from rl_training.tensors.observations import without_mask

State = dict[str, Tensor]


@dataclass(frozen=True)
class ActorCriticSettings(RolloutSettings):
    """Settings of a policy with a value function on rollouts."""

    hidden_sizes: tuple[int, ...] = setting((64, 64))
    network: TanhNetworkSettings = field(default_factory=TanhNetworkSettings)  # layers, and networks of one's own
    max_grad_norm: float | None = setting(0.5, above(0))
    adam_eps: float = setting(1e-5, above(0))
    gae_lambda: float = setting(0.95, closed_interval(0, 1))  # of advantages: 0 one step, 1 whole returns
    value_weight: float = setting(0.5, at_least(0))  # of the mean squared error of the value function
    entropy_weight: float = setting(0.0, at_least(0))  # of the entropy, which keeps the policy random
    normalize_advantages: str = setting("minibatch", one_of("minibatch", "batch", "off"))  # to mean 0, deviation 1
    normalize_returns: bool = setting(False)  # the value function predicts them divided by their running deviation
    shared_network: bool | None = setting(None)  # of actor and critic, but their last layers; null: with images only
    predicted_log_std: bool = setting(False)  # of Box actions: computed from the observation; else a parameter
    initial_log_std: float = setting(0.0, closed_interval(-20, 2))  # of Box actions in [-1, 1]
    recurrent: Literal["lstm", "gru"] | None = None  # memory of earlier steps in the episode
    recurrent_size: int = setting(128, at_least(1))  # numbers in the memory
    sequence_length: int = setting(16, at_least(1))  # with memory: consecutive steps of a row in a minibatch

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, value in (("rollout_steps", self.rollout_steps), ("batch_size", self.batch_size)):
            length = self.row_steps
            require(value % length == 0, name, f"a multiple of sequence_length ({length}), got {value}")

    @property
    def row_steps(self) -> int:
        return self.sequence_length if self.recurrent is not None else 1

    def shortened(self, steps: int, num_envs: int) -> RolloutSettings:
        whole = steps - steps % self.row_steps
        if whole:
            return super().shortened(whole, num_envs)
        size: dict[str, Any] = {"batch_size": steps * num_envs} if self.batch_size > 0 else {}
        return replace(self, rollout_steps=steps, sequence_length=steps, **size)


class ActorCriticNetworks(Networks):
    body: BoundNetwork[Tensor]  # obs -> features that actor and critic share
    memory: BoundNetwork[tuple[Tensor, State]]  # features, state, starts -> features, state
    actor: BoundNetwork[Tensor]  # features -> parameters of the action's distribution
    critic: BoundNetwork[Tensor]  # features -> (batch,)
    running: dict[str, Tensor]


class ActorCritic(OnPolicyLearner):
    """A policy and its value function; a subclass defines the policy's objective."""

    actions: ClassVar[tuple[Kind, ...]] = ("continuous", "discrete", "multi_discrete")
    observations: ClassVar[tuple[Kind, ...]] = ANY_OBSERVATION
    takes_masks = True
    takes_unbounded_actions = True
    settings_type: ClassVar[type[RolloutSettings]] = ActorCriticSettings
    networks_type = ActorCriticNetworks
    settings: ActorCriticSettings
    model: ActorCriticModel
    stored = ("logprobs",)
    derived = ("values", "advantages", "returns")

    @classmethod
    def build_model(cls, spec: EnvSpec, settings: Any) -> nn.Module:
        observation = spec.observation.without_mask()
        shared = settings.shared_network
        return ActorCriticModel(
            network_input(observation, settings.network),
            spec.action,
            settings.actor_layers,
            settings.critic_layers,
            shared=bool(observation.images) if shared is None else shared,
            recurrent=settings.recurrent,
            recurrent_size=settings.recurrent_size,
            predicted_log_std=settings.predicted_log_std,
            initial_log_std=settings.initial_log_std,
        )

    def modules(self, model: Any) -> dict[str, nn.Module]:
        return dict(model.groups())

    @property
    def action_spec(self) -> ArraySpec:
        return self.model.action

    def phases(self) -> tuple[Phase, ...]:
        return (Phase("policy", tuple(self.modules(self.model)), self.loss),)

    def running(self) -> dict[str, Tensor]:
        if not self.settings.normalize_returns:
            return {}
        names = ("return_count", "return_mean", "return_squares")
        return {name: torch.zeros((), dtype=torch.float64) for name in names}

    @classmethod
    def rollout_layout(cls, settings: Any) -> RolloutLayout:
        layout = super().rollout_layout(settings)
        if settings.recurrent is None:
            return layout
        return replace(layout, state=memory(settings.recurrent, 1, settings.recurrent_size).initial_state(1))

    # --- acting ------------------------------------------------------------------------------------------------------
    def initial_state(self, rows: int) -> State:
        return self.model.memory.initial_state(rows) if self.model.memory is not None else {}

    def explore_noise(self, rows: int) -> NoiseSpec:
        return NoiseSpec(*self.model.distribution.noise(rows))

    def explore(
        self, nets: ActorCriticNetworks, obs: Any, noise: Tensor, amount: Tensor, state: State | None = None
    ) -> Act:
        params, mask, state = self._act(nets, obs, state)
        actions = self.model.distribution.sample(params, noise, mask)
        logprobs = self.model.distribution.log_prob(params, actions, mask)
        return Act(actions, {"logprobs": logprobs}, state)

    def greedy(self, nets: ActorCriticNetworks, obs: Any, state: State | None = None) -> Act:
        params, mask, state = self._act(nets, obs, state)
        return Act(self.model.distribution.mode(params, mask), {}, state)

    def _act(self, nets: ActorCriticNetworks, obs: Any, state: State | None) -> tuple[Tensor, Tensor | None, State]:
        """The distribution's parameters, the action mask and the state after this step."""
        obs, mask = without_mask(self.observation, obs)
        features = nets.body(obs) if "body" in nets else obs
        after: State = {}
        if state is not None:
            starts = torch.zeros(features.shape[0], dtype=torch.bool, device=features.device)  # the caller resets it
            features, after = nets.memory(features, state, starts)
        return nets.actor(features), mask, after

    # --- learning ----------------------------------------------------------------------------------------------------
    def targets(self, nets: ActorCriticNetworks, rollout: Batch) -> Targets:
        values, next_values = self._values(nets, rollout)
        running: dict[str, Tensor] = {}
        scale = return_scale(nets.running) if self.settings.normalize_returns else torch.ones_like(values[0, 0])
        advantages = gae(rollout, values * scale, next_values * scale, self.settings.gamma, self.settings.gae_lambda)
        returns = advantages + values * scale
        if self.settings.normalize_returns:
            running = merged_statistics(nets.running, returns)
            # By which the next rollout's values are multiplied: any other would let returns grow without end.
            scale = return_scale(running)
        if self.settings.normalize_advantages == "batch":
            advantages = standardized(advantages)
        return Targets({"values": values, "advantages": advantages, "returns": returns / scale}, running)

    def _values(self, nets: ActorCriticNetworks, rollout: Batch) -> tuple[Tensor, Tensor]:
        """The values (environments, steps) of the observations and of their true successors."""
        shape = rollout["rewards"].shape
        obs, next_obs = (
            flat_rows(without_mask(self.observation, rollout[name])[0], shape) for name in ("obs", "next_obs")
        )
        size = self.observation.size
        features, successors = (in_pieces(nets.body, one, size) if "body" in nets else one for one in (obs, next_obs))
        if "memory" in nets:
            features, successors = self._remembered(nets, rollout, features, successors)
        values, next_values = (in_pieces(nets.critic, one, size).view(shape) for one in (features, successors))
        return values, next_values

    def _remembered(
        self, nets: ActorCriticNetworks, rollout: Batch, features: Tensor, successors: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The memory's output for every step, and for its successor as the next step of the same episode."""
        length = self.settings.row_steps
        by_sequence = features.view(-1, length, features.shape[-1])
        starts = rollout["starts"].reshape(-1, length)
        state = {name: rollout[f"state.{name}"].flatten(0, 1) for name in self.initial_state(1)}
        outputs, states = [], []
        for step in range(length):
            output, state = nets.memory(by_sequence[:, step], state, starts[:, step])
            outputs.append(output)
            states.append(state)
        after = {name: torch.stack([one[name] for one in states], 1).flatten(0, 1) for name in state}
        continued, _ = nets.memory(successors, after, torch.zeros_like(starts).flatten())
        return torch.stack(outputs, 1).flatten(0, 1), continued

    def loss(self, nets: ActorCriticNetworks, batch: Batch, noise: Noise) -> LossResult:
        settings, distribution, shape = self.settings, self.model.distribution, batch["returns"].shape
        obs, mask = without_mask(self.observation, batch["obs"])
        features = flat_rows(obs, shape)
        features = nets.body(features) if "body" in nets else features
        if "memory" in nets:
            state = {name: batch[f"state.{name}"] for name in self.initial_state(1)}
            features = nets.memory(features.unflatten(0, shape), state, batch["starts"])[0].flatten(0, 1)
        rows = {name: flat_rows(batch[name], shape) for name in ("actions", *self.stored, *self.derived)}
        mask = mask if mask is None else flat_rows(mask, shape)
        params, values = nets.actor(features), nets.critic(features)
        logprobs = distribution.log_prob(params, rows["actions"], mask)
        if settings.normalize_advantages == "minibatch":
            rows["advantages"] = standardized(rows["advantages"])
        entropy = distribution.entropy(params, mask).mean()
        value_loss = self.value_term(values, rows)
        policy_loss, metrics = self.policy_term(logprobs, rows)
        terms = weighted_terms(settings, policy_loss, value_loss, entropy)
        spread = rows["returns"].var(correction=0).clamp_min(EPSILON)
        explained = 1 - (rows["returns"] - rows["values"]).var(correction=0) / spread
        result = LossResult(terms["loss"], {**terms, **metrics, "explained_variance": explained})
        return self.controlled(nets, result)

    def value_term(self, values: Tensor, rows: Batch) -> Tensor:
        """The value function's loss."""
        return squared_error(values, rows)

    def policy_term(self, logprobs: Tensor, rows: Batch) -> tuple[Tensor, Metrics]:
        """The policy's loss and its own metrics."""
        raise NotImplementedError

    def controlled(self, nets: ActorCriticNetworks, result: LossResult) -> LossResult:
        """The result with what the loss decides about the step of this seed."""
        return result


def squared_error(values: Tensor, rows: Batch) -> Tensor:
    """The mean squared error of values."""
    return (values - rows["returns"]).square().mean()


def weighted_terms(settings: ActorCriticSettings, policy_loss: Tensor, value_loss: Tensor, entropy: Tensor) -> Metrics:
    """The terms of the loss and their weighted sum, `loss`."""
    loss = policy_loss + settings.value_weight * value_loss - settings.entropy_weight * entropy
    return {"loss": loss, "policy_loss": policy_loss, "value_loss": value_loss, "entropy": entropy}
