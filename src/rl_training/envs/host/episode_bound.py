"""Where episodes end that the environment itself does not end."""

from __future__ import annotations

from dataclasses import dataclass

from rl_training.config.train_config import EPISODE_LIMIT, TrainConfig
from rl_training.core.checks import require


@dataclass(frozen=True)
class EpisodeBound:
    """Steps after which evaluation, video and data recording cut an episode. Training does not."""

    default: int = EPISODE_LIMIT  # where the environment has no time limit
    asked: int | None = None  # in any case

    def __post_init__(self) -> None:
        require(self.asked is None or self.asked >= 1, "episode_limit", f">= 1, got {self.asked}")

    @classmethod
    def of(cls, config: TrainConfig, asked: int | None = None) -> EpisodeBound:
        return cls(config.eval_episode_limit, asked)

    def steps(self, time_limit: int | None) -> int | None:
        """For an environment of this time limit; None: its episodes are not cut."""
        if self.asked is not None:
            return self.asked
        return self.default if time_limit is None else None

    def report(self, cut: int, episodes: int) -> str:
        """What is told of episodes that were cut."""
        by = "episode_limit" if self.asked is not None else "eval_episode_limit; the environment has no time limit"
        return f"{cut} of {episodes} episodes cut at {self.asked or self.default} steps ({by})"


DEFAULT_BOUND = EpisodeBound()


def missing_limit(env_id: str, config: TrainConfig) -> str:
    """What is told at the start of a run."""
    return (
        f"{env_id} has no time limit: in evaluations and videos an episode is cut at "
        f"{config.eval_episode_limit} steps (eval_episode_limit), in training it is not"
    )
