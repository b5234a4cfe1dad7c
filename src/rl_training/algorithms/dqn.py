"""DQN: Mnih et al., "Human-level control through deep reinforcement learning", 2015, and its extensions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from rl_training.algorithms.base import (
    Act,
    Batch,
    BoundNetwork,
    HardCopy,
    Learner,
    LossResult,
    Networks,
    Noise,
    NoiseSpec,
    Phase,
    ReplaySettings,
)
from rl_training.algorithms.definition import ANY_OBSERVATION
from rl_training.algorithms.exploration import EpsilonGreedySettings, epsilon_greedy
from rl_training.algorithms.loss_functions import dqn_loss as dqn_loss
from rl_training.algorithms.losses import chosen, huber, td_target, value_terms
from rl_training.config.fields import above, at_least, closed_interval, setting
from rl_training.config.settings import HindsightSettings
from rl_training.core.checks import require
from rl_training.core.specs import EnvSpec, Kind
from rl_training.models.features import network_input
from rl_training.models.mlp_q_network import MLPQNetwork


@dataclass(frozen=True)
class DQNSettings(EpsilonGreedySettings, ReplaySettings):
    # Defaults: RL Baselines3 Zoo's dqn.yml, LunarLander and Acrobot rows, which also solve CartPole.
    buffer_capacity: int = setting(50_000, at_least(1))
    batch_size: int = setting(128, at_least(1))
    learning_starts: int = setting(1000, at_least(0))
    train_frequency: int = setting(4, at_least(1))
    gradient_updates_per_step: int = setting(4, at_least(1))
    learning_rate: float = setting(6.3e-4, above(0))
    max_grad_norm: float | None = setting(10.0, above(0))  # clips the norm of gradients (Stable-Baselines3's default)
    target_update_interval: int = setting(250, at_least(1))  # environment steps between copies to the target network
    double: bool = setting(False)  # the online network chooses the next action (van Hasselt et al. 2016)
    dueling: bool = setting(False)  # separate value and advantages (Wang et al. 2016)
    n_step: int = setting(1, at_least(1))  # rewards in a return before it is bootstrapped
    prioritized: bool = setting(False)  # draw transitions in proportion to their errors (Schaul et al. 2016)
    prioritized_alpha: float = setting(0.6, closed_interval(0, 1))  # exponent of the priorities; 0: uniform sampling
    prioritized_beta_start: float = setting(0.4, closed_interval(0, 1))  # exponent of importance weights, 1 at the end
    noisy: bool = setting(False)  # explore by noisy weights, without epsilon (Fortunato et al. 2018)
    her: HindsightSettings | None = None  # relabel goals in hindsight (Andrychowicz et al. 2017); null: never

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.network.actor is None, "network.actor", "left out: there is no actor, only critic (the Q network)")


class DQNNetworks(Networks):
    q: BoundNetwork[Tensor]  # obs -> (batch, actions, ...)


class DQN(Learner):
    name = "dqn"
    title = "Deep Q-network, with switches for double, dueling, n-step, prioritised and noisy"
    actions = ("discrete",)
    observations: ClassVar[tuple[Kind, ...]] = ANY_OBSERVATION
    settings_type = DQNSettings
    networks_type = DQNNetworks
    settings: DQNSettings

    def __init__(self, *, q_network: nn.Module | None = None, **keywords: Any) -> None:
        model = keywords.pop("model", q_network)
        require(model is not None, "q_network", "a network, got None")
        super().__init__(model=model, **keywords)
        has_noise = getattr(self.model, "noise_size", 0) > 0
        require(has_noise or not self.settings.noisy, "noisy", "false for a network without noisy layers")

    @classmethod
    def build_model(cls, spec: EnvSpec, settings: Any) -> nn.Module:
        inputs = network_input(spec.observation, settings.network)
        return MLPQNetwork(inputs, spec.action.size, settings.critic_layers, settings.dueling, settings.noisy)

    def modules(self, model: Any) -> dict[str, nn.Module]:
        return {"q": model}

    def phases(self) -> tuple[Phase, ...]:
        return (Phase("q", ("q",), self.loss),)

    def target_update(self) -> HardCopy:
        return HardCopy({"target_q": "q"}, every=self.settings.target_update_interval)

    def noise(self, batch_size: int) -> dict[str, NoiseSpec]:
        names = ("obs", "next_obs", "chooser") if self.settings.noisy else ()
        return {name: NoiseSpec("normal", (int(self.model.noise_size),)) for name in names}

    def loss(self, nets: DQNNetworks, batch: Batch, noise: Noise) -> LossResult:
        outputs = evaluate(nets.q, batch["obs"], noise.get("obs"))
        next_outputs = evaluate(nets.target.q, batch["next_obs"], noise.get("next_obs"))
        chooser = next_outputs
        if self.settings.double:  # the online network selects the action, the target network evaluates it
            chooser = evaluate(nets.q.inference(), batch["next_obs"], noise.get("chooser"))
        best = self.action_values(chooser).argmax(-1)
        return self.td_loss(outputs, chosen(next_outputs, best), batch)

    def greedy(self, nets: DQNNetworks, obs: Tensor, noise: Tensor | None = None) -> Act:
        return Act(self.action_values(evaluate(nets.q, obs, noise)).argmax(-1))

    def explore_noise(self, rows: int) -> NoiseSpec:
        if not self.settings.noisy:
            return super().explore_noise(rows)
        return NoiseSpec("normal", (rows, int(self.model.noise_size)))

    def explore(self, nets: DQNNetworks, obs: Tensor, noise: Tensor, amount: Tensor) -> Act:
        if self.settings.noisy:
            return self.greedy(nets, obs, noise)
        return Act(epsilon_greedy(self.action_spec, noise, amount, self.greedy(nets, obs).action))

    def exploration(self, progress: float) -> float:
        return 0.0 if self.settings.noisy else self.settings.epsilon(progress)

    # --- overridden by variants ----------------------------------------------------------------------------------
    def action_values(self, outputs: Tensor) -> Tensor:
        """(batch, actions): the expected return of each action, from the network's outputs."""
        return outputs

    def td_loss(self, outputs: Tensor, next_outputs: Tensor, batch: Batch) -> LossResult:
        """The loss of the outputs (batch, actions, ...), given those of the best next action (batch, ...)."""
        q, target = chosen(outputs, batch["actions"]), td_target(batch, self.settings.gamma, next_outputs)
        metrics = value_terms(q, target, huber(q - target), batch)
        return LossResult(metrics["loss"], metrics, row_errors=q.detach() - target)


def evaluate(q: BoundNetwork[Tensor], obs: Tensor, noise: Tensor | None) -> Tensor:
    """The network's outputs; only a noisy network takes noise."""
    return q(obs) if noise is None else q(obs, noise)
