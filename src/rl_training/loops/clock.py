"""Counters of a run: steps, updates owed, and what is due."""

from __future__ import annotations

from rl_training.checkpoint.parts import PartState, StoredPart
from rl_training.checkpoint.read import Checkpoint
from rl_training.checkpoint.schema import ClockState
from rl_training.config.settings import ReplaySettings
from rl_training.config.train_config import TrainConfig
from rl_training.core.schedules import Every


class Clock:
    """Where a run stands."""

    name = "clock"

    def __init__(self, config: TrainConfig, settings: ReplaySettings) -> None:
        self.settings, self.total = settings, config.total_timesteps
        self.step, self.previous_step = 0, 0
        self.since_training = 0  # transitions not yet paid for with updates
        self.stop_reason: str | None = None
        self.online_from = settings.offline_updates or 0  # an offline run counts its environment's steps from here on
        # What schedules run towards: extending a run does not change it.
        self.horizon = self.online_from or self.total
        # A run that starts from a trained policy acts by it from the first step.
        has_policy = bool(self.online_from) or config.started_from is not None
        self.random_until = 0 if has_policy else settings.learning_starts
        self.log = Every(config.log_interval)
        self.evaluate = Every(config.steps_between_evaluations)
        self.checkpoint = Every(config.checkpoint_interval)

    @property
    def progress(self) -> float:
        """The share of the run that schedules have behind them."""
        # Schedules belong to the offline stage: behind it IQL's actor, at its end, would never learn again.
        return 0.0 if 0 < self.online_from <= self.step else self.step / self.horizon

    @property
    def running(self) -> bool:
        return self.step < self.total and self.stop_reason is None

    @property
    def finished(self) -> bool:
        return self.step >= self.total

    def is_due(self, what: Every) -> bool:
        """Whether the step just counted passed a multiple of an interval."""
        return what.passed(self.previous_step, self.step)

    def count(self, steps: int) -> None:
        """Count environment steps, or offline updates."""
        self.previous_step = self.step
        self.step += steps

    def updates_until(self, end: int, interval: int) -> int:
        """How many updates may follow at once: up to `end`, a multiple of `interval`, or the next thing that is due."""
        due = (self.log, self.evaluate, self.checkpoint)
        intervals = [interval, *(every.interval for every in due)]
        return min(end - self.step, *(length - self.step % length for length in intervals))

    def updates_owed(self, transitions: int) -> int:
        """A constant update-to-data ratio whatever `num_envs` is: the remainder is carried over."""
        beyond = self.step - self.online_from - self.settings.learning_starts
        if beyond <= 0:
            return 0
        self.since_training += min(transitions, beyond)
        trainings, self.since_training = divmod(self.since_training, self.settings.train_frequency)
        return trainings * self.settings.gradient_updates_per_step

    # --- state -----------------------------------------------------------------------------------------------------
    def state(self, previous: Checkpoint | None) -> PartState:
        return PartState({"step": self.step, "since_training": self.since_training, "horizon": self.horizon})

    def check(self, stored: StoredPart) -> None:
        frequency = self.settings.train_frequency
        if stored.parse(ClockState).since_training >= frequency:  # a remainder: more would be made up for at once
            raise stored.invalid(f"since_training must be below train_frequency ({frequency})")

    def load(self, stored: StoredPart) -> None:
        state = stored.parse(ClockState)
        self.step = self.previous_step = state.step
        self.since_training, self.horizon = state.since_training, state.horizon
