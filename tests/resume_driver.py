"""The far side of `resume_harness`: one forked process for each command line, killed at an exact place.

Importing torch takes two seconds and forking none, so a hundred cuts fit into a minute. The process that forks has
imported the library and run nothing: what it forks knows as little of the run as a fresh process.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import importlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("SDL_VIDEODRIVER", "dummy")

import carrying_envs  # noqa: F401  registers what is made anew for every episode
import endless_envs  # noqa: F401
import image_envs  # noqa: F401  registers what the sweeps train on
import masked_envs  # noqa: F401
import torch

from rl_training.checkpoint.read import Checkpoint
from rl_training.cli import main
from rl_training.data.rollout_part import RolloutPart
from rl_training.engine.engine import Engine
from rl_training.envs.host.vector import SeededEnvs
from rl_training.run import resume
from rl_training.run.saver import Saver
from rl_training.run.session import Session

LONGEST = 120  # seconds
ENVIRONMENTS = ("gymnasium.envs.mujoco.half_cheetah_v5", "gymnasium.envs.box2d.lunar_lander")
SAVING_CALLS = ("fsync", "rename", "unlink", "rmdir")


# --- cuts: each patches the library so that the process kills itself --------------------------------------------------
def die(session: Session, place: str) -> None:
    """Say where, for the test to assert it, and die as by kill -9."""
    where = {
        "place": place,
        "step": session.step,
        "updates": session.gradient_steps,
        "added": session.replay.added if session.replay is not None else 0,
        "open_lengths": session.statistics.open_lengths.tolist(),
        "since_training": since_training(session),
        "into_a_delay": [session.gradient_steps % phase.every for phase in session.learner.engine.phases],
    }
    Path("cut.json").write_text(json.dumps(where))
    os.kill(os.getpid(), signal.SIGKILL)


def since_training(session: Session) -> int:
    """Transitions, or steps of a rollout, that nothing has been learned from so far."""
    rollouts = [part.rollout for part in session.saver.parts if isinstance(part, RolloutPart)]
    return rollouts[0].filled if rollouts else session.clock.since_training


def after_step(cut: dict[str, Any], due: Callable[[Session], bool]) -> None:
    inner = Session.after_step

    def patched(session: Session) -> None:
        inner(session)
        if session.step >= cut["n"] and due(session):
            if cut.get("save"):  # so that the run goes on from here, and not from some multiple of an interval
                session.checkpoint()
            die(session, cut["at"])

    Session.after_step = patched  # type: ignore[method-assign]


def at_step(cut: dict[str, Any]) -> None:
    after_step(cut, lambda session: True)


def at_episode_end(cut: dict[str, Any]) -> None:
    after_step(cut, lambda session: bool((session.envs.rows.terminated | session.envs.rows.truncated).any()))


def at_mid_episode(cut: dict[str, Any]) -> None:
    """In the middle of everything: of every episode, and of the steps between two updates."""

    def amid(session: Session) -> bool:
        return bool(session.statistics.open_lengths.min() > 0 and since_training(session) > 0)

    after_step(cut, amid)


def between_rollouts(cut: dict[str, Any]) -> None:
    """Right after learning from a rollout."""
    after_step(cut, lambda session: since_training(session) == 0)


def in_learning(cut: dict[str, Any]) -> None:
    """Before the n-th update."""
    sessions: list[Session] = []
    step, update = Session.after_step, Engine.update

    def patched_step(session: Session) -> None:
        sessions[:] = [session]
        step(session)

    def patched(engine: Engine, *arguments: Any, **keywords: Any) -> None:
        if engine.update_count == cut["n"] - 1:
            die(sessions[0], "learning")
        update(engine, *arguments, **keywords)

    Session.after_step, Engine.update = patched_step, patched  # type: ignore[method-assign]


def at_delay(cut: dict[str, Any]) -> None:
    """Between two updates of an actor that is not updated every time."""
    phases = lambda session: session.learner.engine.phases  # noqa: E731
    after_step(cut, lambda session: any(session.gradient_steps % phase.every for phase in phases(session)))


def in_evaluation(cut: dict[str, Any]) -> None:
    """At the n-th step of the episodes that evaluations play."""
    sessions, left, inner, evaluate = [], [cut["n"]], SeededEnvs.step, Session.evaluate

    def patched_evaluate(session: Session) -> None:
        sessions[:] = [session]
        evaluate(session)

    def patched(envs: SeededEnvs, *arguments: Any) -> None:
        inner(envs, *arguments)
        if envs.stream == "eval_episode":
            left[0] -= 1
            if left[0] == 0:
                die(sessions[0], "evaluation")

    SeededEnvs.step, Session.evaluate = patched, patched_evaluate  # type: ignore[method-assign, assignment]


def in_save(cut: dict[str, Any]) -> None:
    """Before the n-th call that syncs, renames or deletes (or the n-th `call`) while checkpoints are saved."""
    saving: list[Session] = []
    left, checkpoint = [cut["n"]], Session.checkpoint

    def patched_checkpoint(session: Session) -> None:
        saving[:] = [session]
        checkpoint(session)
        session.saver.finish_rotation()
        saving.clear()

    def watched(name: str) -> Callable[..., Any]:
        inner = getattr(os, name)

        def call(*arguments: Any, **keywords: Any) -> Any:
            if saving:
                left[0] -= 1
                if left[0] == 0:
                    die(saving[0], name)
            return inner(*arguments, **keywords)

        return call

    for name in (cut["call"],) if "call" in cut else SAVING_CALLS:
        setattr(os, name, watched(name))
    Session.checkpoint = patched_checkpoint  # type: ignore[method-assign]


def slow_save(cut: dict[str, Any]) -> None:
    """Not a cut: saving takes `n` seconds and leaves a mark when it begins."""
    inner = Saver.save

    def patched(saver: Saver, *arguments: Any) -> Checkpoint | None:
        Path("saving").touch()
        time.sleep(cut["n"])
        return inner(saver, *arguments)

    Saver.save = patched  # type: ignore[method-assign]


def slow_steps(cut: dict[str, Any]) -> None:
    """Not a cut: leaves a mark after step `n` and then takes its time, for a signal to arrive mid-run."""
    inner = Session.after_step

    def patched(session: Session) -> None:
        inner(session)
        if session.step >= cut["n"]:
            Path("mark").touch()
            time.sleep(0.1)

    Session.after_step = patched  # type: ignore[method-assign]


def slow_call(cut: dict[str, Any]) -> None:
    """Not a cut: every call of `function` (`module:name`) leaves a mark and then takes a minute, in C if asked to."""
    module, _, name = cut["function"].partition(":")
    *path, last = name.split(".")
    owner = functools.reduce(getattr, path, importlib.import_module(module))
    inner, skip = getattr(owner, last), [cut.get("skip", 0)]

    def patched(*arguments: Any, **keywords: Any) -> Any:
        skip[0] -= 1
        if skip[0] < 0:
            Path("mark").touch()
            if cut.get("in_c"):
                hashlib.pbkdf2_hmac("sha256", b"", b"", 200_000_000)
            else:
                time.sleep(60)
        return inner(*arguments, **keywords)

    setattr(owner, last, patched)


def mark_evaluation(cut: dict[str, Any]) -> None:
    """Not a cut: leaves a mark at the first step of an evaluation."""
    inner = SeededEnvs.step

    def patched(envs: SeededEnvs, *arguments: Any) -> None:
        if envs.stream == "eval_episode":
            Path("mark").touch()
        inner(envs, *arguments)

    SeededEnvs.step = patched  # type: ignore[method-assign]


def mark_compiler(cut: dict[str, Any]) -> None:
    """Not a cut: compiles anew, and leaves a mark when a C++ compiler is at work."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = cut["cache"]
    inner = subprocess.Popen.__init__

    def patched(process: Any, command: Any, *arguments: Any, **keywords: Any) -> None:
        inner(process, command, *arguments, **keywords)
        if ".cpp" in str(command):
            Path("mark").touch()

    subprocess.Popen.__init__ = patched  # type: ignore[method-assign]


CUTS = {
    "mark_compiler": mark_compiler,
    "mark_evaluation": mark_evaluation,
    "slow_call": slow_call,
    "step": at_step,
    "episode_end": at_episode_end,
    "mid_episode": at_mid_episode,
    "delay": at_delay,
    "between_rollouts": between_rollouts,
    "learning": in_learning,
    "evaluation": in_evaluation,
    "save": in_save,
    "slow_save": slow_save,
    "slow_steps": slow_steps,
}


# --- negative controls: a resume that forgets something ---------------------------------------------------------------
def forget(control: dict[str, Any]) -> None:
    """`{"state": {key: value}}` replaces counters, `{"zero": prefix}` tensors, of the checkpoint that is resumed."""
    find, tensors = resume.find_checkpoint, Checkpoint.tensors

    def patched_find(path: Path) -> tuple[Checkpoint, list[str]]:
        checkpoint, notes = find(path)
        parts = {name: dict(values) for name, values in checkpoint.state["parts"].items()}
        for key, value in control.get("state", {}).items():
            part, _, name = key.partition(".")
            assert name in parts[part]
            parts[part][name] = value
        return dataclasses.replace(checkpoint, state={**checkpoint.state, "parts": parts}), notes

    def patched_tensors(checkpoint: Checkpoint, name: str) -> dict[str, torch.Tensor]:
        found = tensors(checkpoint, name)
        # All of a prefix: one of them, such as the sum of PPO's divergences, may be zero already on some processors.
        for key in [key for key in found if key.startswith(control.get("zero", "nothing"))]:
            found[key] = torch.zeros_like(found[key])
        return found

    resume.find_checkpoint = patched_find
    Checkpoint.tensors = patched_tensors  # type: ignore[method-assign]


# --- the process that forks -------------------------------------------------------------------------------------------
def child(job: dict[str, Any]) -> None:
    code = 70
    try:
        signal.alarm(LONGEST)
        # However the tests were started: a shell's background job ignores SIGINT.
        signal.signal(signal.SIGINT, signal.SIG_IGN if job.get("ignores_sigint") else signal.default_int_handler)
        if job.get("group"):
            os.setsid()
        os.chdir(job["cwd"])
        log = os.open("log.txt", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        os.dup2(log, 1)
        os.dup2(log, 2)
        if job.get("cut"):
            CUTS[job["cut"]["at"]](job["cut"])
        if job.get("control"):
            forget(job["control"])
        code = main(job["words"])
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def serve() -> None:
    torch.set_num_threads(1)
    for module in ("torch._dynamo", *ENVIRONMENTS):  # torch.func asks for the former at the first gradient
        with contextlib.suppress(Exception):  # not installed
            importlib.import_module(module)
    for line in sys.stdin:
        job = json.loads(line)
        if "wait" in job:
            print(os.waitstatus_to_exitcode(os.waitpid(job["wait"], 0)[1]), flush=True)
            continue
        pid = os.fork()
        if pid == 0:
            child(job)
        print(pid, flush=True)


if __name__ == "__main__":
    serve()
