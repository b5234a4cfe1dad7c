"""Runs that are cut and resumed through the command line, and the exact comparison of what they leave."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from conftest import make_quick_config, settings_of, small_env
from harness import ROOT

from rl_training.algorithms.base import Learner
from rl_training.algorithms.on_policy import OnPolicyLearner
from rl_training.algorithms.registry import learner_class
from rl_training.checkpoint.read import Checkpoint, newest_checkpoint
from rl_training.config.fields import parse
from rl_training.config.train_config import TrainConfig, config_from_dict
from rl_training.config.yaml_loading import dump_yaml, load_yaml
from rl_training.data.replay.part import segment_rows
from rl_training.envs.host.factory import EnvSource
from rl_training.envs.host.stepping import LocalStepper
from rl_training.run.capacity import make_replay
from rl_training.run.resume import resume_training

CLOCK = {"time/fps", "time/time_elapsed"}
# Every number is prime to every other, so that no two things fall due at the same step by design.
CADENCES: dict[str, Any] = {
    "total_timesteps": 118,
    "log_interval": 17,
    "checkpoint_interval": 23,
    "eval_interval": 37,
    "seeds": (3, 5),
    "num_envs": 2,
    "workers": 0,
}
SETTINGS = {
    "train_frequency": 3,
    "target_update_interval": 11,
    "learning_starts": 27,
    "learning_rate_schedule": "linear",
    "rollout_steps": 5,  # 10 transitions
    "sequence_length": 5,
}


PACKAGES = {"mujoco": "mujoco", "box2d": "Box2D"}  # what a family of environments needs


# --- what is run ------------------------------------------------------------------------------------------------------
def environments(cls: type[Learner]) -> dict[str, tuple[str, dict[str, Any]]]:
    """One of every family of environments with the algorithm's kind of actions; there is no discrete MuJoCo one."""
    if (cls.observations == ("image",)) or cls.offline:
        return {"classic": (small_env(cls)[0], {})}
    if "discrete" in cls.actions:
        return {"classic": ("CartPole-v1", {}), "box2d": ("LunarLander-v3", {})}
    return {
        "classic": ("Pendulum-v1", {}),
        "mujoco": ("HalfCheetah-v5", {}),
        "box2d": ("LunarLander-v3", {"continuous": True}),
    }


def is_installed(family: str) -> bool:
    return importlib.util.find_spec(PACKAGES.get(family, "gymnasium")) is not None


def make_config(
    algo: str, family: str = "classic", wanted: dict[str, Any] | None = None, **changes: Any
) -> TrainConfig:
    """`wanted` are settings for the algorithms that have them."""
    cls = learner_class(algo)
    env_id, env_kwargs = environments(cls)[family]
    minibatch = {"batch_size": 4} if issubclass(cls, OnPolicyLearner) else {}  # two, and two transitions are left over
    settings = settings_of(algo, SETTINGS, minibatch, wanted or {})
    quick = make_quick_config(algo, Path("runs"), settings, **{**CADENCES, **changes})
    kwargs = {**quick.env_kwargs, **env_kwargs, "max_episode_steps": 13}  # 118 steps see the ends of episodes
    return dataclasses.replace(quick, env_id=env_id, env_kwargs=kwargs)


def write_config(config: TrainConfig, directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "config.yaml"
    path.write_text(dump_yaml(config.to_dict()))
    return path


def run_dir_in(directory: Path) -> Path:
    """The only run there; a folder that a kill left before it became one does not count."""
    (found,) = (directory / "runs").glob("*/run.json")
    return found.parent


def wait_for(path: Path, process: subprocess.Popen[bytes] | None = None, seconds: float = 60) -> None:
    """Until the file is there; fails if the process ends or the time runs out first."""
    end = time.monotonic() + seconds
    while not path.exists():
        assert time.monotonic() < end, f"{path} did not appear"
        assert process is None or process.poll() is None, f"the process ended before {path} appeared"
        time.sleep(0.005)


def environment(path: str) -> dict[str, str]:
    """The variables of a program that imports from `path`, whatever ran before in this process."""
    inherited = {name: value for name, value in os.environ.items() if name != "WANDB_SERVICE"}  # of an earlier test
    return {**inherited, "PYTHONPATH": path, "NO_COLOR": "1"}


def start_program(words: list[str], cwd: Path, log: Path) -> subprocess.Popen[bytes]:
    """`rl-training WORDS` as a process of its own, in its own group, that knows the tests' environments."""
    env = environment(f"{ROOT / 'src'}:{ROOT / 'tests'}")
    with log.open("ab") as output:
        start = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # however we were started
        start += "import image_envs; from rl_training.cli import entry_point; entry_point()"
        command = [sys.executable, "-c", start, *words]
        return subprocess.Popen(command, cwd=cwd, env=env, stdout=output, stderr=output, start_new_session=True)


class Forks:
    """The same, forked from a process that has the imports behind it, and able to die at an exact place."""

    def __init__(self) -> None:
        command = [sys.executable, str(ROOT / "tests" / "resume_driver.py")]
        pipe, env = subprocess.PIPE, environment(str(ROOT / "src"))
        self.server = subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, text=True)

    def _ask(self, job: dict[str, Any]) -> int:
        assert self.server.stdin is not None and self.server.stdout is not None
        self.server.stdin.write(json.dumps(job) + "\n")
        self.server.stdin.flush()
        return int(self.server.stdout.readline())

    def start(
        self, words: list[str], cwd: Path, cut: dict | None = None, control: dict | None = None, **how: Any
    ) -> int:
        """`group`: in a process group of its own. `ignores_sigint`: as a background job of a shell."""
        return self._ask({"words": words, "cwd": str(cwd), "cut": cut, "control": control, **how})

    def wait(self, pid: int) -> int:
        return self._ask({"wait": pid})

    def run(self, words: list[str], cwd: Path, cut: dict | None = None, control: dict | None = None) -> int:
        """The exit code; -9 for a process that died of kill -9."""
        return self.wait(self.start(words, cwd, cut, control))

    def train(self, config: TrainConfig, cwd: Path) -> Path:
        """A run that nothing interrupts."""
        write_config(config, cwd)
        assert self.run(["train", "--config", "config.yaml", "--quiet"], cwd) == 0, (cwd / "log.txt").read_text()
        return run_dir_in(cwd)

    def cut(self, config: TrainConfig, cwd: Path, **cut: Any) -> dict[str, Any]:
        """Train until the cut, and assert that it was one. Returns where it fell."""
        write_config(config, cwd)
        return self._killed(["train", "--config", "config.yaml", "--quiet"], cwd, cut)

    def cut_again(self, cwd: Path, **cut: Any) -> dict[str, Any]:
        return self._killed(["resume", str(run_dir_in(cwd)), "--quiet"], cwd, cut)

    def _killed(self, words: list[str], cwd: Path, cut: dict[str, Any]) -> dict[str, Any]:
        (cwd / "cut.json").unlink(missing_ok=True)
        assert self.run(words, cwd, cut) == -9, (cwd / "log.txt").read_text()
        assert read_json(run_dir_in(cwd) / "run.json")["status"] == "running"
        where: dict[str, Any] = read_json(cwd / "cut.json")
        return where

    def resume(self, cwd: Path, control: dict | None = None) -> Path:
        run_dir = run_dir_in(cwd)
        assert self.run(["resume", str(run_dir), "--quiet"], cwd, control=control) == 0, (cwd / "log.txt").read_text()
        return run_dir

    def close(self) -> None:
        self.server.communicate()


# --- the comparison ---------------------------------------------------------------------------------------------------
def compare_runs(a: Path, b: Path) -> list[str]:
    """What differs between two finished runs, the clock aside; an empty list means that they are equal bit by bit."""
    first, second = contents(a), contents(b)
    found = [f"{name}: only in {a if name in first else b}" for name in sorted(first.keys() ^ second.keys())]
    return found + [f"{name} differs" for name in sorted(first.keys() & second.keys()) if first[name] != second[name]]


def whole_and_cut(
    start: Callable[[list[Any]], Any], cut: int, folder: Path, monkeypatch: Any, **more: Any
) -> list[str]:
    """What differs between a run of `start(callbacks)` and the same run stopped at step `cut` and resumed."""
    found = []
    for name, callbacks in (("whole", []), ("cut", [lambda session: session.step < cut])):
        (folder / name).mkdir()
        monkeypatch.chdir(folder / name)  # the config of both names the same output_dir
        result = start(callbacks)
        assert name == "whole" or cut <= result.metrics["global_step"] < cut + 8, "it was not cut where it was meant to"
        found.append(result.run_dir.absolute())
    resume_training(found[1], show_progress=False, **more)
    return compare_runs(*found)


def contents(run_dir: Path) -> dict[str, Any]:
    """Everything a run leaves, as values that compare exactly, by name."""
    found: dict[str, Any] = {}
    checkpoint, skipped = newest_checkpoint(run_dir / "checkpoints")
    found["skipped checkpoints"] = skipped
    found["checkpoints"] = sorted(path.name for path in (run_dir / "checkpoints").iterdir())
    for name, tensor in {**tensors_of(checkpoint), **replay_of(checkpoint)}.items():
        found[name] = (tuple(tensor.shape), str(tensor.dtype), tensor.contiguous().numpy().tobytes())
    state = {**checkpoint.state, **checkpoint.state["parts"]}
    state |= {f"session.{name}": value for name, value in state.pop("session").items() if name != "elapsed"}
    # The clock's digits decide how long a row of metrics is.
    state["session.offsets"] = state["session.offsets"]["evaluations"]
    found |= {f"state.{name}": value for name, value in state.items() if name != "parts"}
    for line, row in enumerate((run_dir / "metrics.jsonl").read_text().splitlines()):
        found[f"metrics.jsonl:{line + 1}"] = {k: v for k, v in json.loads(row).items() if k not in CLOCK}
    found["evaluations.jsonl"] = (run_dir / "evaluations.jsonl").read_bytes()
    found["config.yaml"] = load_yaml(run_dir / "config.yaml").values
    for path in sorted((run_dir / "agents").iterdir()):
        found[f"agents/{path.name}"] = hashlib.sha256(path.read_bytes()).hexdigest()
    record = read_json(run_dir / "run.json")
    for name in ("status", "resume", "failed_seeds", "metrics", "execution_plan"):
        found[f"run.json {name}"] = record[name]
    return found


def tensors_of(checkpoint: Checkpoint) -> dict[str, torch.Tensor]:
    """Parameters, optimizers, counters and environments."""
    files = [name for name in checkpoint.files if name.endswith(".safetensors") and not name.startswith("replay_")]
    return {f"{file}:{name}": tensor for file in files for name, tensor in checkpoint.tensors(file).items()}


def replay_of(checkpoint: Checkpoint) -> dict[str, torch.Tensor]:
    """What the ring holds, oldest first: where segments were cut depends on where checkpoints fell."""
    if not checkpoint.names("replay_"):
        return {}
    config = config_from_dict(checkpoint.state["config"], allow_module_env=True)
    settings = parse(learner_class(config.algo).settings_type, config.algo_kwargs)
    source = EnvSource(config.env_id, dict(config.env_kwargs), masked="action_mask" in checkpoint.state)
    shape = LocalStepper(source, 1).spec
    replay = make_replay(config, settings, shape, torch.device("cpu"))
    added = checkpoint.state["parts"]["replay"]["added"]
    oldest = added - min(added, replay.capacity)
    for name in checkpoint.names("replay_"):
        start, stop = segment_rows(name)
        if stop > oldest:
            replay.write(start, checkpoint.tensors(name), max(oldest - start, 0))
    replay.finish_writing(added)
    return {f"replay.{field}": tensor for field, tensor in replay.read(oldest, added).items()}


def read_json(path: Path) -> Any:
    return json.loads(path.read_text())
