"""Behaviour cloning: the recorded actions as likely as possible. The baseline of every offline table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor, nn

from rl_training.algorithms.base import Batch, Groups, Metrics, Noise, OffPolicySettings, Phase
from rl_training.algorithms.offline import OfflineLearner
from rl_training.config.settings import OfflineSettings
from rl_training.core.specs import EnvSpec
from rl_training.models.mlp_iql import ClippedGaussianModel
from rl_training.models.parts import LARGEST_ACTION, gaussian_log_density


@dataclass(frozen=True)
class BCSettings(OfflineSettings):
    """Sizes and rates as in CORL: two layers of 256, batches of 256, rate 3e-4; locomotion on normalised states.

    The policy is IQL's, by maximum likelihood: so it has a spread of its own, where CORL's squared error has none.
    """


def behavior_log_density(actor: Any, params: Any, batch: Batch) -> tuple[Tensor, Tensor]:
    """How likely the policy makes each recorded action, and the logarithm of its spread."""
    mean, log_std = actor(params, batch["obs"])
    # As the authors of IQL do: a recorder's actions at the bounds are mostly clipped ones.
    return gaussian_log_density(mean, log_std, batch["actions"].clamp(-LARGEST_ACTION, LARGEST_ACTION)), log_std


class BC(OfflineLearner):
    name = "bc"
    title = "Behaviour cloning"
    learns_online: ClassVar[bool] = False
    by_domain: ClassVar[Mapping[str, Mapping[str, Any]]] = {"locomotion": {"normalize_observations": True}}
    settings_type: ClassVar[type[OffPolicySettings]] = BCSettings

    @classmethod
    def build_model(cls, spec: EnvSpec, settings: Any) -> nn.Module:
        return ClippedGaussianModel(spec.observation.size, spec.action.size, settings.hidden_sizes)

    def modules(self, model: nn.Module) -> dict[str, nn.Module]:
        return {"actor": model.actor}  # type: ignore[dict-item]

    def phases(self) -> tuple[Phase, ...]:
        return (Phase(("actor",), self.actor_loss),)

    def actor_loss(self, groups: Groups, batch: Batch, noise: Noise) -> tuple[Tensor, Metrics]:
        logprobs, log_std = behavior_log_density(self.networks["actor"], groups["actor"], batch)
        loss = -logprobs.mean()
        return loss, {"actor_loss": loss, "std": log_std.exp().mean()}

    def greedy(self, groups: Groups, obs: Tensor) -> Tensor:
        return self.networks["actor"](groups["actor"], obs)[0]  # type: ignore[no-any-return]

    def explore(self, groups: Groups, obs: Tensor, noise: Tensor, amount: Tensor) -> Tensor:
        mean, log_std = self.networks["actor"](groups["actor"], obs)
        return (mean + log_std.exp() * noise).clamp(-1, 1)  # type: ignore[no-any-return]
