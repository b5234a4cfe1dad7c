"""What an error message tells the user to do works when it is done, word for word."""

from __future__ import annotations

import re
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from rl_training import SAC
from rl_training.core.checks import UserError


class Unbounded(gymnasium.Env[Any, Any]):
    observation_space = spaces.Box(-1, 1, (2,), np.float32)

    def __init__(self, low: float, high: float) -> None:
        self.action_space = spaces.Box(low, high, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.taken = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        assert self.action_space.contains(action)
        self.taken += 1
        return np.zeros(2, np.float32), -float(np.square(action).sum()), False, self.taken == 5, {}


@pytest.mark.parametrize(("low", "high"), [(-np.inf, np.inf), (2.0, np.inf), (-np.inf, -3.0)])
def test_the_hint_for_unbounded_actions_trains_when_followed(low: float, high: float, tmp_path) -> None:
    def make() -> Any:
        return Unbounded(low, high)

    small = {"total_timesteps": 20, "learning_starts": 10, "batch_size": 4, "hidden_sizes": (4,), "eval_episodes": 1,
             "output_dir": tmp_path, "video": False, "report": False}  # fmt: skip
    with pytest.raises(UserError) as refused:
        SAC(make, **small).learn(show_progress=False)
    hint = re.fullmatch(r"action space .* is unbounded; give it bounds, e\.g\. (.*)", str(refused.value))
    assert hint is not None

    def follow() -> Any:
        return eval(hint[1], {"gymnasium": gymnasium, "env": make()})

    agent = SAC(follow, **small).learn(show_progress=False)
    assert agent.result is not None and agent.result.metrics["gradient_steps"] == 10
