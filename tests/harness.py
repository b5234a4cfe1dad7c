"""Shared by the tests that run whole programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent


def run_program(*words: str, cwd: Path = ROOT, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """A Python program or `-m module`, as a user would start it, with the checkout on its path."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "NO_COLOR": "1"}
    return subprocess.run(
        [sys.executable, *words], cwd=cwd, env=env, capture_output=True, text=True, timeout=timeout,
        preexec_fn=_one_core,
    )  # fmt: skip


def _one_core() -> None:
    """Tests run on every core at once: a program that took them all for itself would wait for their turns."""
    if hasattr(os, "sched_setaffinity"):
        mine = sorted(os.sched_getaffinity(0))
        worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
        os.sched_setaffinity(0, {mine[worker % len(mine)]})


def run_cli(*words: str, cwd: Path = ROOT, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    return run_program("-m", "rl_training", *words, cwd=cwd, timeout=timeout)


def decode(path: Path) -> tuple[dict[str, Any], Any]:
    """What a video file says of itself, and its frames (count, height, width, 3)."""
    import imageio_ffmpeg
    import numpy as np

    reader = imageio_ffmpeg.read_frames(str(path))
    meta = next(reader)
    width, height = meta["source_size"]
    frames = [np.frombuffer(frame, dtype=np.uint8).reshape(height, width, 3) for frame in reader]
    return meta, np.stack(frames)


def check_seeds_together(cls: Any, **settings: Any) -> None:
    """A learner's seeds, trained together on given batches, are bit for bit each alone (twenty updates)."""
    import torch

    from rl_training.core.specs import EnvSpec, continuous, vector

    seeds, size, generator = (5, 0, 2**31 - 1), settings["batch_size"], torch.Generator().manual_seed(0)
    parsed, shape = cls.settings_type(**settings), EnvSpec(vector(3), continuous(2))
    together = cls.create(shape, parsed, seeds)
    alone = [cls.create(shape, parsed, [seed]) for seed in seeds]
    for _ in range(20):
        batch = {
            "obs": torch.randn(3, size, 3, generator=generator),
            "actions": torch.rand(3, size, 2, generator=generator) * 2 - 1,
            "rewards": torch.randn(3, size, generator=generator),
            "next_obs": torch.randn(3, size, 3, generator=generator),
            "dones": (torch.rand(3, size, generator=generator) < 0.2).float(),
        }
        together.engine.update(batch, together.engine.host_noise(together.noise(size)))
        for index, learner in enumerate(alone):
            mine = {name: tensor[index : index + 1] for name, tensor in batch.items()}
            learner.engine.update(mine, learner.engine.host_noise(learner.noise(size)))
    for index, learner in enumerate(alone):
        for group, params in learner.engine.groups().items():
            for name, tensor in params.items():
                assert torch.equal(together.engine.groups()[group][name][index], tensor[0]), (group, name)


def check_reference_script(name: str, output_dir: Path, steps: int = 128) -> None:
    """The example finishes in seconds with a tiny budget, still learns something, and exports an agent that loads."""
    from rl_training.run.agent import load_agent

    script = str(ROOT / "examples" / f"{name}_reference.py")
    answer = run_program(
        script, "--total-timesteps", str(steps), "--eval-episodes", "1", "--output-dir", str(output_dir)
    )
    assert answer.returncode == 0, answer.stderr
    (run_dir,) = output_dir.iterdir()
    agent = load_agent(run_dir / "agent.safetensors")
    assert agent.config.total_timesteps == steps
    assert agent.config.algo_kwargs.get("learning_starts", steps // 4) == steps // 4
    if "rollout_steps" in agent.config.algo_kwargs:  # a rollout is shortened; DQN on CartPole trains every 256 steps
        assert json.loads((run_dir / "run.json").read_text())["metrics"]["gradient_steps"] > 0
    assert f"agent  {run_dir / 'agent.safetensors'}" in answer.stdout


def check_reference_config(name: str, algo: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example hands the packaged config of its algorithm to training, with what its options change."""
    import runpy

    class Trained(Exception):
        pass

    def train(config: Any, run_suffix: str) -> None:
        raise Trained(config)

    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    import _reference

    spec = _reference.get_algorithm_spec(algo)
    monkeypatch.setattr(_reference, "get_algorithm_spec", {algo: replace(spec, train_fn=train)}.__getitem__)
    script = str(ROOT / "examples" / f"{name}_reference.py")
    words = ["--total-timesteps", "128", "--eval-episodes", "3", "--output-dir", "elsewhere", "--seed", "7"]
    monkeypatch.setattr(sys, "argv", [script, *words])
    with pytest.raises(Trained) as given:
        runpy.run_path(script, run_name="__main__")
    (config,) = given.value.args
    assert (config.algo, config.total_timesteps, config.eval_episodes, config.seed) == (algo, 128, 3, 7)
    assert config.output_dir == Path("elsewhere") and config.algo_kwargs.get("learning_starts", 32) == 32


def check_trainer(train: Any, config: Any, updates_per_step: int = 1, updates: int | None = None) -> None:
    """A training function leaves a checkpoint, and metrics that agree with its logs."""
    from rl_training.algorithms.registry import learner_class

    result = train(config, run_suffix="smoke")
    assert result.run_dir.parent == config.output_dir and result.run_dir.name.endswith("-smoke")
    assert (result.checkpoint_path / "manifest.json").exists()
    assert result.metrics["global_step"] == config.total_timesteps
    waits = 0 if learner_class(config.algo).offline else config.algo_kwargs.get("learning_starts", 0)
    trained = config.total_timesteps - waits
    assert result.metrics["gradient_steps"] == (updates_per_step * trained if updates is None else updates)
    last = [json.loads(line) for line in (result.run_dir / "evaluations.jsonl").read_text().splitlines()][-1]
    assert last["step"] == config.total_timesteps and len(last["returns"]) == config.eval_episodes
    assert result.metrics["eval_return_mean"] == pytest.approx(sum(last["returns"]) / len(last["returns"]))


def check_learns_from_pictures(algo: str, side: int, output_dir: Path, **settings: Any) -> None:
    """One step from a picture whose left or right half is bright: the action that points there is what pays."""
    import gymnasium as gym
    import numpy as np
    import torch
    from gymnasium import spaces
    from probes import train_on

    # Two halves, and not two brightnesses: without biases a network with a LayerNorm is blind to scale at first.
    pictures = np.full((2, 3, side, side), 30, np.uint8)
    pictures[0, :, :, : side // 2] = pictures[1, :, :, side // 2 :] = 210

    class Lamp(gym.Env[Any, Any]):
        observation_space = spaces.Box(0, 255, (3, side, side), np.uint8)
        action_space = spaces.Box(-1, 1, (1,), np.float32)
        time_limit = None

        def __init__(self, discrete: bool) -> None:
            self.half = 0

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            self.half = int(self.np_random.integers(2))
            return pictures[self.half], {}

        def step(self, action: Any) -> Any:
            return pictures[self.half], float(action[0]) * (-1, 1)[self.half], True, False, {}

    sizes = {"hidden_sizes": (32,), "features_dim": 8, "batch_size": 16, "learning_rate": 2e-3, "train_frequency": 1}
    learner = train_on(Lamp, algo, output_dir, steps=300, **{**sizes, **settings})  # type: ignore[arg-type]
    left, right = learner.act_greedy(torch.from_numpy(pictures[None])).action[0, :, 0]
    assert left < -0.5 and right > 0.5
