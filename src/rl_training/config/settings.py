"""Settings that algorithms share: `TrainSettings`, and its `ReplaySettings`, `ImageSettings` and `RolloutSettings`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from rl_training.config.fields import (
    above,
    at_least,
    check,
    closed_interval,
    one_of,
    right_open_interval,
    setting,
)
from rl_training.config.network import HiddenLayers, NetworkSettings, OptimizerSettings, check_sizes
from rl_training.config.objects import object_name, python_object
from rl_training.core.checks import UserError, one_line, require
from rl_training.core.schedules import SCHEDULES
from rl_training.core.specs import ArraySpec

PRECISIONS = ("float32", "bfloat16")
MAX_UPDATES = 10_000  # the batches of one training are drawn together
MAX_N_STEP = 1000  # each step of a return is read from the replay
MAX_OUTPUTS = 2000  # atoms or quantiles of an action: each is compared with each of the target's


@dataclass(frozen=True)
class TrainSettings:
    """Settings of every algorithm; the dataclass of an algorithm sets its defaults and cites their source."""

    NETWORK_KINDS: ClassVar[tuple[str, ...]] = ("mlp",)  # of `network.kind`

    batch_size: int = setting(256, at_least(1))  # transitions of one update, per seed
    hidden_sizes: tuple[int, ...] = setting((256, 256))  # sizes of the hidden layers of the networks
    learning_rate: float = setting(3e-4, above(0))  # step size of the optimizer
    # of the rate over the run; a Python function returns the rate, given the share of the run that is done
    learning_rate_schedule: Literal["constant", "linear", "cosine"] | Callable[[float], float] = "constant"
    learning_rate_end: float = setting(0.0, closed_interval(0, 1))  # linear, cosine: the share of the rate at the end
    learning_rate_warmup: float = setting(0.0, right_open_interval(0, 1))  # share of the run in which it rises from 0
    max_grad_norm: float | None = setting(None, above(0))  # clips the norm of gradients; null: not
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)  # by its name in torch.optim, with options
    adam_eps: float = setting(1e-8, above(0))  # the default of the optimizer's `eps`
    gamma: float = setting(0.99, closed_interval(0, 1))  # discount of future rewards
    normalize_observations: bool = setting(False)  # standardise them by their running mean and variance
    network: NetworkSettings = field(default_factory=NetworkSettings)  # layers, and networks of one's own

    def rate(self, progress: float) -> float:
        """The learning rate after this share of the run."""
        schedule = self.learning_rate_schedule
        if schedule not in SCHEDULES:
            # An extended run stays at the end of its schedule.
            return _rate_of(python_object(schedule, "learning_rate_schedule"), min(progress, 1.0))
        rate: float = SCHEDULES[schedule](self.learning_rate, self.learning_rate * self.learning_rate_end, progress)
        return rate * min(progress / self.learning_rate_warmup, 1.0) if self.learning_rate_warmup else rate

    @property
    def actor_layers(self) -> HiddenLayers:
        """The hidden layers of the actor."""
        return self.network.layers("actor", self.actor_sizes)

    @property
    def critic_layers(self) -> HiddenLayers:
        """The hidden layers of critics, values and Q networks."""
        return self.network.layers("critic", self.critic_sizes)

    @property
    def network_rows(self) -> int:
        """Rows of a batch as the trained network processes them."""
        return self.batch_size

    def update_rows(self, num_envs: int) -> int:
        """The same where the number of environments counts."""
        return self.network_rows

    @property
    def actor_sizes(self) -> tuple[int, ...]:
        """The actor's `hidden_sizes`."""
        return self.hidden_sizes

    @property
    def critic_sizes(self) -> tuple[int, ...]:
        """The critics' `hidden_sizes`; their training takes longest."""
        return self.hidden_sizes

    @property
    def uses_environment(self) -> bool:
        """Whether a run steps environments."""
        return True

    @property
    def offline_updates(self) -> int | None:
        """Updates on a dataset before the first step in an environment; None: all updates of the run."""
        return 0

    @property
    def learning_starts(self) -> int:
        """Environment steps with uniformly random actions before the first update."""
        return 0

    @property
    def train_frequency(self) -> int:
        """Transitions between trainings on a replay."""
        return 1

    @property
    def gradient_updates_per_step(self) -> int:
        """Updates per training on a replay."""
        return 1

    @property
    def her(self) -> HindsightSettings | None:
        """How goals of a replay are relabelled; None: they are not."""
        return None

    def updates_in(self, steps: int, num_envs: int) -> float:
        """About how many updates belong to so many environment steps."""
        return max(steps - self.learning_starts, 0) * self.gradient_updates_per_step / self.train_frequency

    def for_run(self, total_timesteps: int, num_envs: int) -> TrainSettings:
        """The settings as a run of this length and number of environments uses them; rejects those that do not fit."""
        return self

    def check_observation(self, observation: ArraySpec, env_id: str) -> None:
        """Reject settings that do not apply to the observations of an environment."""
        if self.normalize_observations and observation.numbers is None:
            raise UserError(f"normalize_observations must be false for images, which {env_id} gives")

    @property
    def precision(self) -> str:
        """The dtype of matrix products and convolutions; an algorithm with such a setting declares a field instead."""
        return "float32"

    @property
    def can_learn(self) -> bool:
        """Whether the schedule of the learning rate is here, and not only named by a file."""
        return not isinstance(self.learning_rate_schedule, str) or self.learning_rate_schedule in SCHEDULES

    def __post_init__(self) -> None:
        check(self)
        check_sizes("hidden_sizes", self.hidden_sizes)
        self.network.check_kinds(self.NETWORK_KINDS)
        if self.learning_rate_schedule not in SCHEDULES:
            for name in ("learning_rate_end", "learning_rate_warmup"):
                require(not getattr(self, name), name, "0 where learning_rate_schedule is a function")


def _rate_of(schedule: Callable[[float], float], progress: float) -> float:
    """The rate that a user's function returns."""
    try:
        rate = float(schedule(progress))
    except Exception as error:
        what = f"{object_name(schedule)}({progress:g}) raised {type(error).__name__}: {one_line(error)}"
        raise UserError(f"learning_rate_schedule: {what}") from error
    where = f"learning_rate_schedule: {object_name(schedule)}({progress:g})"
    require(math.isfinite(rate) and rate >= 0, where, f"a rate >= 0, got {rate}")
    return rate


@dataclass(frozen=True)
class HindsightSettings:
    """Hindsight experience replay (Andrychowicz et al. 2017): rows of a batch get a goal that was achieved later."""

    # future: in the same episode at this step or later; final: at the end of the episode; episode: at any of its steps
    strategy: str = setting("future", one_of("future", "final", "episode"))
    n: int = setting(4, at_least(1))  # relabelled rows for each row with its own goal: the paper's k

    def __post_init__(self) -> None:
        check(self)

    def rows(self, batch_size: int) -> int:
        """The relabelled rows of a batch."""
        return round(batch_size * self.n / (self.n + 1))


@dataclass(frozen=True)
class ReplaySettings(TrainSettings):
    """Settings of algorithms that learn from a replay buffer.

    The properties are optional features of a replay; an algorithm with such a setting declares a field instead.
    """

    buffer_capacity: int = setting(1_000_000, at_least(1))  # transitions in the replay, per seed
    learning_starts: int = setting(100, at_least(0))  # uniformly random actions and no updates until then
    train_frequency: int = setting(1, at_least(1))  # transitions between trainings
    gradient_updates_per_step: int = setting(1, at_least(1))  # updates per training

    @property
    def n_step(self) -> int:
        """Rewards in a return before it is bootstrapped from the value of a state."""
        return 1

    @property
    def prioritized(self) -> bool:
        """Whether rows are drawn in proportion to their errors."""
        return False

    @property
    def prioritized_alpha(self) -> float:
        return 0.0

    @property
    def prioritized_beta_start(self) -> float:
        return 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.her is not None:
            require(self.n_step == 1, "n_step", f"1 with her, got {self.n_step}")
            require(not self.prioritized, "prioritized", "false with her")
        require(self.batch_size <= self.buffer_capacity, "batch_size", f"<= buffer_capacity ({self.buffer_capacity})")
        updates = self.gradient_updates_per_step
        require(updates <= MAX_UPDATES, "gradient_updates_per_step", f"<= {MAX_UPDATES}, got {updates}")
        require(self.n_step <= MAX_N_STEP, "n_step", f"<= {MAX_N_STEP}, got {self.n_step}")


@dataclass(frozen=True)
class RolloutSettings(TrainSettings):
    """Settings of algorithms that learn from the newest transitions of their own policy, each of them a few times."""

    batch_size: int = setting(64, at_least(1))  # transitions of a minibatch: of one update, per seed
    rollout_steps: int = setting(2048, at_least(1))  # steps of each environment between two trainings
    epochs: int = setting(10, at_least(1))  # passes over a rollout, each in another order

    @property
    def row_steps(self) -> int:
        """Consecutive steps of an environment that stay together as one row of a minibatch."""
        return 1

    def update_rows(self, num_envs: int) -> int:
        return self.batch_size or self.rollout_steps * num_envs

    def updates_in(self, steps: int, num_envs: int) -> float:
        rows = self.rollout_steps * num_envs
        return steps // rows * self.epochs * (rows // self.update_rows(num_envs))

    def for_run(self, total_timesteps: int, num_envs: int) -> RolloutSettings:
        rows = self.rollout_steps * num_envs
        size = f"the rollout's {rows} transitions (rollout_steps x num_envs), got {self.batch_size}"
        require(self.batch_size <= rows, "batch_size", f"at most {size}")
        steps = -(-total_timesteps // num_envs)
        return self if steps >= self.rollout_steps else self.shortened(steps, num_envs)

    def shortened(self, steps: int, num_envs: int) -> RolloutSettings:
        """The settings for rollouts of fewer steps."""
        size: dict[str, Any] = {"batch_size": steps * num_envs} if self.batch_size > steps * num_envs else {}
        return replace(self, rollout_steps=steps, **size)


@dataclass(frozen=True)
class ImageSettings(ReplaySettings):
    """Settings of actors and critics on convolutions; the defaults are common to DrQ and DrQ-v2."""

    hidden_sizes: tuple[int, ...] = setting((1024, 1024))  # sizes of the hidden layers behind the encoder
    actor_hidden_sizes: tuple[int, ...] | None = setting(None)  # null: `hidden_sizes`
    critic_hidden_sizes: tuple[int, ...] | None = setting(None)  # null: `hidden_sizes`
    features_dim: int = setting(50, at_least(1))  # size of the projected features, before a LayerNorm
    augmentation_pad: int = setting(4, at_least(0))  # pixels: the largest shift of an image
    precision: str = setting("float32", one_of(*PRECISIONS))  # of matrix products and convolutions
    tau: float = setting(0.01, closed_interval(0, 1))  # share of a network that its target takes over at each update

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("actor_hidden_sizes", "critic_hidden_sizes"):
            check_sizes(name, getattr(self, name) or ())

    def check_observation(self, observation: ArraySpec, env_id: str) -> None:
        super().check_observation(observation, env_id)
        size, pad = observation.shape[1:], self.augmentation_pad
        if pad >= min(size):
            raise UserError(f"augmentation_pad must be less than the images' size {size}, got {pad}")

    @property
    def critic_sizes(self) -> tuple[int, ...]:
        return self.hidden_sizes if self.critic_hidden_sizes is None else self.critic_hidden_sizes

    @property
    def actor_sizes(self) -> tuple[int, ...]:
        return self.hidden_sizes if self.actor_hidden_sizes is None else self.actor_hidden_sizes

    def network_sizes(self) -> dict[str, Any]:
        """Keyword arguments of the models."""
        return {
            "features_dim": self.features_dim,
            "actor_hidden_sizes": self.actor_layers,
            "critic_hidden_sizes": self.critic_layers,
            "precision": self.precision,
        }
