"""QR-DQN: Dabney et al., "Distributional Reinforcement Learning with Quantile Regression", 2018."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from rl_training.algorithms.base import Batch, LossResult
from rl_training.algorithms.dqn import DQN, DQNSettings
from rl_training.algorithms.losses import chosen, quantile_huber, td_target, value_terms
from rl_training.config.fields import above, at_least, setting
from rl_training.config.settings import MAX_OUTPUTS
from rl_training.core.specs import EnvSpec
from rl_training.models.features import network_input
from rl_training.models.mlp_qr_q_network import MLPQRQNetwork


@dataclass(frozen=True)
class QRDQNSettings(DQNSettings):
    # Defaults: the paper's 200 quantiles and kappa 1; the rest as in DQN.
    num_quantiles: int = setting(200, at_least(1, MAX_OUTPUTS))  # quantiles of the distribution of returns
    kappa: float = setting(1.0, above(0))  # errors above it count linearly (Huber)


class QRDQN(DQN):
    """DQN with a network that outputs quantiles of the return, regressed on quantiles of the target."""

    name = "qr_dqn"
    title = "Quantile-regression DQN"
    settings_type = QRDQNSettings
    settings: QRDQNSettings

    @classmethod
    def build_model(cls, spec: EnvSpec, settings: Any) -> nn.Module:
        return MLPQRQNetwork(
            network_input(spec.observation, settings.network),
            spec.action.size,
            settings.critic_layers,
            settings.num_quantiles,
            settings.dueling,
            settings.noisy,
        )

    def action_values(self, outputs: Tensor) -> Tensor:
        return outputs.mean(-1)

    def td_loss(self, outputs: Tensor, next_outputs: Tensor, batch: Batch, levels: Tensor | None = None) -> LossResult:
        quantiles = chosen(outputs, batch["actions"])
        target = td_target(batch, self.settings.gamma, next_outputs)
        rows = quantile_huber(quantiles, target, self.settings.kappa, levels)
        metrics = value_terms(quantiles.mean(-1), target.mean(-1), rows, batch)
        return LossResult(metrics["loss"], metrics, row_errors=rows.detach())
