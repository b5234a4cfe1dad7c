"""The report of a tuning study has every trial, the best value so far and the importance of settings."""

from __future__ import annotations

import re

from rl_training.studies.tune_page import tune_page

ROWS = [
    {"trial": 0, "state": "complete", "value": 3.0, "learning_rate": 0.001, "reason": ""},
    {"trial": 1, "state": "pruned", "value": None, "learning_rate": 0.5, "reason": "pruned at step 40 <median>"},
    {"trial": 2, "state": "complete", "value": 1.0, "learning_rate": 0.01, "reason": ""},
    {"trial": 3, "state": "complete", "value": 7.0, "learning_rate": 0.002, "reason": ""},
]


def test_trials_are_ranked_and_the_best_value_so_far_is_drawn() -> None:
    page = tune_page("ppo tuned on Pendulum-v1", ROWS, {"learning_rate": 0.75, "gamma": 0.25})
    assert "4 trials, 3 complete, 1 pruned" in page
    ranked = page.partition("Trials, best first")[2]
    assert re.findall(r'<tr><th scope="row">(\d)</th>', ranked) == ["3", "0", "2", "1"]
    assert "pruned at step 40 &lt;median&gt;" in ranked
    rows = re.findall(r'<tr><th scope="row">(\d)</th><td>([\d.]+)</td><td>([\d.]+)</td></tr>', page)
    assert [(int(n), float(v), float(b)) for n, v, b in rows] == [(0, 3, 3), (2, 1, 3), (3, 7, 7)]


def test_the_most_important_setting_fills_its_bar() -> None:
    page = tune_page("ppo", ROWS, {"learning_rate": 0.75, "gamma": 0.25})
    bars = re.findall(r'<meter min="0" max="([\d.]+)" value="([\d.]+)">', page)
    assert [(float(high), float(value)) for high, value in bars] == [(0.75, 0.75), (0.75, 0.25)]


def test_a_study_without_results_has_a_page() -> None:
    assert "No data yet" in tune_page("ppo", [], {})
