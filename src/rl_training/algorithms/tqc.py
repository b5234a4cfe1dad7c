"""TQC: Kuznetsov et al., "Controlling Overestimation Bias with Truncated Mixture of Continuous Distributional
Quantile Critics", 2020."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from rl_training.algorithms.base import Noise
from rl_training.algorithms.loss_functions import tqc_loss as tqc_loss
from rl_training.algorithms.losses import ensemble_quantile_huber
from rl_training.algorithms.sac import SAC, Critics, SizedCriticSettings
from rl_training.config.fields import above, at_least, setting
from rl_training.core.checks import require
from rl_training.core.specs import EnvSpec
from rl_training.models.features import network_input
from rl_training.models.mlp_tqc import MLPTQCModel


@dataclass(frozen=True)
class TQCSettings(SizedCriticSettings):
    # Defaults: the authors' code (tqc_pytorch main.py, structures.py). It trains from the first full batch on, and acts
    # with the untrained policy until then, where we act at random.
    learning_starts: int = setting(256, at_least(0))
    critic_hidden_sizes: tuple[int, ...] | None = setting((512, 512, 512))  # of the critics; null: `hidden_sizes`
    num_critics: int = setting(5, at_least(1))  # critics whose quantiles are pooled
    num_quantiles: int = setting(25, at_least(1))  # quantiles of each critic
    # The paper's choice by task: Hopper 5, HalfCheetah 0, Walker2d, Ant and Humanoid 2.
    top_quantiles_to_drop_per_net: int = setting(2, at_least(0))  # largest quantiles left out of the target, per critic
    kappa: float = setting(1.0, above(0))  # errors above it count linearly (Huber)

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_dropped(self.top_quantiles_to_drop_per_net, self.num_quantiles)


def _check_dropped(dropped: int, quantiles: int) -> None:
    name = "top_quantiles_to_drop_per_net"
    require(dropped < quantiles, name, f"< num_quantiles ({quantiles}), got {dropped}")


def truncated(quantiles: Tensor, drop_per_net: int) -> Tensor:
    """(members, batch, quantiles), pooled without the largest, in any order: (batch, members * (quantiles - drop))."""
    members, _, count = quantiles.shape
    pooled, kept = quantiles.transpose(0, 1).flatten(1), members * (count - drop_per_net)
    if pooled.is_cuda:  # where sorting is compiled together with what is around it
        return pooled.sort(-1).values[:, :kept]
    return pooled.topk(kept, largest=False, sorted=False).values  # a quarter of the time of sorting


class TQC(SAC):
    """SAC with quantile critics: the largest target quantiles are dropped, the actor maximises the mean of all."""

    name = "tqc"
    title = "Truncated quantile critics"
    settings_type = TQCSettings
    settings: TQCSettings

    def __init__(self, *, model: Any, **keywords: Any) -> None:
        super().__init__(model=model, **keywords)
        quantiles = getattr(self.model, "num_quantiles", self.settings.num_quantiles)
        _check_dropped(self.settings.top_quantiles_to_drop_per_net, quantiles)

    @classmethod
    def build_model(cls, spec: EnvSpec, settings: Any) -> nn.Module:
        return MLPTQCModel(
            network_input(spec.observation, settings.network),
            spec.action.size,
            settings.actor_layers,
            settings.num_critics,
            settings.num_quantiles,
            settings.critic_layers,
        )

    def next_value(self, critic: Critics, next_obs: Tensor, next_action: Tensor, noise: Noise) -> Tensor:
        return truncated(critic(next_obs, next_action), self.settings.top_quantiles_to_drop_per_net)

    def critic_error(self, predicted: Tensor, target: Tensor) -> Tensor:
        return ensemble_quantile_huber(predicted, target, self.settings.kappa)

    def policy_value(self, predicted: Tensor) -> Tensor:
        return predicted.mean((0, 2))
