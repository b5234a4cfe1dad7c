"""Learners, replays and short runs of several seeds, and the exact comparison of one seed's share of a run."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from conftest import SMALL_SETTINGS, settings_of
from torch import Tensor

from rl_training.algorithms.base import Learner
from rl_training.algorithms.on_policy import OnPolicyLearner
from rl_training.algorithms.registry import learner_class
from rl_training.checkpoint.read import load_checkpoint
from rl_training.config.fields import parse
from rl_training.core.results import TrainResult
from rl_training.core.specs import EnvSpec, action_spec, image, vector
from rl_training.data.replay.buffer import ReplayBuffer
from rl_training.data.rollout import Rollout
from rl_training.run.run import train

QuickConfig = Callable[..., Any]
SEEDS = (5, 0, 2**31 - 1)
BATCH_NORM = ("crossq", "flashsac")  # along a weight before a batch norm the gradient is zero but for rounding
BY_SEED = (
    "params.", "buffers.", "adam_", "rms_", "momentum.", "metric_sum", "metric_latest", "first_nonfinite_update",
    "normalizer.mean", "normalizer.sq", "reward_normalizer.mean", "reward_normalizer.sq", "reward_largest", "open.",
)  # fmt: skip


def run(quick_config: QuickConfig, algo: str, path: Path, seeds: tuple[int, ...], **changes: Any) -> TrainResult:
    config = quick_config(algo, path, seeds=seeds, **{"eval_episodes": 0, "checkpoint_interval": 50, **changes})
    return train(config, show_progress=False)


def saved_arrays(result: TrainResult, seed_index: int) -> dict[str, Tensor]:
    """One seed's share of the last checkpoint: parameters, Adam, metrics, replay, environments."""
    checkpoint = load_checkpoint(result.checkpoint_path)
    arrays = {}
    for name, tensor in checkpoint.tensors("learner.safetensors").items():
        arrays[name] = tensor[seed_index] if name.startswith(BY_SEED) else tensor
        if name == "beta_powers" and tensor.dim() == 3:  # each seed takes steps of its own
            arrays[name] = tensor[..., seed_index].contiguous()
    for segment in checkpoint.names("replay_"):
        rows = checkpoint.tensors(segment)
        if "final_frames" in rows:  # one seed's behind the other's
            counts = (rows["final"] >= 0).sum(1).tolist()
            rows["final_frames"] = rows["final_frames"].split(counts)  # type: ignore[assignment]
        for name, tensor in rows.items():
            arrays[f"{segment}.{name}"] = tensor[seed_index]
    for file in checkpoint.names("rollout"):
        for name, tensor in checkpoint.tensors(file).items():
            arrays[f"{file}.{name}"] = tensor[seed_index]
    if learner_class(checkpoint.state["config"]["algo"]).offline:  # there are no environments and no replay
        return arrays
    envs = checkpoint.tensors("envs.safetensors")
    count = len(envs["obs"]) // len(checkpoint.state["config"]["seeds"])
    for row in range(count):
        arrays[f"obs.{row}"] = envs["obs"][seed_index * count + row]
        arrays[f"actions.{row}"] = envs[f"actions_{seed_index * count + row}"]
    return arrays


def assert_same_bits(together: dict[str, Tensor], alone: dict[str, Tensor]) -> None:
    assert together.keys() == alone.keys()
    # Compared as bytes: a metric of a phase that has not run is NaN, which is not equal to itself.
    assert [k for k in together if together[k].numpy().tobytes() != alone[k].numpy().tobytes()] == []


def together_shape(algo: str) -> EnvSpec:
    cls = learner_class(algo)
    if cls.observations == ("image",):
        return EnvSpec(image(6, 15, 16, frames=2), action_spec(cls.actions[0], 1))
    return EnvSpec(vector(3), action_spec(cls.actions[0], 2 if ("discrete" in cls.actions) else 1))


def make_learner(algo: str, seeds: tuple[int, ...] = (0,), wanted: Any = (), **options: Any) -> Learner:
    cls = learner_class(algo)
    settings = parse(cls.settings_type, settings_of(algo, SMALL_SETTINGS, dict(wanted)))
    models = []
    for seed in seeds:
        torch.manual_seed(seed)
        models.append(cls.build_model(together_shape(algo), settings))
    return cls(model=models, settings=settings, seeds=seeds, **options)


def filled_source(learner: Learner, rows: dict[str, np.ndarray] | None = None) -> Any:
    """40 transitions of every seed: a replay, or the rollout of 4 environments, with `rows` other than the usual."""
    spec, seeds = together_shape(learner.name), len(learner.seeds)
    if not isinstance(learner, OnPolicyLearner):
        return filled_replay(learner.name, seeds)
    rows = random_rows(spec, seeds) if rows is None else rows
    layout, device = learner.rollout_layout(learner.settings), torch.device("cpu")
    rollout = Rollout(spec, layout, seeds=seeds, num_envs=4, steps=10, device=device, host=True)
    tensors = {name: torch.from_numpy(one).unflatten(1, (4, 10)) for name, one in rows.items()}
    if learner.stored:  # as a new policy acts: with the mean 0 and the deviation 1
        tensors["logprobs"] = (-0.5 * tensors["actions"].square() - 0.5 * math.log(2 * math.pi)).sum(-1)
    for step in range(10):
        now = {name: one[:, :, step] for name, one in tensors.items()}
        rollout.add(rollout.open_state, **now)
    return rollout


def filled_replay(algo: str, seeds: int) -> ReplayBuffer:
    spec = together_shape(algo)
    replay = ReplayBuffer(spec, capacity=40, num_envs=40, seeds=seeds)
    replay.add(**random_rows(spec, seeds))
    return replay


def take_updates(learner: Learner, source: Any, count: int, step: int) -> int:
    """`count` updates on a replay, or those of one rollout. Returns how many."""
    before = learner.update_count
    if isinstance(learner, OnPolicyLearner):
        learner.learn(source, 0.0, step)
    else:
        learner.train(source, count, step)
    return learner.update_count - before


def random_rows(spec: EnvSpec, seeds: int) -> dict[str, np.ndarray]:
    """40 transitions of every seed."""
    rng = np.random.default_rng(0)
    if spec.observation.dtype == "uint8":
        obs = rng.integers(256, size=(2, seeds, 40, *spec.observation.shape), dtype=np.uint8)
    else:
        obs = rng.standard_normal((2, seeds, 40, *spec.observation.shape)).astype(np.float32)
    actions = rng.uniform(-1, 1, (seeds, 40, spec.action.size)).astype(np.float32)
    return {
        "obs": obs[0],
        "next_obs": obs[1],
        "actions": rng.integers(spec.action.size, size=(seeds, 40)) if spec.action.kind == "discrete" else actions,
        "rewards": rng.standard_normal((seeds, 40)).astype(np.float32),
        "terminated": rng.random((seeds, 40)) < 0.2,
        "truncated": rng.random((seeds, 40)) < 0.2,
    }
