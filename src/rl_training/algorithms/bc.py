"""Behaviour cloning: maximum likelihood of the recorded actions. The baseline of offline learning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import nn

from rl_training.algorithms.base import Batch, LossResult, Noise, Phase
from rl_training.algorithms.offline import GaussianPolicyLearner, GaussianPolicyNetworks
from rl_training.config.offline_settings import OfflineSettings
from rl_training.core.specs import EnvSpec
from rl_training.models.features import network_input
from rl_training.models.mlp_iql import ClippedGaussianModel


@dataclass(frozen=True)
class BCSettings(OfflineSettings):
    """The policy is IQL's Gaussian with a learned standard deviation, where CORL minimises a squared error."""

    # Defaults: CORL's: two layers of 256, batches of 256, rate 3e-4; locomotion on normalised states.


class BC(GaussianPolicyLearner):
    name = "bc"
    title = "Behaviour cloning"
    learns_online = False
    by_domain: ClassVar[Mapping[str, Mapping[str, Any]]] = {"locomotion": {"normalize_observations": True}}
    settings_type = BCSettings
    settings: BCSettings

    @classmethod
    def build_model(cls, spec: EnvSpec, settings: Any) -> nn.Module:
        inputs = network_input(spec.observation, settings.network)
        return ClippedGaussianModel(inputs, spec.action.size, settings.actor_layers)

    def phases(self) -> tuple[Phase, ...]:
        return (Phase("actor", ("actor",), self.actor_loss),)

    def actor_loss(self, nets: GaussianPolicyNetworks, batch: Batch, noise: Noise) -> LossResult:
        logprobs, log_std = nets.behavior_log_density(batch)
        loss = -logprobs.mean()
        return LossResult(loss, {"actor_loss": loss, "std": log_std.exp().mean()})
