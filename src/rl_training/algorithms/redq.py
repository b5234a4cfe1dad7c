"""REDQ: Chen et al., "Randomized Ensembled Double Q-Learning: Learning Fast Without a Model", 2021."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from rl_training.algorithms.base import Noise, NoiseSpec, Phase
from rl_training.algorithms.loss_functions import redq_loss as redq_loss
from rl_training.algorithms.sac import SAC, Critics, SACSettings
from rl_training.config.fields import at_least, setting
from rl_training.core.checks import require
from rl_training.core.specs import EnvSpec
from rl_training.models.features import network_input
from rl_training.models.mlp_redq import MLPREDQModel
from rl_training.models.parts import check_count

# The values of `target_entropy: auto` on these tasks: MBPO's table, which the authors use.
TARGET_ENTROPIES = {"Hopper": -1.0, "HalfCheetah": -3.0, "Walker2d": -3.0, "Ant": -4.0, "Humanoid": -2.0}


@dataclass(frozen=True)
class REDQSettings(SACSettings):
    NETWORK_KINDS: ClassVar[tuple[str, ...]] = ("mlp",)

    # Defaults: the authors' code (train_redq_sac.py, redq_sac.py).
    learning_starts: int = setting(5000, at_least(0))
    gradient_updates_per_step: int = setting(20, at_least(1))  # of the critics; the actor trains at the last one
    num_critics: int = setting(10, at_least(1))  # critics in the ensemble
    subset_size: int = setting(2, at_least(1))  # target critics drawn for each update

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_subset(self.num_critics, self.subset_size)


def _check_subset(num_critics: int, subset_size: int) -> None:
    check_count("num_critics", num_critics)
    check_count("subset_size", subset_size)
    require(subset_size <= num_critics, "subset_size", f"<= num_critics ({num_critics}), got {subset_size}")


def _sample_target_critic_indices(*, num_critics: int, subset_size: int, uniforms: Tensor | None = None) -> Tensor:
    """(subset_size,) distinct indices below `num_critics`: those of the smallest of `num_critics` random numbers.

    Sorted rather than drawn until all are distinct: a loop of variable length cannot be captured.
    """
    _check_subset(num_critics, subset_size)
    numbers = torch.rand(num_critics) if uniforms is None else uniforms
    return numbers.argsort(stable=True)[:subset_size]


class REDQ(SAC):
    """SAC with many critics: the minimum of a random subset in the target, the mean of all for the actor."""

    name = "redq"
    title = "Randomized ensembled double Q-learning, many critic updates per step"
    settings_type: ClassVar[type[SACSettings]] = REDQSettings
    settings: REDQSettings

    def __init__(self, *, model: Any, **keywords: Any) -> None:
        super().__init__(model=model, **keywords)
        critics, expected = getattr(self.model, "num_critics", None), self.settings.num_critics
        require(critics in (None, expected), "num_critics", f"{critics}, as many as the model has, got {expected}")

    @classmethod
    def build_model(cls, spec: EnvSpec, settings: Any) -> nn.Module:
        inputs = network_input(spec.observation, settings.network)
        layers = settings.actor_layers, settings.num_critics, settings.critic_layers
        return MLPREDQModel(inputs, spec.action.size, *layers)

    @classmethod
    def task_settings(cls, env_id: str, given: Mapping[str, Any]) -> dict[str, Any]:
        chosen, task = super().task_settings(env_id, given), re.fullmatch(r"(?:gymnasium:)?(\w+?)(?:-v\d+)?", env_id)
        if chosen.get("target_entropy", "auto") == "auto" and task is not None and task[1] in TARGET_ENTROPIES:
            chosen["target_entropy"] = TARGET_ENTROPIES[task[1]]
        return chosen

    def phases(self) -> tuple[Phase, ...]:
        critic, policy = super().phases()
        return critic, replace(policy, every=self.settings.gradient_updates_per_step)

    def noise(self, batch_size: int) -> dict[str, NoiseSpec]:
        return {**super().noise(batch_size), "subset": NoiseSpec("uniform", (self.settings.num_critics,))}

    def next_value(self, critic: Critics, next_obs: Tensor, next_action: Tensor, noise: Noise) -> Tensor:
        subset = _sample_target_critic_indices(
            num_critics=self.settings.num_critics, subset_size=self.settings.subset_size, uniforms=noise["subset"]
        )
        return super().next_value(critic.members(subset), next_obs, next_action, noise)  # only these are evaluated

    def policy_value(self, predicted: Tensor) -> Tensor:
        return predicted.mean(0)
