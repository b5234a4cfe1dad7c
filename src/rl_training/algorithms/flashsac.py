"""FlashSAC: Kim et al., "FlashSAC: Fast and Stable Off-Policy Reinforcement Learning for High-Dimensional Robot
Control", 2026."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from rl_training.algorithms.base import Act, Batch, LossResult, Noise, NoiseSpec, Phase
from rl_training.algorithms.loss_functions import flashsac_loss as flashsac_loss
from rl_training.algorithms.losses import (
    categorical_projection,
    ensemble_cross_entropy,
    joined_pass,
    joined_rows,
    soft_policy_term,
    td_target,
)
from rl_training.algorithms.sac import SAC, SACNetworks, SizedCriticSettings
from rl_training.config.fields import above, at_least, left_open_interval, setting
from rl_training.config.settings import MAX_OUTPUTS
from rl_training.core.specs import EnvSpec
from rl_training.models.features import network_input
from rl_training.models.mlp_flashsac import MLPFlashSACModel, check_blocks


@dataclass(frozen=True)
class FlashSACSettings(SizedCriticSettings):
    NETWORK_KINDS: ClassVar[tuple[str, ...]] = ("mlp",)
    # Defaults: the authors' configs for simulators on a CPU (Holiday-Robot/FlashSAC).
    batch_size: int = setting(512, at_least(2))  # batch statistics need two rows
    learning_starts: int = setting(10_000, at_least(0))
    hidden_sizes: tuple[int, ...] = setting((128, 128))  # of the actor: a residual block for each, of equal sizes
    critic_hidden_sizes: tuple[int, ...] | None = setting((256, 256))  # of the critics; null: `hidden_sizes`
    learning_rate_schedule: Literal["constant", "linear", "cosine"] | Callable[[float], float] = "cosine"
    learning_rate_end: float = setting(0.5)
    tau: float = setting(0.01)
    initial_alpha: float = setting(0.01)
    target_std: float = setting(0.15, above(0))  # with `target_entropy: auto`: that of a Gaussian with this deviation
    policy_delay: int = setting(2, at_least(1))  # updates of the critics for one of the policy
    num_atoms: int = setting(101, at_least(2, MAX_OUTPUTS))  # atoms of the distribution of returns
    v_max: float = setting(5.0, above(0))  # the largest atom; the smallest is its negative
    normalize_rewards: bool = setting(True)  # scale them by running returns, so that returns fit the atoms
    noise_steps: int = setting(16, at_least(1, 1000))  # the longest time that exploration noise is held; 1: never
    noise_exponent: float = setting(2.0, above(0))  # n steps have a probability in proportion to 1 / n to this power
    batch_norm_momentum: float = setting(0.01, left_open_interval(0, 1))  # share of a batch in the running statistics

    def __post_init__(self) -> None:
        super().__post_init__()
        check_blocks("hidden_sizes", self.hidden_sizes)
        check_blocks("critic_hidden_sizes", self.critic_sizes)


class FlashSAC(SAC):
    """SAC with categorical critics on networks whose weights and features keep their norms."""

    name = "flashsac"
    title = "FlashSAC: normalised residual networks, categorical critics, scaled rewards, noise that is held"
    settings_type = FlashSACSettings
    settings: FlashSACSettings

    def __init__(self, **keywords: Any) -> None:
        super().__init__(**keywords)
        weights = [n**-self.settings.noise_exponent for n in range(1, self.settings.noise_steps + 1)]
        shares = [sum(weights[:n]) / sum(weights) for n in range(1, len(weights))]
        # A standard normal number is above the n-th of these where noise is held for more than n steps.
        self.longer = torch.tensor([NormalDist().inv_cdf(share) for share in shares], device=self.device)

    @classmethod
    def build_model(cls, spec: EnvSpec, settings: Any) -> nn.Module:
        return MLPFlashSACModel(
            network_input(spec.observation, settings.network),
            spec.action.size,
            settings.actor_layers,
            settings.num_critics,
            settings.critic_layers,
            (settings.num_atoms, -settings.v_max, settings.v_max),
            settings.batch_norm_momentum,
        )

    def phases(self) -> tuple[Phase, ...]:
        critic, policy = super().phases()
        return replace(policy, every=self.settings.policy_delay), critic  # the policy first, as in the authors' code

    def atoms(self, device: torch.device) -> Tensor:
        return torch.linspace(-self.settings.v_max, self.settings.v_max, self.settings.num_atoms, device=device)

    def critic_loss(self, nets: SACNetworks, batch: Batch, noise: Noise) -> LossResult:
        atoms = self.atoms(batch["rewards"].device)
        next_action, logprob = nets.policy(batch["next_obs"], noise["next_action"])
        current, following = (batch["obs"], batch["actions"]), (batch["next_obs"], next_action)
        next_probs = joined_pass(nets.target.critic.training(), current, following)[1].softmax(-1)
        smallest = (next_probs * atoms).sum(-1).argmin(0)  # of the critics' means
        next_probs = torch.take_along_dim(next_probs, smallest.view(1, -1, 1), 0).squeeze(0)
        scale = nets.running["reward_scale"] if self.settings.normalize_rewards else 1.0
        soft_atoms = atoms - (nets.alpha * logprob).unsqueeze(-1)
        support = td_target({**batch, "rewards": scale * batch["rewards"]}, self.settings.gamma, soft_atoms)
        target = categorical_projection(support, next_probs, atoms).detach()
        loss = ensemble_cross_entropy(joined_pass(nets.critic, current, following)[0], target)
        return LossResult(loss, {"critic_loss": loss, "target_q_mean": (target * atoms).sum(-1).mean()})

    def policy_loss(self, nets: SACNetworks, batch: Batch, noise: Noise) -> LossResult:
        drawn = noise["action"]  # the next observations are there for the statistics alone
        both = nets.policy(joined_rows(batch["obs"], batch["next_obs"]), joined_rows(drawn, torch.zeros_like(drawn)))
        action, logprob = both[0][: len(drawn)], both[1][: len(drawn)]
        values = (nets.critic(batch["obs"], action).softmax(-1) * self.atoms(drawn.device)).sum(-1)
        alpha = nets.alpha.detach()
        loss, entropy_term = soft_policy_term(alpha, logprob, values.amin(0))
        metrics = {"actor_loss": loss, "entropy_term": entropy_term, "ent_coef": alpha, "entropy": -logprob.mean()}
        if self.settings.alpha == "auto":
            loss = loss - nets.alpha * (logprob.detach().mean() + self.target_entropy)
        return LossResult(loss, metrics)

    @property
    def target_entropy(self) -> float:
        if self.settings.target_entropy != "auto":
            return float(self.settings.target_entropy)
        return 0.5 * self.action_dim * math.log(2 * math.pi * math.e * self.settings.target_std**2)

    def reward_limit(self) -> float | None:
        return self.settings.v_max if self.settings.normalize_rewards else None

    def explore_noise(self, rows: int) -> NoiseSpec:
        return NoiseSpec("normal", (rows, self.action_dim + 1))  # the last: for how many steps it is held

    def explore_state(self, rows: int) -> dict[str, Tensor]:
        return {"noise": torch.zeros(rows, self.action_dim), "held": torch.zeros(rows, dtype=torch.int64)}

    def explore(  # type: ignore[override]
        self, nets: SACNetworks, obs: Tensor, noise: Tensor, amount: Tensor, state: dict[str, Tensor]
    ) -> Act:
        drawn, steps = noise[:, :-1], 1 + (noise[:, -1:] > self.longer).sum(-1)
        fresh = state["held"] == 0  # `held`: for how many more steps the last noise is used
        used = torch.where(fresh.unsqueeze(-1), drawn, state["noise"])
        held = torch.where(fresh, steps, state["held"]) - 1
        return Act(nets.policy(obs, used)[0], state={"noise": used, "held": held})
