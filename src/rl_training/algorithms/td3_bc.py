"""TD3+BC: Fujimoto and Gu, "A Minimalist Approach to Offline Reinforcement Learning", 2021: TD3 with a
behaviour-cloning term in the actor's loss, on normalised observations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from rl_training.algorithms.base import Batch, LossResult, Noise
from rl_training.algorithms.offline import OfflineLearner
from rl_training.algorithms.td3 import TD3, TD3Networks, TD3Settings
from rl_training.config.fields import above, setting
from rl_training.config.offline_settings import OfflineSettings


@dataclass(frozen=True)
class TD3BCSettings(OfflineSettings, TD3Settings):
    NETWORK_KINDS: ClassVar[tuple[str, ...]] = ("mlp",)

    # Defaults: the authors' code (sfujim/TD3_BC TD3_BC.py, main.py).
    bc_alpha: float = setting(2.5, above(0))  # the weight of the critic's value against cloning
    normalize_observations: bool = setting(True)


class TD3BC(OfflineLearner, TD3):
    name = "td3_bc"
    title = "TD3 with behaviour cloning"
    by_domain: ClassVar[Mapping[str, Mapping[str, Any]]] = {"antmaze": {"reward_shift": -1.0}}  # as CORL does
    settings_type = TD3BCSettings
    settings: TD3BCSettings

    def actor_loss(self, nets: TD3Networks, batch: Batch, noise: Noise) -> LossResult:
        action, value = self.policy_value(nets, batch)
        # Makes the scale of values irrelevant; if the mean were not detached, the actor could minimise it instead.
        weight = self.settings.bc_alpha / value.abs().mean().detach()
        cloning = (action - batch["actions"]).square().mean()
        loss = cloning - weight * value.mean()
        return LossResult(loss, {"actor_loss": loss, "bc_loss": cloning, "q_weight": weight})
