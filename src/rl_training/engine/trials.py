"""Losses called once without effect, to find the names of their metrics and the random numbers of dropout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from rl_training.engine.gradients import dropout_name, entry, loss_pass
from rl_training.engine.networks import Batch, LossPass
from rl_training.engine.phases import UPDATE, LossResult, Noise, NoiseSpec
from rl_training.models.layers import recording_dropout

if TYPE_CHECKING:
    from rl_training.engine.engine import Engine


def metric_names(engine: Engine, batch: Batch, noise: Noise) -> dict[str, list[str]]:
    """The metric names of each phase."""
    first = entry(noise, 0)
    passes = {phase.name: loss_pass(phase, first) for phase in engine.phases}
    return {name: list(result.metrics) for name, result in _results(engine, batch, noise, passes).items()}


def dropout_specs(engine: Engine, batch: Batch, noise: Noise) -> dict[str, NoiseSpec]:
    """The random numbers of all dropout layers in one update."""
    shapes: dict[str, list[torch.Size]] = {phase.name: [] for phase in engine.phases}
    passes = {phase.name: LossPass(phase.groups, recorded=shapes[phase.name]) for phase in engine.phases}
    with recording_dropout():
        _results(engine, batch, noise, passes)
    return {
        dropout_name(phase, number): NoiseSpec("uniform", tuple(shape))
        for phase, found in shapes.items()
        for number, shape in enumerate(found)
    }


@torch.no_grad()
def _results(engine: Engine, batch: Batch, noise: Noise, passes: Mapping[str, LossPass]) -> dict[str, LossResult]:
    """The results of the first seed's losses."""
    groups, results = engine.groups_by_seed()[0], {}
    batch, noise = entry((batch, noise), 0)
    for phase in engine.phases:
        given = {**batch, UPDATE: engine.count_tensor + 1} if phase.counted else batch
        nets = engine.binding.networks_of(groups, passes[phase.name])
        results[phase.name] = phase.loss(nets, engine.binding.batch_for(groups, given), noise)
        batch = {**batch, **results[phase.name].carried}
    return results
