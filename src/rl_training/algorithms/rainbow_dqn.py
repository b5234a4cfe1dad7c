"""Rainbow: Hessel et al., "Rainbow: Combining Improvements in Deep Reinforcement Learning", 2018."""

from __future__ import annotations

from dataclasses import dataclass

from rl_training.algorithms.c51_dqn import C51DQN, C51Settings
from rl_training.config.fields import above, at_least, closed_interval, setting


@dataclass(frozen=True)
class RainbowSettings(C51Settings):
    # Defaults: the paper's (table 1); the rest as in DQN.
    double: bool = setting(True)
    dueling: bool = setting(True)
    n_step: int = setting(3, at_least(1))
    prioritized: bool = setting(True)
    prioritized_alpha: float = setting(0.5, closed_interval(0, 1))
    noisy: bool = setting(True)
    adam_eps: float = setting(1.5e-4, above(0))


class RainbowDQN(C51DQN):
    """C51 with all extensions of DQN."""

    name = "rainbow_dqn"
    title = "Rainbow: C51, double, dueling, n-step, prioritised and noisy"
    settings_type = RainbowSettings
    settings: RainbowSettings
