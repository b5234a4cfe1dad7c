"""C51: Bellemare et al., "A Distributional Perspective on Reinforcement Learning", 2017."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rl_training.algorithms.base import Batch, LossResult
from rl_training.algorithms.dqn import DQN, DQNSettings
from rl_training.algorithms.losses import categorical_projection, chosen, td_target, value_terms
from rl_training.config.fields import at_least, closed_interval, setting
from rl_training.config.settings import MAX_OUTPUTS
from rl_training.core.checks import require
from rl_training.core.specs import EnvSpec
from rl_training.models.features import network_input
from rl_training.models.mlp_c51_q_network import MLPC51QNetwork

MAX_ATOM = 1e30  # atoms are float32


@dataclass(frozen=True)
class C51Settings(DQNSettings):
    # Defaults: the paper's 51 atoms from -10 to 10 (for clipped rewards); the rest as in DQN.
    num_atoms: int = setting(51, at_least(2, MAX_OUTPUTS))  # atoms of the distribution of returns
    v_min: float = setting(-10.0, closed_interval(-MAX_ATOM, MAX_ATOM))  # the smallest atom
    v_max: float = setting(10.0, closed_interval(-MAX_ATOM, MAX_ATOM))  # the largest atom

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.v_min < self.v_max, "v_min", f"< v_max ({self.v_max}), got {self.v_min}")


class C51DQN(DQN):
    """DQN with a network that outputs a distribution of the return over fixed atoms."""

    name = "c51_dqn"
    title = "Categorical DQN (C51)"
    settings_type = C51Settings
    settings: C51Settings

    def __init__(self, **keywords: Any) -> None:
        super().__init__(**keywords)
        for name, of_network in (("num_atoms", "outputs"), ("v_min", "v_min"), ("v_max", "v_max")):
            expected = getattr(self.settings, name)
            has = getattr(self.model, of_network, expected)
            require(has == expected, name, f"{has}, as in the network, got {expected}")

    @classmethod
    def build_model(cls, spec: EnvSpec, settings: Any) -> nn.Module:
        return MLPC51QNetwork(
            network_input(spec.observation, settings.network),
            spec.action.size,
            settings.critic_layers,
            settings.num_atoms,
            settings.v_min,
            settings.v_max,
            settings.dueling,
            settings.noisy,
        )

    def atoms(self, device: torch.device) -> Tensor:
        return torch.linspace(self.settings.v_min, self.settings.v_max, self.settings.num_atoms, device=device)

    def action_values(self, outputs: Tensor) -> Tensor:
        return (outputs.softmax(-1) * self.atoms(outputs.device)).sum(-1)

    def td_loss(self, outputs: Tensor, next_outputs: Tensor, batch: Batch) -> LossResult:
        atoms, logits = self.atoms(outputs.device), chosen(outputs, batch["actions"])
        support = td_target(batch, self.settings.gamma, atoms.expand_as(logits))
        target = categorical_projection(support, next_outputs.softmax(-1), atoms).detach()
        cross_entropy = -(target * logits.log_softmax(-1)).sum(-1)
        divergence = cross_entropy.detach() + torch.xlogy(target, target).sum(-1)  # KL(target, prediction)
        q, target_q = (logits.softmax(-1) * atoms).sum(-1), (target * atoms).sum(-1)
        metrics = value_terms(q, target_q, cross_entropy, batch)
        return LossResult(metrics["loss"], metrics, row_errors=divergence)
