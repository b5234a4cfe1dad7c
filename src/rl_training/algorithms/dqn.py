"""DQN: Mnih et al., "Human-level control through deep reinforcement learning", 2015, and its switches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from rl_training.algorithms.base import (
    ROW_ERRORS,
    Batch,
    Groups,
    Learner,
    Metrics,
    Noise,
    NoiseSpec,
    OffPolicySettings,
    Params,
    Phase,
)
from rl_training.algorithms.losses import as_rows, chosen, huber, td_target
from rl_training.config.fields import above, at_least, setting, within
from rl_training.core.checks import require
from rl_training.core.schedules import linear
from rl_training.core.specs import EnvSpec
from rl_training.models.mlp_q_network import MLPQNetwork


@dataclass(frozen=True)
class DQNSettings(OffPolicySettings):
    # Defaults: RL Baselines3 Zoo's dqn.yml, LunarLander and Acrobot rows, which also solve CartPole.
    buffer_capacity: int = setting(50_000, at_least(1))
    batch_size: int = setting(128, at_least(1))
    learning_starts: int = setting(1000, at_least(0))
    train_frequency: int = setting(4, at_least(1))
    gradient_updates_per_step: int = setting(4, at_least(1))
    learning_rate: float = setting(6.3e-4, above(0))
    max_grad_norm: float | None = setting(10.0, above(0))  # Stable-Baselines3's default
    target_update_interval: int = setting(250, at_least(1))  # environment steps
    epsilon_start: float = setting(1.0, within(0, 1))
    epsilon_end: float = setting(0.1, within(0, 1))
    exploration_fraction: float = setting(0.12, within(0, 1))  # share of the run over which epsilon falls
    double: bool = setting(False)  # van Hasselt et al. 2016
    dueling: bool = setting(False)  # Wang et al. 2016
    n_step: int = setting(1, at_least(1))
    prioritized: bool = setting(False)  # Schaul et al. 2016
    prioritized_alpha: float = setting(0.6, within(0, 1))  # how much priorities count; 0: not at all
    prioritized_beta_start: float = setting(0.4, within(0, 1))  # how much of the bias is corrected, 1 at the end
    noisy: bool = setting(False)  # Fortunato et al. 2018; explores by its weights alone, epsilon is not used


def value_terms(q: Tensor, target: Tensor, row_losses: Tensor, batch: Batch) -> Metrics:
    """What every member of the family reports: the values of the taken actions (batch,) against their targets."""
    weights = batch.get("weights")  # prioritised replay's correction
    return {
        "loss": (row_losses if weights is None else weights * row_losses).mean(),
        "q_value_mean": q.mean(),
        "target_mean": target.mean(),
        "td_error_mean": (q - target).abs().mean(),
    }


def dqn_loss(values: Batch) -> Metrics:
    """The Huber loss and its parts, from `q_values` (batch, actions), `actions`, `target_values`, perhaps `weights`."""
    rows = as_rows(values)  # but for the values, which of a single action are a column too
    q, target = chosen(values["q_values"], rows["actions"]), rows["target_values"]
    return value_terms(q, target, huber(q - target), rows)


class DQN(Learner):
    name = "dqn"
    title = "Deep Q-network, with switches for double, dueling, n-step, prioritised and noisy"
    actions = ("discrete",)
    observations = ("vector", "image")
    settings_type = DQNSettings
    targets: ClassVar[Mapping[str, str]] = {"target": "q"}

    def __init__(self, *, q_network: nn.Module | None = None, **keywords: Any) -> None:
        model = keywords.pop("model", q_network)
        require(model is not None, "q_network", "a network, got None")
        super().__init__(model=model, **keywords)
        has_noise = getattr(self.model, "noise_size", 0) > 0
        require(has_noise or not self.settings.noisy, "noisy", "false for a network without noisy layers")

    @classmethod
    def build_model(cls, spec: EnvSpec, settings: Any) -> nn.Module:
        return MLPQNetwork(
            spec.observation.network_input, spec.action.size, settings.hidden_sizes, settings.dueling, settings.noisy
        )

    def modules(self, model: nn.Module) -> dict[str, nn.Module]:
        return {"q": model}

    def phases(self) -> tuple[Phase, ...]:
        return (Phase(("q",), self.loss),)

    def noise(self, batch_size: int) -> dict[str, NoiseSpec]:
        names = ("obs", "next_obs", "chooser") if self.settings.noisy else ()
        return {name: NoiseSpec("normal", (int(self.model.noise_size),)) for name in names}  # type: ignore[arg-type]

    def loss(self, groups: Groups, batch: Batch, noise: Noise) -> tuple[Tensor, Metrics]:
        outputs = self.outputs(groups["q"], batch["obs"], noise.get("obs"))
        next_outputs = self.outputs(groups["target"], batch["next_obs"], noise.get("next_obs"))
        chooser = next_outputs
        if self.settings.double:  # the online network chooses the action, the target network says what it is worth
            chooser = self.outputs(groups["q"], batch["next_obs"], noise.get("chooser"))
        best = self.action_values(chooser).argmax(-1)
        metrics = self.terms(outputs, chosen(next_outputs, best), batch)
        return metrics["loss"], metrics

    def outputs(self, params: Params, obs: Tensor, noise: Tensor | None = None) -> Tensor:
        """The network's; any network will do as long as it is not to be noisy."""
        network: Any = self.networks["q"]
        return network(params, obs) if noise is None else network(params, obs, noise)  # type: ignore[no-any-return]

    def action_values(self, outputs: Tensor) -> Tensor:
        """The network's outputs as (batch, actions): what each action is worth on average."""
        return outputs

    def terms(self, outputs: Tensor, next_outputs: Tensor, batch: Batch) -> Metrics:
        """The loss, from the outputs for every action and those of the best next action."""
        target = td_target(batch, self.settings.gamma, next_outputs)
        metrics = dqn_loss({**batch, "q_values": outputs, "target_values": target})
        return {**metrics, ROW_ERRORS: chosen(outputs, batch["actions"]).detach() - target}

    def greedy(self, groups: Groups, obs: Tensor, noise: Tensor | None = None) -> Tensor:
        return self.action_values(self.outputs(groups["q"], obs, noise)).argmax(-1)

    def explore_noise(self, rows: int) -> NoiseSpec:
        if not self.settings.noisy:
            return super().explore_noise(rows)
        return NoiseSpec("normal", (rows, int(self.model.noise_size)))  # type: ignore[arg-type]

    def explore(self, groups: Groups, obs: Tensor, noise: Tensor, amount: Tensor) -> Tensor:
        if self.settings.noisy:
            return self.greedy(groups, obs, noise)
        random = (noise[:, 1] * self.action_dim).long().clamp(max=self.action_dim - 1)
        return torch.where(noise[:, 0] < amount, random, self.greedy(groups, obs))

    def exploration(self, progress: float) -> float:
        settings = self.settings
        if settings.noisy:
            return 0.0
        share = progress / settings.exploration_fraction if settings.exploration_fraction > 0 else 1.0
        return linear(settings.epsilon_start, settings.epsilon_end, share)
