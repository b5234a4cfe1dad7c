"""Algorithms with their functions to train, evaluate and predict, derived from the registry."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rl_training.algorithms.base import Learner
from rl_training.algorithms.registry import algorithm_names, learner_class
from rl_training.run.trainers import TrainFunction, trainer_for
from rl_training.run.workflows import evaluate_checkpoint, predict_checkpoint


@dataclass(frozen=True)
class AlgorithmSpec:
    """An algorithm's name, learner and functions."""

    name: str
    learner: type[Learner]
    train_fn: TrainFunction
    evaluate_fn: Callable[..., dict[str, Any]] = evaluate_checkpoint
    predict_fn: Callable[..., Any] = predict_checkpoint


def get_algorithm_spec(name: str) -> AlgorithmSpec:
    """The spec of a registered algorithm."""
    cls = learner_class(name)
    return AlgorithmSpec(cls.name, cls, trainer_for(cls.name))


def list_algorithm_specs() -> tuple[AlgorithmSpec, ...]:
    """The specs of all registered algorithms."""
    return tuple(get_algorithm_spec(name) for name in algorithm_names())
