"""DroQ: Hiraoka et al., "Dropout Q-Functions for Doubly Efficient Reinforcement Learning", 2022."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from rl_training.algorithms.base import Batch, LossResult, Noise
from rl_training.algorithms.loss_functions import droq_loss as droq_loss
from rl_training.algorithms.redq import REDQ, REDQSettings
from rl_training.algorithms.sac import Critics, SACNetworks
from rl_training.config.fields import at_least, setting
from rl_training.config.network import DropoutNetworkSettings


@dataclass(frozen=True)
class DroQSettings(REDQSettings):
    # Defaults: the authors' code, which is REDQ's with two critics; a dropout of 0.01 on every task, as in Kostrikov's
    # walk_in_the_park (the authors' README has 0.005 for Hopper).
    num_critics: int = setting(2, at_least(1))  # critics in the ensemble
    network: DropoutNetworkSettings = field(default_factory=DropoutNetworkSettings)  # layers, and networks of one's own


class DroQ(REDQ):
    """REDQ with two critics, whose dropout takes the place of the ensemble: it acts wherever they are evaluated."""

    name = "droq"
    title = "Dropout Q-functions: REDQ with two critics that have dropout and layer norm"
    settings_type = DroQSettings
    settings: DroQSettings

    def next_value(self, critic: Critics, next_obs: Tensor, next_action: Tensor, noise: Noise) -> Tensor:
        return super().next_value(critic.training(), next_obs, next_action, noise)

    def policy_loss(self, nets: SACNetworks, batch: Batch, noise: Noise) -> LossResult:
        action, logprob = nets.policy(batch["obs"], noise["action"])
        value = self.policy_value(nets.critic.training()(batch["obs"], action))
        return self.policy_result(nets, logprob, value)
