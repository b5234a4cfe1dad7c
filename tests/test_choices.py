"""Device, threads and workers of a run follow from its config and the machine."""

from __future__ import annotations

import pytest

from rl_training.core.types import EnvShape
from rl_training.experiment.config import TrainConfig
from rl_training.runtime import choices
from rl_training.runtime.fitting import parse_settings

SHAPE = EnvShape((17,), "float32", 6, False)


def threads(**changes) -> int:
    config = TrainConfig("sac", "HalfCheetah-v5", total_timesteps=1000, device="cpu", **changes)
    return choices.choose(config, parse_settings(config)[1], SHAPE).threads


@pytest.mark.parametrize(
    ("asked", "found"), [(None, 8), ("3", 3), ("99", 8), ("0", 8), ("-1", 8), ("many", 8), ("4,2", 8), ("", 8)]
)
def test_a_large_update_uses_the_cores_or_fewer_if_the_user_says_so(monkeypatch, asked, found) -> None:
    monkeypatch.setattr(choices, "cores", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if asked is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", asked)
    large = {"hidden_sizes": [256, 256], "batch_size": 256}
    assert threads(algo_kwargs=large) == found
    assert threads(algo_kwargs=large, threads=5) == 5
    assert threads(algo_kwargs={"hidden_sizes": [8], "batch_size": 32}) == 1


def test_compiling_is_worth_it_for_the_updates_there_will_be() -> None:
    def compiled(steps: int, **settings: int) -> bool:
        config = TrainConfig("iql", "Hopper-v5", total_timesteps=steps, device="cpu", algo_kwargs=settings)
        return choices.choose(config, parse_settings(config)[1], SHAPE).compiled

    assert compiled(1_000_000) and not compiled(128)
    assert not compiled(128, offline_steps=1_000_000), "the run ends before"
    assert compiled(1_000_000, offline_steps=100)
