"""Names callers rely on."""

from __future__ import annotations

import importlib

import pytest

import rl_training
from rl_training.algorithms.registry import ALGORITHMS, algorithm_names, learner_class
from rl_training.run.algorithm_spec import get_algorithm_spec, list_algorithm_specs


@pytest.mark.parametrize("algo", algorithm_names())
def test_every_algorithm_is_reachable_under_every_name(algo: str) -> None:
    cls = learner_class(algo)
    assert cls.name == algo
    managed = getattr(rl_training, cls.__name__)
    assert managed is getattr(importlib.import_module("rl_training.api"), cls.__name__)
    assert managed.algo_name == algo
    assert getattr(importlib.import_module("rl_training.algorithms"), cls.__name__) is cls
    spec = get_algorithm_spec(algo)
    assert (spec.name, spec.learner) == (algo, cls)
    assert callable(spec.train_fn) and callable(spec.evaluate_fn) and callable(spec.predict_fn)


def test_the_listing_is_the_catalogue() -> None:
    assert [spec.name for spec in list_algorithm_specs()] == list(algorithm_names())
    assert set(ALGORITHMS) <= set(algorithm_names())


def test_unknown_names_are_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"algo must be one of .*, got 'sacc'; did you mean sac\?"):
        get_algorithm_spec("sacc")
    with pytest.raises(AttributeError, match="Nothing"):
        rl_training.Nothing  # noqa: B018


def test_exports_are_what_all_says() -> None:
    for name in rl_training.__all__:
        assert getattr(rl_training, name) is not None
    from rl_training.config.train_config import TrainConfig

    assert rl_training.TrainConfig is TrainConfig
