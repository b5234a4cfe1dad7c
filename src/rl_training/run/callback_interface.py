"""What callbacks use of a session: its counters, values for the next row, changes of environments."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from rl_training.algorithms.base import Learner
from rl_training.config.train_config import TrainConfig
from rl_training.core.checks import UserError
from rl_training.core.schedules import Every
from rl_training.data.replay.buffer import ReplayBuffer
from rl_training.envs.base import VectorEnv
from rl_training.envs.host.vector import SeededEnvs
from rl_training.loops.clock import Clock
from rl_training.loops.regime import Regime
from rl_training.run.inputs import RunInputs
from rl_training.run.logged_values import LoggedValues
from rl_training.run.progress import Progress


class CallbackInterface:
    """The properties and methods of a session for callbacks; `Session` has the rest."""

    inputs: RunInputs
    config: TrainConfig
    clock: Clock
    learner: Learner
    envs: VectorEnv | None
    regime: Regime
    display: Progress
    logged: LoggedValues
    elapsed_before: float  # seconds before this process
    started: float

    @property
    def step(self) -> int:
        return self.clock.step

    @property
    def total(self) -> int:
        return self.clock.total

    @property
    def replay(self) -> ReplayBuffer | None:
        """The replay with every transition up to this step, also on their way to a GPU; None: the run has none."""
        replay = self.regime.replay
        if replay is not None:
            replay.flush()
        return replay

    @property
    def gradient_steps(self) -> int:
        return self.learner.update_count

    @property
    def settings(self) -> Any:
        return self.learner.settings

    @property
    def elapsed(self) -> float:
        return self.elapsed_before + time.monotonic() - self.started

    def log(self, name: str, value: Any) -> None:
        """Put a value into the next row of training metrics: a number, or one for each seed. The last one counts."""
        self.logged.log(name, value, mean=False)

    def log_mean(self, name: str, value: Any) -> None:
        """The same, but the row has the mean of all values that were logged so since the last row, or since `log`."""
        self.logged.log(name, value, mean=True)

    def note(self, text: str) -> None:
        """Show one line to the user."""
        self.display.note(text)

    def passed(self, interval: int) -> bool:
        """Whether this step reached or passed a multiple of `interval`."""
        return self.clock.is_due(Every(interval))

    def change_environment(self, **changes: Any) -> None:
        """Set attributes, or call `set_...` methods, of every training environment, each before its next reset."""
        self._changeable().change(changes)

    def check_changes(self, names: Iterable[str]) -> None:
        """Reject names that `change_environment` cannot change."""
        self._changeable().stepper.check_changes(dict.fromkeys(names))

    def _changeable(self) -> SeededEnvs:
        if self.envs is None or self.envs.watched is None:
            where = "trains without one" if self.envs is None else f"trains in {self.config.env_id}, a VectorEnv"
            raise UserError(f"only a gymnasium.Env can be changed; this run {where}")
        if self.inputs.settings.her is not None:
            raise UserError("her needs an environment that does not change: a curriculum cannot be used with it")
        return self.envs.watched
