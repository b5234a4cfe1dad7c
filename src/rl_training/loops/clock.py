"""Counters of a run: steps, updates owed, and due intervals."""

from __future__ import annotations

from rl_training.checkpoint.parts import PartState, StoredPart
from rl_training.checkpoint.read import Checkpoint
from rl_training.checkpoint.schema import ClockState
from rl_training.config.settings import TrainSettings
from rl_training.config.train_config import TrainConfig
from rl_training.core.schedules import Every


class Clock:
    """The counters and intervals of a run."""

    name = "clock"

    def __init__(self, config: TrainConfig, settings: TrainSettings) -> None:
        self.settings, self.total = settings, config.total_timesteps
        self.step, self.previous_step = 0, 0
        self.since_training = 0  # transitions since the last training, fewer than `train_frequency`
        self.stop_reason: str | None = None
        self.online_from = settings.offline_updates or 0  # environment steps of an offline run count from here
        # The end of schedules, which extending a run does not change.
        self.horizon = config.schedule_steps or self.online_from or self.total
        # A run that starts from a trained policy uses it from the first step.
        has_policy = bool(self.online_from) or config.starts_from_all_weights
        self.random_until = 0 if has_policy else settings.learning_starts
        self.log = Every(config.log_interval)
        self.evaluate = Every(config.steps_between_evaluations)
        self.checkpoint = Every(config.checkpoint_interval)

    @property
    def progress(self) -> float:
        """The share of the schedules' horizon that is done."""
        return self.progress_at(self.step)

    def progress_at(self, step: int) -> float:
        """The same at another step."""
        # Online, schedules are back at their start: at the end of the offline stage the rate of IQL's actor is 0.
        return 0.0 if 0 < self.online_from <= step else step / self.horizon

    @property
    def running(self) -> bool:
        return self.step < self.total and self.stop_reason is None

    @property
    def finished(self) -> bool:
        return self.step >= self.total

    def is_due(self, every: Every) -> bool:
        """Whether the step just counted passed a multiple of an interval."""
        return every.passed(self.previous_step, self.step)

    def count(self, steps: int) -> None:
        """Count environment steps, or offline updates."""
        self.previous_step = self.step
        self.step += steps

    def updates_until(self, end: int, interval: int) -> int:
        """The number of updates up to `end`, a multiple of `interval`, or the next log, evaluation or checkpoint."""
        due = (self.log, self.evaluate, self.checkpoint)
        intervals = [interval, *(every.interval for every in due)]
        return min(end - self.step, *(length - self.step % length for length in intervals))

    def updates_owed(self, transitions: int) -> int:
        """The updates due after new transitions; the remainder is carried over, for a constant update-to-data ratio."""
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
        if stored.parse(ClockState).since_training >= frequency:  # more would cause a burst of updates
            raise stored.invalid(f"since_training must be below train_frequency ({frequency})")

    def load(self, stored: StoredPart) -> None:
        state = stored.parse(ClockState)
        self.step = self.previous_step = state.step
        self.since_training, self.horizon = state.since_training, state.horizon
