"""What settings tell a run without being probed."""

from __future__ import annotations

import dataclasses

import pytest

from rl_training.algorithms.cql import CQLSettings
from rl_training.algorithms.dqn import DQNSettings
from rl_training.algorithms.drqv2 import DrQv2Settings
from rl_training.algorithms.registry import algorithm_names, learner_class
from rl_training.algorithms.sac import SACSettings
from rl_training.algorithms.tqc import TQCSettings
from rl_training.config.offline_settings import OfflineSettings
from rl_training.config.settings import ReplaySettings, RolloutSettings, TrainSettings


def test_a_replay_is_plain_unless_an_algorithm_has_the_setting() -> None:
    plain = SACSettings()
    assert (plain.n_step, plain.prioritized, plain.prioritized_alpha, plain.prioritized_beta_start) == (1, False, 0, 1)
    assert not {"n_step", "prioritized"} & {field.name for field in dataclasses.fields(plain)}
    chosen = DQNSettings(n_step=3, prioritized=True, prioritized_alpha=0.5)
    assert (chosen.n_step, chosen.prioritized, chosen.prioritized_alpha) == (3, True, 0.5)
    assert DrQv2Settings().n_step == 3
    with pytest.raises(ValueError, match="n_step must be <= 1000, got 1001"):
        DQNSettings(n_step=1001)


@pytest.mark.parametrize(("steps", "uses", "updates"), [(None, False, None), (0, True, 0), (40, True, 40)])
def test_what_an_offline_run_does(steps: int | None, uses: bool, updates: int | None) -> None:
    settings = CQLSettings(offline_steps=steps)
    assert (settings.uses_environment, settings.offline_updates) == (uses, updates)


def test_an_online_run_uses_its_environment_from_the_start() -> None:
    assert SACSettings().uses_environment and SACSettings().offline_updates == 0


def test_the_sizes_of_the_critics() -> None:
    assert SACSettings(hidden_sizes=(8,)).critic_sizes == (8,)
    assert TQCSettings(hidden_sizes=(8,)).critic_sizes == (512, 512, 512)
    assert TQCSettings(hidden_sizes=(8,), critic_hidden_sizes=None).critic_sizes == (8,)
    assert DrQv2Settings(critic_hidden_sizes=(4,)).critic_sizes == (4,)


@pytest.mark.parametrize("name", algorithm_names())
def test_every_algorithm_s_settings_are_of_the_family(name: str) -> None:
    cls = learner_class(name)
    assert issubclass(cls.settings_type, (ReplaySettings, RolloutSettings))
    assert issubclass(ReplaySettings, TrainSettings) and issubclass(RolloutSettings, TrainSettings)
    assert issubclass(cls.settings_type, OfflineSettings) == cls.offline
