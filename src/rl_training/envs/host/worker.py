"""The worker process, which steps environments for a parent over two pipes. Every command has one reply.

Nothing is pickled but an environment factory, which the parent sends in the set-up.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import signal
import sys
import traceback
import warnings
from contextlib import suppress
from typing import Any

import numpy as np

from rl_training.core.checks import UserError, one_line
from rl_training.envs.host.factory import EnvSource
from rl_training.envs.host.frames import DONE, STEP, StepBuffers, json_frame, read_frame, write_all
from rl_training.envs.host.stepping import LocalStepper, RowsFailed, Start
from rl_training.envs.spaces import ActionCodec, ObservationCodec, codecs_to_dict


def main() -> None:
    """The worker process: serve the parent until stdin ends."""
    # Only the parent decides when to stop: a terminal or a cluster signals every process, and a worker that ended at
    # once would fail the step that the parent still finishes.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    # What an environment prints, or reads from a terminal it does not have, must not reach the protocol.
    read_fd, write_fd = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    with suppress(EOFError, BrokenPipeError):  # the parent has ended or closed the pipe
        _serve(read_fd, write_fd)


def _serve(read_fd: int, write_fd: int) -> None:
    setup = json.loads(read_frame(read_fd)[1])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the parent has shown them
            names = tuple(setup["info_metrics"])
            factory = pickle.loads(bytes.fromhex(setup["factory"])) if setup["factory"] is not None else None
            source = EnvSource(setup["env_id"], setup["kwargs"], factory, setup["restore"], names, setup["masked"])
            stepper = LocalStepper(source, setup["count"])
    except Exception as error:
        what = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"
        write_all(write_fd, json_frame({"error": one_line(what)}))
        return
    try:
        write_all(write_fd, json_frame(describe(stepper.envs[0].spec, stepper.observation, stepper.action)))
        try:
            buffers = StepBuffers(setup["count"], stepper.observation, stepper.action, len(names), setup["results"])
        except ValueError:  # spaces that are larger than the parent's, which will not use this worker
            return
        while True:
            kind, payload = read_frame(read_fd, buffers.request)
            try:
                if kind == STEP:
                    stepper.step(buffers.actions, buffers.active, buffers.results)
                else:
                    command = json.loads(payload)
                    if command["do"] == "close":
                        return
                    if command["do"] != "start":
                        write_all(write_fd, json_frame(_exchange_states(stepper, command)))
                        continue
                    _start(stepper, buffers, command, read_frame(read_fd)[1])
                write_all(write_fd, DONE)
            except RowsFailed as failed:
                trace = "".join(traceback.format_exception(failed.__cause__))
                answer = {"row": failed.rows[0], "what": failed.what, "steps": failed.steps, "trace": trace}
                write_all(write_fd, json_frame(answer))
    finally:
        stepper.close()


def _start(stepper: LocalStepper, buffers: StepBuffers, command: dict[str, Any], data: bytearray) -> None:
    actions = np.frombuffer(data, buffers.action_dtype).reshape(-1, *buffers.action_shape)
    histories = np.split(actions, np.cumsum(command["steps"])[:-1])
    given = zip(command["seeds"], histories, command["changes"], strict=True)
    starts = {row: Start(*one) for row, one in zip(command["rows"], given, strict=True)}
    stepper.start(starts, buffers.results.obs)


def _exchange_states(stepper: LocalStepper, command: dict[str, Any]) -> dict[str, Any]:
    if command["do"] == "states":
        return {"states": [state.tobytes().hex() for state in stepper.states()]}
    states = [np.frombuffer(bytes.fromhex(text), np.uint8) for text in command["states"]]
    return {"arrived": stepper.set_states(command["rows"], states)}


def describe(spec: Any, observation: ObservationCodec, action: ActionCodec) -> dict[str, Any]:
    """Values that must be equal in the parent and its workers. The spec distinguishes registrations of the same id."""
    text = re.sub(r" at 0x[0-9a-f]+", "", repr(spec))
    return {"spec": text, **codecs_to_dict(observation, action)}
