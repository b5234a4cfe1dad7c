"""Golden values of rliable 1.2.0 for tests/unit/test_rliable.py, on the inputs that this script draws.

rliable needs pandas below 3, so it runs in an environment of its own:
python -m venv ENV && ENV/bin/pip install rliable==1.2.0 'pandas<3' && ENV/bin/python scripts/rliable_goldens.py
"""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from rliable import library, metrics

OUTPUT = Path(__file__).resolve().parent.parent / "tests" / "data" / "rliable.json"
SHAPES = {"one_task": (8, 1), "few_runs": (4, 3), "many": (16, 5), "ties": (10, 2)}  # runs, tasks
REPS = 3000
THRESHOLDS = np.linspace(0.0, 1.2, 13)
AGGREGATES = {
    "iqm": metrics.aggregate_iqm,
    "mean": metrics.aggregate_mean,
    "median": metrics.aggregate_median,
    "optimality_gap": metrics.aggregate_optimality_gap,
}


def scores(name: str, which: int) -> Any:
    """Scores of the first or the second algorithm: skewed, with some above 1; those of `ties` are rounded."""
    random = np.random.default_rng([len(name), which])
    drawn = random.gamma(3.0, 0.25 + 0.05 * which, size=SHAPES[name]) - 0.1
    return np.round(drawn, 1) if name == "ties" else np.round(drawn, 6)


def goldens(name: str) -> dict[str, Any]:
    first, second = scores(name, 0), scores(name, 1)
    found: dict[str, Any] = {"first": first.tolist(), "second": second.tolist(), "points": {}, "intervals": {}}
    for statistic, function in AGGREGATES.items():
        points, intervals = library.get_interval_estimates(
            {"first": first}, lambda x, function=function: np.array([function(x)]), reps=REPS
        )
        found["points"][statistic] = float(points["first"][0])
        found["intervals"][statistic] = intervals["first"][:, 0].tolist()
    pair = {"pair": (first, second)}
    points, intervals = library.get_interval_estimates(pair, metrics.probability_of_improvement, reps=REPS)
    found["points"]["improvement"] = float(points["pair"])
    found["intervals"]["improvement"] = np.ravel(intervals["pair"]).tolist()
    profiles, bands = library.create_performance_profile({"first": first}, THRESHOLDS, reps=REPS)
    found["profile"] = {"values": profiles["first"].tolist(), "interval": bands["first"].tolist()}
    return found


def main() -> None:
    np.random.seed(0)  # rliable's bootstrap draws from numpy's global state
    found = {
        "rliable": version("rliable"),
        "reps": REPS,
        "thresholds": THRESHOLDS.tolist(),
        "cases": {name: goldens(name) for name in SHAPES},
    }
    OUTPUT.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
