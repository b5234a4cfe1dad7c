"""Time for one observation: exported policies in onnxruntime and `predict`, by turns, with networks of the configs.

python benchmarks/export_latency.py [--only sac dqn] [--rounds 40] [--output FILE]    (`make bench-export`)
The ratio is the time in onnxruntime over that of `predict`, the median over the rounds with a bootstrap interval. Both
have one thread. Weights are those of the start of training: the time does not depend on them. Of networks for images,
the convolutions are measured alone too: no graph around them is faster.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median
from typing import Any

import rl_training  # noqa: F401  before numpy and torch: it chooses how they round

import numpy as np  # isort: skip
import torch
from provenance import write_result

from rl_training.algorithms.registry import algorithm_names, learner_class
from rl_training.cli import load_config
from rl_training.config.fields import parse
from rl_training.config.train_config import TrainConfig
from rl_training.core.statistics import bootstrap_interval
from rl_training.deploy.export.check import check_policy, latency_rounds
from rl_training.deploy.export.formats import Run, load_onnx, to_onnx
from rl_training.deploy.export.policy import ACTION, Policy
from rl_training.envs.host.factory import EnvSource
from rl_training.envs.spaces import env_spec, make_codecs
from rl_training.run.agent import Agent

RESULTS = Path(__file__).parent / "results"
WANTED = 0.2  # of predict's time, at most
TASKS = ("pendulum", "cartpole", "pendulum_pixels")  # of an algorithm's configs the first one there
MORE: dict[str, tuple[str, dict[str, Any]]] = {
    "sac-halfcheetah": ("configs/sac/halfcheetah.yaml", {}),
    "sac-simba": ("configs/sac/humanoid_simba.yaml", {}),
    "ppo-lstm": ("configs/ppo/cartpole.yaml", {"recurrent": "lstm"}),
    "ppo-normalised": ("configs/ppo/pendulum.yaml", {"normalize_observations": True}),
}


def cases() -> dict[str, tuple[str, dict[str, Any]]]:
    """A config and changed settings for every algorithm and a few more."""
    folder = Path(__file__).resolve().parent.parent / "configs"
    found = {}
    for algo in algorithm_names():
        task = next(task for task in TASKS if (folder / algo / f"{task}.yaml").exists())
        found[algo] = (f"configs/{algo}/{task}.yaml", dict[str, Any]())
    return {**found, **MORE}


def make_agent(config_name: str, changes: dict[str, Any]) -> Agent:
    config = load_config(config_name)
    cls, values = learner_class(config.algo), {**config.algo_kwargs, **changes}
    env_id = config.env_id or "Pendulum-v1"  # a dataset's task
    env = EnvSource(env_id, dict(config.env_kwargs)).make()
    codecs = make_codecs(env.observation_space, env.action_space, masked=False)
    env.close()
    learner = cls.create(env_spec(*codecs), parse(cls.settings_type, values), [0])
    return Agent(TrainConfig(config.algo, env_id), learner, *codecs)


def timed(run: Run, policy: Policy, rounds: int) -> tuple[dict[str, list[float]], list[float]]:
    """Microseconds of each round, and the ratios of an exported policy's to those of `predict`."""
    times = latency_rounds(run, policy, rounds)
    return times, [ours / theirs for ours, theirs in zip(times["exported"], times["predict"], strict=True)]


def measure(name: str, config_name: str, changes: dict[str, Any], rounds: int) -> dict[str, Any]:
    policy = Policy(make_agent(config_name, changes))
    data = to_onnx(policy)
    run = load_onnx(data, policy)
    check = check_policy(run, policy, name)
    times, ratios = timed(run, policy, rounds)
    low, high = bootstrap_interval(np.array(ratios), np.median)
    alone, parts = convolutions(data), {}
    if alone is not None:
        part, part_ratios = timed(load_onnx(alone, policy), policy, rounds)
        parts = {
            "convolutions_us": round(median(part["exported"]), 1),
            "convolutions_ratio": round(median(part_ratios), 4),
        }
    return {
        "case": name,
        "config": config_name,
        "changes": changes,
        "onnxruntime_us": round(median(times["exported"]), 1),
        "predict_us": round(median(times["predict"]), 1),
        "ratio": round(median(ratios), 4),
        "interval": [round(low, 4), round(high, 4)],
        "max_difference": check.max_difference,
        "reached": median(ratios) <= WANTED,
        **parts,
    }


def convolutions(data: bytes) -> bytes | None:
    """An ONNX file up to its last convolution and the activation behind it; None: it has none."""
    import onnx

    model = onnx.load_from_string(data)
    numbers = [number for number, node in enumerate(model.graph.node) if node.op_type == "Conv"]
    if not numbers:
        return None
    last = model.graph.node[numbers[-1] + 1]
    found = [value for value in model.graph.value_info if value.name == last.output[0]]
    del model.graph.node[numbers[-1] + 2 :], model.graph.output[:]
    found[0].name = last.output[0] = ACTION
    model.graph.output.extend(found)
    return bytes(model.SerializeToString())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--output", type=Path, default=RESULTS / "export-latency.json")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name, (config, changes) in cases().items():
        if args.only is None or name in args.only:
            rows.append(measure(name, config, changes, args.rounds))
            row = rows[-1]
            print(f"{name:16} {row['onnxruntime_us']:8.1f} us, predict {row['predict_us']:8.1f} us, "
                  f"ratio {row['ratio']:.3f} {row['interval']}", flush=True)  # fmt: skip
    import onnxruntime

    what = "time for one observation in onnxruntime over that of predict; at most a fifth is wanted"
    missed = [row["case"] for row in rows if not row["reached"]]
    result = {"what": what, "wanted": WANTED, "missed": missed, "onnxruntime": onnxruntime.__version__, "rows": rows}
    write_result(args.output, result)


if __name__ == "__main__":
    main()
