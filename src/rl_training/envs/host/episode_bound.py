"""The step limit of episodes in evaluation, video and recording."""

from __future__ import annotations

from dataclasses import dataclass

from rl_training.config.train_config import EPISODE_LIMIT, TrainConfig
from rl_training.core.checks import require


@dataclass(frozen=True)
class EpisodeBound:
    """Steps after which evaluation, video and data recording cut an episode. Training does not."""

    default: int = EPISODE_LIMIT  # where the environment has no time limit
    override: int | None = None  # replaces any time limit

    def __post_init__(self) -> None:
        require(self.override is None or self.override >= 1, "episode_limit", f">= 1, got {self.override}")

    @classmethod
    def of(cls, config: TrainConfig, override: int | None = None) -> EpisodeBound:
        """The bound of a config, with an optional override."""
        return cls(config.eval_episode_limit, override)

    def steps(self, time_limit: int | None) -> int | None:
        """The limit for an environment with this time limit; None: its episodes are not cut."""
        if self.override is not None:
            return self.override
        return self.default if time_limit is None else None

    def report(self, cut: int, episodes: int) -> str:
        """The text that reports cut episodes."""
        by = "episode_limit" if self.override is not None else "eval_episode_limit; the environment has no time limit"
        return f"{cut} of {episodes} episodes cut at {self.override or self.default} steps ({by})"


DEFAULT_BOUND = EpisodeBound()


def no_time_limit_notice(env_id: str, config: TrainConfig) -> str:
    """The notice at the start of a run whose environment has no time limit."""
    return (
        f"{env_id} has no time limit: in evaluations and videos an episode is cut at "
        f"{config.eval_episode_limit} steps (eval_episode_limit), in training it is not"
    )
