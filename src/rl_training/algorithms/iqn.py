"""IQN: Dabney et al., "Implicit Quantile Networks for Distributional Reinforcement Learning", 2018."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

from torch import nn

from rl_training.algorithms.base import Batch, LossResult, Noise, NoiseSpec
from rl_training.algorithms.dqn import DQNNetworks, evaluate
from rl_training.algorithms.losses import chosen
from rl_training.algorithms.qr_dqn import QRDQN, QRDQNSettings
from rl_training.config.fields import at_least, setting
from rl_training.config.settings import MAX_OUTPUTS
from rl_training.core.checks import require
from rl_training.core.specs import EnvSpec
from rl_training.models.features import network_input
from rl_training.models.mlp_iqn_q_network import MLPIQNQNetwork


@dataclass(frozen=True)
class IQNSettings(QRDQNSettings):
    # Defaults: the paper's as in Dopamine, 64 levels on both sides of the loss, 32 for acting; the rest as in QR-DQN.
    num_quantiles: int = setting(64, at_least(1, MAX_OUTPUTS))  # N, random levels per row
    num_target_quantiles: int = setting(64, at_least(1, MAX_OUTPUTS))  # N', random levels per row of the target
    num_policy_quantiles: int = setting(32, at_least(1, MAX_OUTPUTS))  # K: evenly spaced, random in the paper
    num_cosines: int = setting(64, at_least(1, MAX_OUTPUTS))  # cosines that encode a level

    @property
    def network_rows(self) -> int:
        return self.batch_size * max(self.num_quantiles, self.num_target_quantiles)


class IQN(QRDQN):
    """QR-DQN with a network that outputs the quantile at any level, regressed at random levels for every row."""

    name = "iqn"
    title = "Implicit quantile network"
    settings_type = IQNSettings
    settings: IQNSettings

    def __init__(self, **keywords: Any) -> None:
        super().__init__(**keywords)
        takes = inspect.signature(self.model.forward).parameters
        require("levels" in takes, "q_network", "a network that takes levels, such as MLPIQNQNetwork")

    @classmethod
    def build_model(cls, spec: EnvSpec, settings: Any) -> nn.Module:
        return MLPIQNQNetwork(
            network_input(spec.observation, settings.network),
            spec.action.size,
            settings.critic_layers,
            settings.num_policy_quantiles,
            settings.num_cosines,
            settings.dueling,
            settings.noisy,
        )

    def noise(self, batch_size: int) -> dict[str, NoiseSpec]:
        counts = {"levels": self.settings.num_quantiles, "target_levels": self.settings.num_target_quantiles}
        levels = {name: NoiseSpec("uniform", (batch_size, count)) for name, count in counts.items()}
        return super().noise(batch_size) | levels

    def loss(self, nets: DQNNetworks, batch: Batch, noise: Noise) -> LossResult:
        double = self.settings.double
        chooser, chooser_noise = (nets.q.inference(), "chooser") if double else (nets.target.q, "next_obs")
        best = self.action_values(evaluate(chooser, batch["next_obs"], noise.get(chooser_noise))).argmax(-1)
        next_quantiles = nets.target.q(batch["next_obs"], noise.get("next_obs"), noise["target_levels"])
        quantiles = nets.q(batch["obs"], noise.get("obs"), noise["levels"])
        return self.td_loss(quantiles, chosen(next_quantiles, best), batch, noise["levels"])
