"""The directory of a run: its name, its lock and its record `run.json`."""

from __future__ import annotations

import fcntl
import importlib.metadata
import json
import os
import platform
import re
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any

from rl_training.config.train_config import TrainConfig
from rl_training.config.yaml_loading import dump_yaml
from rl_training.core.checks import UserError
from rl_training.core.numerics import processor_name
from rl_training.files.atomic import make_directory, read_json, replace_file, sync_directory, to_json

PACKAGES = ("rl-training", "torch", "numpy", "gymnasium", "mujoco", "ale-py", "safetensors")

OVERRIDABLE_ON_RESUME = ("total_timesteps", "eval_episodes", "env_id", "algo_kwargs")


def create_run_dir(config: TrainConfig, suffix: str | None = None) -> Path:
    """Create `<output_dir>/<run_name>[-suffix]`, with a number where that name is taken.

    Without a `run_name` it is `<algo>-<env>-seed<k>`.
    """
    seeds = config.seed_list
    label = f"seed{seeds[0]}" if len(seeds) == 1 else f"seeds{seeds[0]}-{seeds[-1]}"
    env = re.sub(r"[^A-Za-z0-9._-]+", "_", config.env_id)
    name = config.run_name or "-".join([config.algo, env, label])
    base = config.output_dir / "-".join([name] + ([re.sub(r"[^A-Za-z0-9._-]+", "_", suffix)] if suffix else []))
    for number in range(1, 10_000):
        path = base if number == 1 else base.with_name(f"{base.name}-{number}")
        try:
            make_directory(path.parent)
            path.mkdir()
            sync_directory(path.parent)
            return path.resolve()
        except FileExistsError:
            continue
        except OSError as error:
            raise UserError(f"output_dir {config.output_dir}: cannot be written ({error.strerror})") from error
    raise UserError(f"output_dir {config.output_dir}: too many runs named {base.name}")


class RunLock:
    """The lock of a run directory; the kernel releases it even after kill -9."""

    def __init__(self, run_dir: Path) -> None:
        self.path = run_dir / ".lock"
        self._handle: IO[str] | None = None

    def acquire(self) -> None:
        """Take the lock, or raise a UserError that names its holder."""
        try:
            handle = os.fdopen(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666), "r+")  # not emptied by opening it
        except OSError as error:
            raise UserError(f"{self.path}: cannot be written ({error.strerror})") from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = handle.readline().strip() or "another process"
            handle.close()
            raise UserError(f"{self.path.parent}: in use by {holder}") from error
        # Not emptied first, which takes milliseconds on ext4.
        handle.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        handle.truncate()
        self._handle = handle

    def __enter__(self) -> RunLock:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        if self._handle is not None:
            self._handle.close()
            self._handle = None


def is_locked(run_dir: Path) -> bool | None:
    """Whether a process holds the lock of a run directory; None where that is unknown."""
    try:
        with (run_dir / ".lock").open() as handle:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
    except BlockingIOError:
        return True
    except OSError:
        return None


class RunRecord:
    """`run.json`: status, versions, execution plan and final metrics of a run."""

    def __init__(self, run_dir: Path, values: dict[str, Any]) -> None:
        self.path, self.values = run_dir / "run.json", values
        self.begun = False  # whether this process trains the run: only then is its failure recorded
        self.hook: str | None = None  # the callback in progress, e.g. Diary.on_step

    @classmethod
    def create(
        cls, run_dir: Path, config: TrainConfig, plan: dict[str, Any], promises: dict[str, str] | None = None
    ) -> RunRecord:
        """Write `config.yaml` and the record of a new run."""
        replace_file(run_dir / "config.yaml", dump_yaml(config.to_dict()).encode())
        record = cls(
            run_dir,
            {
                "status": "running",
                "algo": config.algo,
                "env_id": config.env_id,
                "seeds": list(config.seed_list),
                "started_from": config.started_from,
                "versions": versions(),
                "git_commit": git_commit(),
                "command": list(sys.argv),
                "started": _now(),
                "ended": None,
                "execution_plan": plan,
                "promises": promises or {},
                "resume": "exact",
                "resume_note": None,
                "failed_seeds": {},
                "metrics": {},
            },
        )
        record.write()
        record.begun = True
        return record

    @classmethod
    def read(cls, run_dir: Path) -> RunRecord:
        """The record of an existing run, or a UserError."""
        values = read_json(run_dir / "run.json")
        types = {"status": str, "execution_plan": dict, "metrics": dict, "resume": str, "failed_seeds": dict}
        if isinstance(values, dict) and "engine" in values and "execution_plan" not in values:
            raise UserError(f"{run_dir}: a run of an older layout; start a new run from one of its agent files")
        if not isinstance(values, dict) or any(not isinstance(values.get(key), types[key]) for key in types):
            raise UserError(f"{run_dir / 'run.json'}: not a run's record")
        return cls(run_dir, {"resume_note": None, **values})

    @property
    def resume_overrides(self) -> dict[str, Any]:
        """Overrides of the last `resume`, which the newest checkpoint may not have yet."""
        stored = self.values.get("asked")
        known = {k: v for k, v in stored.items() if k in OVERRIDABLE_ON_RESUME} if isinstance(stored, dict) else {}
        kinds = {"env_id": str, "algo_kwargs": dict}
        return {k: v for k, v in known.items() if isinstance(v, kinds.get(k, object))}

    def update(self, **values: Any) -> None:
        """Set values and write the file."""
        self.values.update(values)
        self.write()

    def begin(self, **values: Any) -> None:
        """Record that training starts again, and clear how it ended before."""
        self.update(status="running", ended=None, elapsed=None, failure=None, **values)
        self.begun = True

    def end(self, status: str, **values: Any) -> None:
        """Record how and when training ended."""
        self.update(status=status, ended=_now(), **values)

    def write(self) -> None:
        replace_file(self.path, to_json(json.loads(json.dumps(self.values)), indent=1))


def versions() -> dict[str, str]:
    """Versions of Python, the platform and the packages that results depend on."""
    found = {"python": platform.python_version(), "platform": platform.platform(), "processor": processor_name()}
    installed = {package: _installed_version(package) for package in PACKAGES}
    return found | {package: version for package, version in installed.items() if version is not None}


@cache  # reading a package's metadata takes milliseconds
def _installed_version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def git_commit(folder: Path | None = None, exclude: Sequence[str] = ()) -> str | None:
    """The git commit of a folder, by default the current one, with `+changes` if it is not clean.

    Changes under `exclude` are ignored.
    """
    paths = ["--", ":/", *(f":/!{one}" for one in exclude)] if exclude else []
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        return commit + ("+changes" if _git(folder, "status", "--porcelain", "--untracked-files=no", *paths) else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(folder: Path | None, *args: str) -> str:
    done = subprocess.run(["git", *args], cwd=folder, capture_output=True, text=True, timeout=5, check=True)
    return done.stdout.strip()


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")
