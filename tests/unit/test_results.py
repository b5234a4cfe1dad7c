"""What the results page says is what the result files say, and each of them says how it was made."""

from __future__ import annotations

import importlib
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from rl_training.algorithms.returns import gae
from rl_training.cli import load_config

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = ROOT / "benchmarks"
RESULTS = sorted((BENCHMARKS / "results").glob("*.json"))
# Programs whose result files are kept.
WRITERS = (
    *("learn", "bench", "bench_gpu", "cost_growth", "memory", "checkpoint_cost", "checkpoint_overhead", "pixel_speed"),
    *("priority_cost", "peer_scores", "goals", "dict_cost", "bench_on_policy", "serve_load", "modern_speed"),
    *("loop_speed", "export_latency", "trial_cost", "kernel_cost"),
    *("../scripts/kill_campaign", "../scripts/fuzz", "../scripts/install_check"),
)


@pytest.fixture
def benchmark_module(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])

    def load(name: str) -> ModuleType:
        return importlib.import_module(name)

    return load


def test_the_table_of_results_is_made_from_the_files(benchmark_module: Any) -> None:
    folder = BENCHMARKS / "results"
    table = benchmark_module("learn").table(folder)
    assert (folder / "README.md").read_text() == table, "run benchmarks/learn.py, or write table() anew"


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_every_result_names_its_commit_versions_and_command(path: Path) -> None:
    made = json.loads(path.read_text())["provenance"]
    assert re.fullmatch(r"[0-9a-f]{40}(\+changes)?", made["commit"])
    if not made.get("inferred"):
        assert {"python", "torch", "processor"} <= set(made["versions"])
        assert re.match(r"python (benchmarks|scripts)/\w+\.py", made["command"])


def test_every_program_of_results_writes_its_provenance(
    benchmark_module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", [str(BENCHMARKS / "memory.py"), "--peer-python", "/far/away/bin/python", "--x=1"])
    provenance = benchmark_module("provenance")
    provenance.write_result(tmp_path / "a.json", {"figure": 3}, sys.executable, trained_commit="abc")
    result = json.loads((tmp_path / "a.json").read_text())
    made = result["provenance"]
    assert result["figure"] == 3 and made["trained_commit"] == "abc" and made["commit"] == provenance.COMMIT
    assert made["command"] == "python benchmarks/memory.py --peer-python python --x=1"  # no paths of this machine
    assert made["versions"]["torch"] and made["peer_versions"]["torch"]
    for name in WRITERS:
        text = (BENCHMARKS / f"{name}.py").read_text()
        assert "write_result(" in text and ".json.write" not in text and "output.write_text" not in text, name


@pytest.mark.parametrize("algo", ["qr_dqn", "rainbow_dqn", "sac", "iql"])
def test_every_kind_of_algorithm_can_be_measured_without_an_environment(benchmark_module: Any, algo: str) -> None:
    """Discrete and continuous actions, priorities, a dataset; several seeds."""
    task = benchmark_module("sources").shape_name(algo)
    words = ["batch_size=4", "hidden_sizes=[8]", "seeds=2", 'compile="off"', "updates=3"]
    learner, source, count = benchmark_module("side_learner").make_learner(algo, task, words)
    learner.train(source, count, 0)
    assert learner.seeds == (0, 1) and learner.update_count == count == 3


@pytest.mark.sweep
def test_gpu_benchmark_runs_dry_on_a_cpu(
    benchmark_module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--device", "cpu", "--eager", "--algos", "dqn", "--seeds", "1", "2", "--rounds", "1"]
    words += ["--set", "batch_size=4", "hidden_sizes=[8]", "--output", str(tmp_path / "a.json")]
    monkeypatch.setattr(sys, "argv", [str(BENCHMARKS / "bench_gpu.py"), *words])
    benchmark_module("bench_gpu").main()
    result = json.loads((tmp_path / "a.json").read_text())
    one, two = result["updates"]
    assert two["all_per_s"] == 2 * two["per_s"] > 0 and one["flop"] == two["flop"]
    assert one["share_of_product"] == pytest.approx(one["per_s"] * one["flop"] / result["product_flops"])
    rows = [row for group in ("runs", "plain", "calls") for row in result[group]]
    assert len(rows) == 6 and all(row["per_s"] > 0 for row in rows)
    assert any("predict of 1,024" in line for line in benchmark_module("speed_page").gpu_section(result))


def test_operations_of_an_update_are_those_of_its_layers(benchmark_module: Any) -> None:
    counted = benchmark_module("flops").update_flops("sac", "HalfCheetah-v5", ("batch_size=32", "hidden_sizes=[64,64]"))
    actor, critic = (inputs * 64 + 64 * 64 + 64 * outputs for inputs, outputs in ((17, 12), (23, 1)))
    # Two critics: loss and its gradient 6, target 2, through them to the actor 4; the actor: next action 2, loss 6.
    assert counted == pytest.approx(32 * (2 * critic * 12 + actor * 8), rel=0.05)


def test_where_scaling_breaks(benchmark_module: Any) -> None:
    growth = benchmark_module("cost_growth")
    rows = [{"value": n, "work": n, "ms": ms} for n, ms in ((1, 1.0), (2, 1.1), (4, 2.2), (8, 6.0), (16, 30.0))]
    assert growth.first_break(rows[:3]) is None  # a fixed cost is no break
    found = growth.first_break(rows)
    assert (found["from"], found["to"], found["work_grows"]) == (4, 8, 2.0)


def test_the_speed_page_has_every_row_and_its_aim(benchmark_module: Any, tmp_path: Path) -> None:
    page = benchmark_module("speed_page")
    ratios = {"ratio_median": 2.5, "ratio_interval": [2.4, 2.6]}
    rates = {"ours_steps_per_s": 500.0, "peer_steps_per_s": 200.0, "ready_s": [20.0, 3.5], "peak_mib": [400, 300]}
    sac = {"task": "sac-halfcheetah", "peer": "stable_baselines3 SAC", "unit": "environment steps", **rates, **ratios}
    failed, help_ = {"task": "td3-halfcheetah", "error": "no"}, {"task": "--help", "unit": "programs", "ours_s": 0.4}
    start = {"task": "first update, eager", "unit": "programs", "ours_s": 3.0, "peer": "sbx", "peer_s": 1.5}
    made = {"commit": 40 * "a", "versions": {"torch": "2", "processor": "A CPU"}}
    result = {"machine": {"cores": 2}, "rounds": 8, "provenance": made, "training": [sac, failed]}
    result["programs"] = [help_, {**start, "ratio_median": 0.5, "ratio_interval": [0.4, 0.6]}]
    (tmp_path / "a.json").write_text(json.dumps(result))
    page.write_page(tmp_path / "a.json", tmp_path / "a.md")
    text = (tmp_path / "a.md").read_text()
    row = "| sac-halfcheetah | stable_baselines3 SAC | **2.50** [2.40, 2.60] | 2.3 | 500 | 200 | 20 / 3.5 | 400 / 300 |"
    assert row in text and "| td3-halfcheetah | | failed: no |" in text and "| --help |  |  |  | 0.40 |  |" in text
    assert "| first update, eager | sbx | **0.50** [0.40, 0.60] | 8 s | 3.00 | 1.50 |" in text
    assert "Faster than the peer in 1 of 2 rows; slower in first update, eager (sbx: 0.50)." in text
    other = {**result, "training": [{**sac, "ratio_median": 3.0}], "provenance": {**made, "commit": 40 * "b"}}
    text = "\n".join(page.other_section([result, other]))
    assert "| workload | peer | A CPU, commit aaaaaaaaaaaa | A CPU, commit bbbbbbbbbbbb |" in text
    assert "| sac-halfcheetah | stable_baselines3 SAC | **2.50** [2.40, 2.60] | **3.00** [2.40, 2.60] |" in text


def test_kernels_are_compared_by_turns(
    benchmark_module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, started = benchmark_module("kernel_cost"), []

    def timed(starts: list[Any], rounds: int, parallel: int) -> list[Any]:
        started.extend(start.args[2] for start in starts)
        return [Mock(rates=[4.0, 6.0]), Mock(rates=[2.0, 4.0]), Mock(rates=[1.0]), None]

    monkeypatch.setattr(module, "in_turns", timed)
    words = ["narrow-products", "--cases", "dqn=1", "sac=2", "--output", str(tmp_path / "a.json")]
    monkeypatch.setattr(sys, "argv", [str(BENCHMARKS / "kernel_cost.py"), *words])
    module.main()
    result = json.loads((tmp_path / "a.json").read_text())
    assert result["reached"] == "dqn 1.75" and result["rows"][1]["error"]
    assert [words[-1] for words in started] == ['products="own"', 'products="torch"'] * 2
    assert all('march="haswell"' in words for words in started) and "seeds=2" in started[2]
    text = "\n".join(benchmark_module("speed_page").kernel_section([result]))
    assert "cores): dqn 1.75." in text


def test_trials_take_turns_until_the_time_is_up(
    benchmark_module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module, order = benchmark_module("trial_cost"), []

    def trial(folder: Path, name: str, seeds: int, args: Any) -> dict[str, float]:
        order.append((name, seeds))
        (folder / "runs" / name).mkdir(parents=True)
        (folder / "runs" / name / "run.json").write_text('{"execution_plan": {}}')
        return {"seconds": 10.0 + seeds, "training_s": float(seeds)}

    monkeypatch.setattr(module, "trial", trial)
    words = ["--device", "cpu", "--max-rounds", "2", "--output", str(tmp_path / "a.json")]
    monkeypatch.setattr(sys, "argv", [str(BENCHMARKS / "trial_cost.py"), *words])
    assert module.main() == 0
    assert order == [("one-0", 1), ("many-0", 8), ("many-1", 8), ("one-1", 1)]
    result = json.loads((tmp_path / "a.json").read_text())
    assert result["ratio"] == round(18 / 11, 3) and result["training_ratio"] == 8 and len(result["pairs"]) == 2
    monkeypatch.setattr(sys, "argv", [*sys.argv, "--seeds", "13", "--max-seconds", "0"])
    assert module.main() == 1, "a loss is reported as one"
    result = json.loads((tmp_path / "a.json").read_text())
    assert result["reached"].startswith("not reached") and len(result["pairs"]) == 1, "one pair at least"


def test_every_proof_has_a_valid_config(benchmark_module: Any) -> None:
    for name, proof in benchmark_module("learn").PROOFS.items():
        config = load_config(proof.config, proof.overrides, **proof.changes)
        assert config.algo == name.partition("-")[0] and proof.judged in ("best", "final", "evaluation")
        assert not proof.at_most or proof.threshold is not None


def test_a_curve_has_the_seconds_of_the_run_until_each_evaluation(benchmark_module: Any) -> None:
    """Between logged steps they are interpolated; rows of evaluations in the metrics have no time."""
    logged = [{"step": s, "seed": k, "time/time_elapsed": s / 5} for s in (10, 20) for k in (0, 1)]
    logged.append({"step": 20, "seed": 0, "eval/mean_reward": 1.0})
    evaluations = [{"step": s, "seed": 0, "returns": [1.0, 2.0], "lengths": [1, 1]} for s in (10, 15, 20)]
    curve = benchmark_module("learn").curve_of(evaluations, logged)
    assert [row["seconds"] for row in curve] == [2.0, 3.0, 4.0] and curve[0]["mean"] == 1.5


def test_what_a_proof_is_judged_by(benchmark_module: Any, tmp_path: Path) -> None:
    learn = benchmark_module("learn")
    curve = [{"step": s, "seed": k, "mean": m} for s, k, m in ((20, 0, 9.0), (10, 0, 1.0), (20, 1, 5.0), (10, 1, 11.0))]
    best = learn.best_evaluation(curve)
    assert (best["step"], best["mean"]) == (20, 7.0)  # not the 11 of one seed
    summary = {"best": {"iqm": 300.0}, "evaluation": best}
    result = {"name": "none", "summary": summary, "threshold": 250.0}
    assert learn.passed(result, tmp_path) is True
    assert learn.passed({**result, "at_most": True}, tmp_path) is False
    judged = {**result, "judged": "evaluation", "threshold": 7.0}
    assert learn.passed(judged, tmp_path) is True and learn.passed({**judged, "threshold": 7.1}, tmp_path) is False


@pytest.mark.sweep
def test_on_policy_benchmark_runs_dry_on_a_cpu(
    benchmark_module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["--device", "cpu", "--quick", "--rounds", "2", "--output", str(tmp_path / "a.json")]
    monkeypatch.setattr(sys, "argv", [str(BENCHMARKS / "bench_on_policy.py"), *words])
    benchmark_module("bench_on_policy").main()
    result = json.loads((tmp_path / "a.json").read_text())
    assert result["learning"]["ours_s"] > 0 and result["on_device"]["steps_per_s"] > 0
    assert len(result["on_device"]["profile"]["largest"]) == 30 and "wanted: >= 5" in result["reached"]


def test_plain_ppo_learns_from_the_same_advantages(benchmark_module: Any) -> None:
    """The yardstick does the same work: where an episode was truncated, its advantage has the value of what follows."""
    plain = benchmark_module("side_ppo_eager")
    settings = plain.Settings()
    ends = {name: torch.rand(3, 40) < 0.1 for name in ("terminated", "truncated")}
    rewards, values, last = torch.randn(3, 40), torch.randn(3, 40), torch.randn(3)
    cut = torch.randn(3, 40)  # the values of the observations at which episodes were truncated
    following = torch.cat([values[:, 1:], last[:, None]], 1)
    successors = torch.where(ends["truncated"], cut, following)
    ours = gae({**ends, "rewards": rewards}, values, successors, settings.gamma, settings.gae_lambda)
    bootstrap = settings.gamma * cut * (ends["truncated"] & ~ends["terminated"])
    ended = (ends["terminated"] | ends["truncated"]).float()
    rollout = {"rewards": (rewards + bootstrap).T, "values": values.T, "ended": ended.T}
    found = plain.PlainPPO(17, 6, False, settings, "cpu").advantages(rollout, last)
    torch.testing.assert_close(found.T, ours)
