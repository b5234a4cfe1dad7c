"""Saves that are cut short: a warm process forks for each fault, and strace strikes at one system call of the child."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from conftest import make_quick_config

from rl_training.algorithms.registry import learner_class
from rl_training.checkpoint.read import Checkpoint, list_checkpoints, newest_checkpoint
from rl_training.config.fields import parse
from rl_training.data.replay.buffer import ReplayBuffer
from rl_training.data.replay.part import ReplayPart
from rl_training.envs.environments_part import EnvironmentsPart
from rl_training.envs.host.factory import EnvSource
from rl_training.envs.host.vector import SeededEnvs
from rl_training.run.saver import LearnerPart, Saver

# Every call by which a Linux process changes files; the question mark is for those that a machine may lack.
CHANGING = [
    "?open",
    "openat",
    "?openat2",
    "?creat",
    "write",
    "pwrite64",
    "writev",
    "pwritev",
    "?pwritev2",
    "sendfile",
    "copy_file_range",
    "fallocate",
    "?truncate",
    "ftruncate",
    "fsync",
    "fdatasync",
    "?sync_file_range",
    "?rename",
    "renameat",
    "?renameat2",
    "?link",
    "linkat",
    "?symlink",
    "symlinkat",
    "?unlink",
    "unlinkat",
    "?rmdir",
    "?mkdir",
    "mkdirat",
    "?mknod",
    "mknodat",
    "?chmod",
    "fchmod",
    "fchmodat",
]
SAVED, REFUSED, BROKEN = 0, 3, 4  # exit codes of a child
Contents = dict[str, Any]


def can_trace() -> bool:
    if shutil.which("strace") is None:
        return False
    return subprocess.run(["strace", "-qq", "-o", os.devnull, "true"], capture_output=True).returncode == 0


@dataclass(frozen=True)
class Call:
    """One system call of one thread: between lines `begun` and `done` of the log."""

    thread: str
    name: str
    arguments: str
    begun: int
    done: int

    @property
    def paths(self) -> list[str]:
        """Names in quotes, and those behind descriptors: `fsync(5</run/checkpoints>)`."""
        return [one or other for one, other in re.findall(r'"([^"]*)"|\b\d+<([^>]*)>', self.arguments) if one or other]

    @property
    def changes(self) -> bool:
        flags = re.search(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC", self.arguments)
        return not self.name.startswith("open") or flags is not None


@dataclass(frozen=True)
class Fault:
    """The `number`-th call of this kind by one thread on this path, which has the run and the process left open."""

    name: str
    path: str
    number: int


class Run:
    """A tiny learner, environments and replay, and what a saver does with them at steps 10, 20, ..."""

    def __init__(self, tmp_path: Path, keep: int = 2) -> None:
        self.config = make_quick_config("dqn", tmp_path, keep_checkpoints=keep)
        cls = learner_class("dqn")
        self.envs = SeededEnvs(EnvSource("CartPole-v1"), (0,), 1)
        self.envs.reset_all()
        settings = parse(cls.settings_type, self.config.algo_kwargs)
        self.learner = cls.create(self.envs.spec, settings, (0,))
        self.replay = ReplayBuffer(self.envs.spec, capacity=64, num_envs=1, seeds=1)
        self.replay_part = ReplayPart(self.replay, self.envs.spec)
        self.parts = [self.replay_part, EnvironmentsPart(self.envs), LearnerPart(self.learner, self.replay)]
        self.notes: list[str] = []

    def go_to(self, step: int) -> None:
        rng = np.random.default_rng(step)
        while self.replay.added < step:
            obs = rng.normal(size=(1, 1, 4)).astype(np.float32)
            done = np.zeros((1, 1), bool)
            self.replay.add(
                obs=obs,
                actions=done.astype(np.int64),
                rewards=obs[..., 0],
                next_obs=obs,
                terminated=done,
                truncated=done,
            )
        self.learner.engine.flat["q"].fill_(step)

    def saver(self, root: Path) -> Saver:
        newest = newest_checkpoint(root)[0] if list_checkpoints(root) else None
        return Saver(root, self.config, self.parts, newest, self.notes.append)

    def save(self, saver: Saver, step: int) -> Checkpoint | None:
        self.go_to(step)
        return saver.save(step, {})

    def save_to(self, root: Path, step: int) -> Checkpoint | None:
        saver = self.saver(root)
        saved = self.save(saver, step)
        saver.finish_rotation()
        return saved


def contents(checkpoint: Checkpoint) -> Contents:
    tensors = {name: checkpoint.tensors(name) for name in checkpoint.files if name.endswith(".safetensors")}
    return {
        "state": checkpoint.state,
        **{f"{name}/{key}": t for name, one in tensors.items() for key, t in one.items()},
    }


def same(a: Contents, b: Contents) -> bool:
    return a.keys() == b.keys() and all(
        torch.equal(a[name], b[name]) if isinstance(a[name], torch.Tensor) else a[name] == b[name] for name in a
    )


def leftovers(root: Path) -> list[str]:
    return sorted(path.name for path in root.iterdir() if path.name.startswith("."))


def child(work: Callable[[], int]) -> int:
    """Run `work` in a fork: what it changes in memory is gone afterwards."""
    return os.waitstatus_to_exitcode(os.waitpid(_fork(work), 0)[1])


def _fork(work: Callable[[], int], stopped: bool = False) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            if stopped:
                os.kill(os.getpid(), signal.SIGSTOP)
            os._exit(work())
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
            os._exit(BROKEN)
    return pid


def traced_child(work: Callable[[], int], log: Path, inject: Callable[[int], list[str]] | None = None) -> int:
    """Run `work` in a fork under strace; its exit code, negative if a signal ended it."""
    pid = _fork(work, stopped=True)
    os.waitpid(pid, os.WUNTRACED)
    words = ["strace", "-f", "-qq", "-y", "-s", "0", "-o", str(log), "-e", f"trace={','.join(CHANGING)}"]
    tracer = subprocess.Popen([*words, *(inject(pid) if inject else []), "-p", str(pid)])
    while "TracerPid:\t0" in Path(f"/proc/{pid}/status").read_text():
        time.sleep(0.001)
    os.kill(pid, signal.SIGCONT)
    _, status = os.waitpid(pid, 0)
    tracer.wait()
    return os.waitstatus_to_exitcode(status)


def calls_of(log: Path) -> list[Call]:
    calls: list[Call] = []
    open_calls: dict[str, int] = {}  # of a thread: the call that strace had to interrupt in its log
    for number, line in enumerate(log.read_text().splitlines()):
        resumed = re.match(r"(\d+) +<\.\.\. \w+ resumed>", line)
        if resumed:
            place = open_calls.pop(resumed[1])
            calls[place] = replace(calls[place], done=number)
            continue
        match = re.match(r"(\d+) +(\w+)\((.*?)( <unfinished \.\.\.>|\) += .*)$", line)
        if match:
            if "unfinished" in match[4]:
                open_calls[match[1]] = len(calls)
            calls.append(Call(match[1], match[2], match[3], number, number))
    return calls


def fault_points(calls: list[Call], run: Path) -> list[Fault]:
    """strace counts the calls of each kind by each thread that touch the path it is given; so does this."""
    pid, counts, points = calls[0].thread, Counter[tuple[str, str, str]](), []
    for call in calls:
        touched = call.paths[:1] if call.name == "rename" else set(call.paths)  # strace asks for a rename's first name
        counts.update((call.thread, call.name, path) for path in touched)
        if call.changes:
            path = call.paths[0]
            number = counts[call.thread, call.name, path]
            points.append(Fault(call.name, path.replace(str(run), "{run}").replace(f"-{pid}", "-{pid}"), number))
    return points
