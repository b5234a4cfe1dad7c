"""Time for one observation: exported policies in onnxruntime and `predict`, by turns, with networks of the configs.

python benchmarks/export_latency.py [--only sac dqn] [--rounds 40] [--output FILE]    (`make bench-export`)
The ratio is the time in onnxruntime over that of `predict`, the median over the rounds with a bootstrap interval. Both
have one thread. Weights are those of the start of training: the time does not depend on them. `bound` is onnxruntime
with arrays that are bound to the session once and written for each observation. What no graph avoids is measured alone:
a call of onnxruntime (a file that negates one number), such a file with one product of 256 by 256, and the convolutions
of networks for images.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from timeit import Timer
from typing import Any

import rl_training  # noqa: F401  before numpy and torch: it chooses how they round

import numpy as np  # isort: skip
import torch
from numpy.typing import NDArray
from provenance import write_result

from rl_training.algorithms.registry import algorithm_names, learner_class
from rl_training.cli import load_config
from rl_training.config.fields import parse
from rl_training.config.train_config import TrainConfig
from rl_training.core.statistics import bootstrap_interval
from rl_training.deploy.export.check import TIMED_CALLS, check_policy, latency_rounds
from rl_training.deploy.export.formats import Run, load_onnx, onnx_session, to_onnx
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
    bound_times, bound_ratios = timed(bound(data, policy), policy, rounds)
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
        "bound_us": round(median(bound_times["exported"]), 1),
        "bound_ratio": round(median(bound_ratios), 4),
        "max_difference": check.max_difference,
        "reached": median(ratios) <= WANTED,
        **parts,
    }


def bound(data: bytes, policy: Policy) -> Run:
    """The policy of an ONNX file with inputs and outputs for one observation that are bound once."""
    from onnxruntime import OrtValue

    session, inputs = onnx_session(data), policy.sample(np.random.default_rng(0), 1)[0]
    binding, outputs = session.io_binding(), session.run(policy.output_names, inputs)
    inputs = {name: one.copy() for name, one in inputs.items()}
    for name, one in inputs.items():
        binding.bind_ortvalue_input(name, OrtValue.ortvalue_from_numpy(one))  # shares the array's memory
    for name, one in zip(policy.output_names, outputs, strict=True):
        binding.bind_ortvalue_output(name, OrtValue.ortvalue_from_numpy(one))

    def run(arrays: Mapping[str, NDArray[Any]]) -> list[NDArray[Any]]:
        for name, one in inputs.items():
            one[...] = arrays[name]
        session.run_with_iobinding(binding)
        return outputs

    return run


def limits(rounds: int) -> dict[str, float]:
    """Microseconds of a call of onnxruntime, alone and with one product of 256 by 256."""
    from onnx import TensorProto, helper, numpy_helper

    weight = numpy_helper.from_array(np.ones((256, 256), np.float32), "weight")
    found = {}
    for name, width, weights in (("call_us", 1, []), ("call_and_product_us", 256, [weight])):
        node = helper.make_node("Gemm" if weights else "Neg", ["obs", *(one.name for one in weights)], [ACTION])
        sides = [helper.make_tensor_value_info(one, TensorProto.FLOAT, ["batch", width]) for one in ("obs", ACTION)]
        graph = helper.make_graph([node], "limit", sides[:1], sides[1:], weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
        session, row = onnx_session(model.SerializeToString()), np.zeros((1, width), np.float32)
        calls = Timer(lambda session=session, row=row: session.run([ACTION], {"obs": row}))
        found[name] = round(median(calls.repeat(rounds + 1, TIMED_CALLS)[1:]) / TIMED_CALLS * 1e6, 1)
    return found


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
                  f"ratio {row['ratio']:.3f} {row['interval']}, bound {row['bound_ratio']:.3f}",
                  flush=True)  # fmt: skip
    import onnxruntime

    what = "time for one observation in onnxruntime over that of predict; at most a fifth is wanted"
    missed = [row["case"] for row in rows if not row["reached"]]
    found = {"what": what, "wanted": WANTED, "missed": missed, "onnxruntime": onnxruntime.__version__}
    result = {**found, **limits(args.rounds), "rows": rows}
    write_result(args.output, result)


if __name__ == "__main__":
    main()
