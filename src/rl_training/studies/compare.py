"""Comparing algorithms: curves of several seeds to one table per task, and one over all tasks.

`collect(paths)` reads curves, `compare(collection)` makes the tables; both are what other programs call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from rl_training.core.bounds import Bounds, score_bounds
from rl_training.core.checks import UserError, require
from rl_training.core.statistics import (
    Aggregate,
    Array,
    Scores,
    aggregate_iqm,
    aggregate_mean,
    aggregate_median,
    improvement_interval,
    optimality_gap,
    performance_profile,
    probability_of_improvement,
    stratified_interval,
    uses_iqm,
)
from rl_training.studies.collect import Collection, collect, of_metric
from rl_training.studies.curves import RETURN, Curve
from rl_training.studies.tables import (
    SCORES,
    Comparison,
    CurvePoint,
    Estimate,
    Improvement,
    Profile,
    TaskTable,
    VariantRow,
)

__all__ = ["Bounds", "Comparison", "Curve", "Estimate", "VariantRow", "TaskTable", "collect", "compare"]

MAX_GRID = 100  # points of a curve whose seeds were evaluated at different steps
PROFILE_POINTS = 41
MAX_PAIRED = 10  # variants of which all pairs are compared; of more the best one with each other


def compare(
    collection: Collection,
    *,
    score: str = "final",
    bounds: Mapping[str, Bounds] | None = None,
    across: bool = False,
    up_to: int | None = None,
) -> Comparison:
    """One table for each task; with `across` one more over all tasks, for which every task needs bounds.

    `score` is what is ranked and compared: each seed's final value, its best one or the area under its curve.
    `up_to` ignores later steps.
    """
    require(score in SCORES, "score", f"one of {', '.join(SCORES)}, got {score}")
    curves = collection.curves if up_to is None else _cut(collection.curves, up_to)
    metric = of_metric(collection)
    notes = list(collection.notes)
    by_task: dict[str, dict[str, list[Curve]]] = {}
    for one in curves:
        by_task.setdefault(one.task, {}).setdefault(one.name, []).append(one)
    found = {task: _known_bounds(task, metric, bounds or {}) for task in by_task}
    tables = [_task_table(task, by_task[task], score, found[task], notes) for task in sorted(by_task)]
    whole = _across(by_task, score, found, notes) if across else None
    if len(tables) > 1 and not across:
        rest = "across=True compares over all of them, on normalised scores"
        notes.append(f"{len(tables)} tasks have a table each; {rest}")
    return Comparison(metric, score, tuple(tables), whole, tuple(collection.problems), tuple(notes), tuple(curves))


def _cut(curves: Sequence[Curve], up_to: int) -> list[Curve]:
    kept = [
        replace(one, steps=one.steps[inside], values=one.values[inside])
        for one in curves
        if (inside := one.steps <= up_to).any()
    ]
    if not kept:
        raise UserError(f"no curve has a value at step {up_to:,} or before")
    return kept


def _known_bounds(task: str, metric: str, given: Mapping[str, Bounds]) -> Bounds | None:
    """The bounds given for a task, or the published ones of its environment."""
    env_id = task.partition(" (")[0]
    if task in given or env_id in given:
        return given.get(task) or given[env_id]
    return score_bounds(env_id) if metric == RETURN else None


def estimate(scores: Scores, statistic: Aggregate = aggregate_iqm) -> Estimate:
    """A statistic with its interval; for fewer than four seeds of a task the mean alone."""
    if not uses_iqm(min(len(task) for task in scores)):
        shown = aggregate_mean if statistic is aggregate_iqm else statistic
        return Estimate(float(shown(scores)), statistic="mean")
    low, high = stratified_interval(scores, statistic)
    return Estimate(float(statistic(scores)), float(low), float(high))


def _values(curves: Sequence[Curve], score: str) -> Array:
    return np.array([getattr(one, score) for one in curves])


def _task_table(
    task: str, variants: Mapping[str, list[Curve]], score: str, bounds: Bounds | None, notes: list[str]
) -> TaskTable:
    rows = []
    for name, curves in variants.items():
        curves.sort(key=lambda one: one.seed)
        ends = sorted({int(one.steps[-1]) for one in curves})
        if len(ends) > 1:
            notes.append(f"{name} on {task}: its seeds end at different steps, from {ends[0]:,} to {ends[-1]:,}")
        final, scores = _values(curves, "final"), _values(curves, score)
        normalised = None if bounds is None else (scores - bounds[0]) / (bounds[1] - bounds[0])
        rows.append(
            VariantRow(
                name,
                tuple(one.seed for one in curves),
                ends[0],
                estimate([final]),
                estimate([_values(curves, "best")]),
                estimate([_values(curves, "area")]),
                float(np.median(final)),
                tuple(scores.tolist()),
                None if normalised is None else estimate([normalised], optimality_gap),
                _efficiency(curves),
            )
        )
    budgets = sorted({row.steps for row in rows})
    if len(budgets) > 1:
        several = f"from {budgets[0]:,} to {budgets[-1]:,}"
        notes.append(f"{task}: the curves end at different steps, {several}; up_to=... compares them at one")
    rows.sort(key=lambda row: -getattr(row, score).value)
    by_name = {row.name: [np.array(row.scores)] for row in rows}
    return _finished(task, rows, by_name, bounds)


def _finished(task: str, rows: Sequence[VariantRow], scores: Mapping[str, Scores], bounds: Bounds | None) -> TaskTable:
    """The table with what is computed from all variants: probabilities of improvement and profiles."""
    everything = np.concatenate([one for many in scores.values() for one in many])
    thresholds = np.linspace(everything.min(), everything.max(), PROFILE_POINTS)
    names = list(scores)
    pairs = combinations(names, 2) if len(names) <= MAX_PAIRED else ((names[0], name) for name in names[1:])
    return TaskTable(
        task,
        tuple(rows),
        tuple(_improvement(first, second, scores) for first, second in pairs),
        tuple(thresholds.tolist()),
        tuple(_profile(name, many, thresholds) for name, many in scores.items()),
        bounds,
    )


def _improvement(first: str, second: str, scores: Mapping[str, Scores]) -> Improvement:
    x, y = scores[first], scores[second]
    probability = float(probability_of_improvement(x, y))
    if not all(uses_iqm(len(task)) for task in (*x, *y)):
        return Improvement(first, second, probability)
    return Improvement(first, second, probability, *improvement_interval(x, y))


def _profile(name: str, scores: Scores, thresholds: Array) -> Profile:
    def above(drawn: Scores) -> Array:
        return performance_profile(drawn, thresholds)

    values = tuple(above(scores).tolist())
    if not all(uses_iqm(len(task)) for task in scores):
        return Profile(name, values)
    low, high = stratified_interval(scores, above)
    return Profile(name, values, tuple(low.tolist()), tuple(high.tolist()))


def _efficiency(curves: Sequence[Curve]) -> tuple[CurvePoint, ...]:
    """The statistic over seeds at each step; between evaluations at different steps values are interpolated."""
    steps = curves[0].steps
    if any(not np.array_equal(one.steps, steps) for one in curves):
        first, last = max(one.steps[0] for one in curves), min(one.steps[-1] for one in curves)
        every = np.unique(np.concatenate([one.steps for one in curves]))
        steps = every[(every >= first) & (every <= last)]
        if len(steps) > MAX_GRID:
            steps = np.unique(np.linspace(first, last, MAX_GRID).astype(np.int64))
    values = np.stack([np.interp(steps, one.steps, one.values) for one in curves])
    points = []
    for step, column in zip(steps.tolist(), values.T, strict=True):
        at = estimate([column])
        points.append(CurvePoint(step, at.value, at.low, at.high))
    return tuple(points)


def _across(
    by_task: Mapping[str, Mapping[str, list[Curve]]], score: str, bounds: Mapping[str, Bounds | None], notes: list[str]
) -> TaskTable:
    """One table over all tasks, of the variants that every task has."""
    missing = [task for task in sorted(by_task) if bounds[task] is None]
    if missing:
        one = missing[0]
        raise UserError(
            f"tasks are only comparable on normalised scores, and no bounds are known for {', '.join(missing)}; "
            f"give them with bounds=..., e.g. {one}=0:500"
        )
    names = dict.fromkeys(name for variants in by_task.values() for name in variants)
    everywhere = [name for name in names if all(name in variants for variants in by_task.values())]
    if left := [name for name in names if name not in everywhere]:
        notes.append(f"over all tasks these are left out, which some task lacks: {', '.join(left)}")
    if not everywhere:
        raise UserError("no algorithm has runs of every task, so there is nothing to compare across tasks")

    def normalised(name: str, kind: str) -> list[Array]:
        scaled = []
        for task in sorted(by_task):
            low, high = bounds[task] or (0.0, 1.0)
            scaled.append((_values(by_task[task][name], kind) - low) / (high - low))
        return scaled

    scores = {name: normalised(name, score) for name in everywhere}
    rows = []
    for name in everywhere:
        curves = [one for variants in by_task.values() for one in variants[name]]
        rows.append(
            VariantRow(
                name=name,
                seeds=tuple(sorted({one.seed for one in curves})),
                steps=min(int(one.steps[-1]) for one in curves),
                final=estimate(normalised(name, "final")),
                best=estimate(normalised(name, "best")),
                area=estimate(normalised(name, "area")),
                median=float(aggregate_median(normalised(name, "final"))),
                scores=tuple(np.concatenate(scores[name]).tolist()),
                optimality_gap=estimate(scores[name], optimality_gap),
            )
        )
    rows.sort(key=lambda row: -getattr(row, score).value)
    return _finished("all tasks", rows, {row.name: scores[row.name] for row in rows}, (0.0, 1.0))
