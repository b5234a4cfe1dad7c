"""PQN: Gallici et al., "Simplifying Deep Temporal Difference Learning", 2024: Q(lambda) without replay or target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from torch import Tensor, nn

from rl_training.algorithms.base import Act, Batch, BoundNetwork, LossResult, Metrics, Networks, Noise, Phase
from rl_training.algorithms.definition import ANY_OBSERVATION
from rl_training.algorithms.exploration import EpsilonGreedySettings, epsilon_greedy
from rl_training.algorithms.losses import chosen
from rl_training.algorithms.on_policy import OnPolicyLearner, Targets, flat_rows, in_pieces
from rl_training.algorithms.returns import lambda_returns
from rl_training.config.fields import above, at_least, closed_interval, setting
from rl_training.config.network import NormalizedNetworkSettings, OptimizerSettings
from rl_training.config.settings import RolloutSettings
from rl_training.core.checks import require
from rl_training.core.specs import EnvSpec, Kind
from rl_training.models.features import network_input
from rl_training.models.mlp_q_network import MLPQNetwork


@dataclass(frozen=True)
class PQNSettings(EpsilonGreedySettings, RolloutSettings):
    # Defaults: CleanRL's pqn.py, with the optimizer of its Atari version for every task.
    batch_size: int = setting(128, at_least(1))
    rollout_steps: int = setting(128, at_least(1))
    epochs: int = setting(4, at_least(1))
    hidden_sizes: tuple[int, ...] = setting((120, 84))
    learning_rate: float = setting(2.5e-4, above(0))
    # of the rate over the run; a Python function returns the rate, given the share of the run that is done
    learning_rate_schedule: Literal["constant", "linear", "cosine"] | Callable[[float], float] = "linear"
    max_grad_norm: float | None = setting(10.0, above(0))
    optimizer: OptimizerSettings = field(default_factory=lambda: OptimizerSettings("RAdam"))
    network: NormalizedNetworkSettings = field(default_factory=NormalizedNetworkSettings)  # layers, or one's own
    q_lambda: float = setting(0.65, closed_interval(0, 1))  # of returns: 0 one step, 1 whole episodes
    epsilon_end: float = setting(0.05, closed_interval(0, 1))
    exploration_fraction: float = setting(0.5, closed_interval(0, 1))

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.network.actor is None, "network.actor", "left out: there is no actor, only critic (the Q network)")


class PQNNetworks(Networks):
    q: BoundNetwork[Tensor]  # obs -> (batch, actions)


class PQN(OnPolicyLearner):
    name = "pqn"
    title = "Parallelised Q-network: Q(lambda) with layer norm, without replay or target network"
    actions = ("discrete",)
    observations: ClassVar[tuple[Kind, ...]] = ANY_OBSERVATION
    settings_type = PQNSettings
    networks_type = PQNNetworks
    settings: PQNSettings

    @classmethod
    def build_model(cls, spec: EnvSpec, settings: Any) -> nn.Module:
        inputs = network_input(spec.observation, settings.network, layer_norm=settings.network.layer_norm)
        return MLPQNetwork(inputs, spec.action.size, settings.critic_layers)

    def modules(self, model: Any) -> dict[str, nn.Module]:
        return {"q": model}

    def phases(self) -> tuple[Phase, ...]:
        return (Phase("q", ("q",), self.loss),)

    def greedy(self, nets: PQNNetworks, obs: Any) -> Act:
        return Act(nets.q(obs).argmax(-1))

    def explore(self, nets: PQNNetworks, obs: Any, noise: Tensor, amount: Tensor) -> Act:
        return Act(epsilon_greedy(self.action_spec, noise, amount, self.greedy(nets, obs).action))

    def exploration(self, progress: float) -> float:
        return self.settings.epsilon(progress)

    def targets(self, nets: PQNNetworks, rollout: Batch) -> Targets:
        shape = rollout["rewards"].shape
        best = in_pieces(nets.q, flat_rows(rollout["next_obs"], shape), self.observation.size).amax(-1).view(shape)
        return Targets({"returns": lambda_returns(rollout, best, self.settings.gamma, self.settings.q_lambda)})

    def loss(self, nets: PQNNetworks, batch: Batch, noise: Noise) -> LossResult:
        metrics = pqn_loss({"q_values": nets.q(batch["obs"]), **batch})
        return LossResult(metrics["loss"], metrics)


def pqn_loss(values: Batch) -> Metrics:
    """From `q_values` (batch, actions), `actions` and `returns`: the mean squared error."""
    q, returns = chosen(values["q_values"], values["actions"]), values["returns"]
    loss = (q - returns).square().mean()
    return {"loss": loss, "q_mean": q.mean(), "return_mean": returns.mean()}
