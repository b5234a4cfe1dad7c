"""Environments stepped in this process, and the worker process that steps them for a parent over two pipes.

A frame is (kind, size) and `size` bytes. STEP and ACTIONS contain raw arrays whose layout both sides compute from the
spaces; RESULT is empty, since results are in memory that both share: a picture is larger than what a pipe holds. JSON
contains set-up, resets, errors and the end. Every command has one reply. Nothing is pickled but an environment factory,
which the parent sends in the set-up.
"""

from __future__ import annotations

import json
import mmap
import os
import pickle
import re
import signal
import struct
import sys
import tempfile
import traceback
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from rl_training.core.checks import UserError, one_line
from rl_training.core.specs import EnvSpec
from rl_training.envs.episode_metrics import info_number
from rl_training.envs.host.changes import Changes, apply_changes, check_changes
from rl_training.envs.host.factory import Env, EnvSource
from rl_training.envs.host.masks import InvalidMask, newest_mask
from rl_training.envs.host.snapshots import native_state, restore_native
from rl_training.envs.host.wrappers import episode_limit, image_stack
from rl_training.envs.spaces import ActionCodec, ObservationCodec, codecs_to_dict, env_spec, make_codecs

Array = NDArray[Any]
Fields = Sequence[tuple[tuple[int, ...], DTypeLike]]  # shape and dtype of arrays that are next to each other

HEADER = struct.Struct("<QQ")
STEP, RESULT, JSON, ACTIONS = range(4)
DONE = HEADER.pack(RESULT, 0)


class RowsFailed(Exception):
    """Environments that raised or whose process died. `steps`: replayed actions, including the one that raised."""

    def __init__(self, rows: Sequence[int], what: str, steps: int | None = None, exit_code: int | None = None) -> None:
        super().__init__(what)
        self.rows, self.what, self.steps, self.exit_code = list(rows), what, steps, exit_code


class Start(NamedTuple):
    """The start of a row's episode: its seed, the actions to replay, and the changes of its environment."""

    seed: int
    history: Array | None = None
    changes: Changes | None = None


class Results(NamedTuple):
    """Arrays that a step writes into: a row for each environment."""

    obs: Array
    rewards: Array
    terminated: Array
    truncated: Array
    infos: Array  # (rows, names) float64: numbers from the info of an episode's last step, else NaN


class Stepper(Protocol):
    """Steps rows of environments, without episodes, logs or run seeds."""

    observation: ObservationCodec
    action: ActionCodec
    spec: EnvSpec

    def start(self, starts: Mapping[int, Start], obs: Array) -> None:
        """Start an episode in each of these rows, and write its observation into `obs`."""

    def step(self, actions: Array, active: Array | None, results: Results) -> None:
        """One step in every (active) row; the other rows of the results are left as they are."""

    def check_changes(self, changes: Changes) -> None:
        """Reject changes that the environments cannot take."""

    def states(self) -> list[Array]:
        """The native state of every row as bytes; empty where there is none."""

    def set_states(self, rows: Sequence[int], states: Sequence[Array]) -> list[bool]:
        """Restore native states in freshly started rows; returns which of them are exact."""

    def close(self) -> None: ...


class LocalStepper:
    """Steps its environments in this process."""

    def __init__(self, source: EnvSource, size: int) -> None:
        self.source = source
        self.envs = [source.make() for _ in range(size)]
        self.used = [False] * size
        spaces = self.envs[0].observation_space, self.envs[0].action_space
        self.observation, self.action = make_codecs(*spaces, masked=source.masked)
        frames, limit = image_stack(self.envs[0]), episode_limit(self.envs[0])
        self.spec = env_spec(self.observation, self.action, frames, limit)

    def start(self, starts: Mapping[int, Start], obs: Array) -> None:
        for row, start in starts.items():
            call, steps = "make", 0
            try:
                env = self._env_for_episode(row)
                if start.changes:
                    call = f"changing {', '.join(start.changes)}"
                    apply_changes(env, start.changes)
                call = "reset"
                value, info = env.reset(seed=start.seed)
                self.observation.encode(value, obs[row], self._mask(env, info))
                for action in () if start.history is None else start.history:
                    steps += 1
                    value, _, terminal, cut, info = env.step(action.copy())
                    self.observation.encode(value, obs[row], self._mask(env, info, terminal or cut))
            except Exception as error:
                call, when = ("step", " while replaying") if steps else (call, "")
                raise RowsFailed([row], f"{describe_failure(call, error)}{when}", steps) from error

    def _mask(self, env: Env, info: Any, ended: bool = False) -> Array | None:
        """The action mask of the newest observation, where it is part of it."""
        return newest_mask(env, info, self.action.spec, ended) if self.source.masked else None

    def _env_for_episode(self, row: int) -> Env:
        """The row's environment, rebuilt if it carries state from one episode to the next."""
        if self.used[row] and self.source.restore == "rebuilt":
            self.envs[row].close()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # shown when the first one was made
                self.envs[row] = self.source.make()
        self.used[row] = True
        return self.envs[row]

    def check_changes(self, changes: Changes) -> None:
        check_changes(self.envs[0], changes, self.source.env_id)

    def step(self, actions: Array, active: Array | None, results: Results) -> None:
        obs, rewards, terminated, truncated, infos = results
        encode, names, masked = self.observation.encode, self.source.info_metrics, self.source.masked
        for row, env in enumerate(self.envs):
            if active is not None and not active[row]:
                continue
            try:
                # A copy: the parent's log of actions must survive an environment that writes into its argument.
                value, reward, terminal, cut, info = env.step(actions[row].copy())
                terminated[row], truncated[row] = terminal, cut
                encode(value, obs[row], self._mask(env, info, terminal or cut) if masked else None)
                rewards[row] = reward
                if names and (terminal or cut):
                    infos[row] = [info_number(info, name) for name in names]
            except Exception as error:
                raise RowsFailed([row], describe_failure("step", error)) from error

    def states(self) -> list[Array]:
        if self.source.restore in ("replay", "rebuilt"):  # a native state, if there is one, is not the whole state
            return [np.empty(0, np.uint8) for _ in self.envs]
        found = [native_state(env) for env in self.envs]
        return [np.empty(0, np.uint8) if state is None else state for state in found]

    def set_states(self, rows: Sequence[int], states: Sequence[Array]) -> list[bool]:
        return [_restores(self.envs[row], state) for row, state in zip(rows, states, strict=True)]

    def close(self) -> None:
        for env in self.envs:
            env.close()


def describe_failure(call: str, error: Exception) -> str:
    """What went wrong in a call of an environment, in one line."""
    if isinstance(error, InvalidMask):
        return f"{call} {error}"
    return f"{call} raised {type(error).__name__}: {one_line(error)}"


def _restores(env: Env, state: Array) -> bool:
    try:
        return restore_native(env, state)
    except Exception:  # a state of another version or model: the caller restarts the episode and reports it
        return False


class StepBuffers:
    """The STEP frame of `count` rows, and the memory for their results, which the parent and its worker share."""

    def __init__(
        self, count: int, observation: ObservationCodec, action: ActionCodec, names: int, file: int | None = None
    ) -> None:
        """`file`: the parent's descriptor of the shared memory; the parent itself has none yet."""
        self.action_dtype, self.action_shape = action.env_dtype, action.env_shape
        asked: Fields = (((count, *self.action_shape), self.action_dtype), ((count,), np.bool_))
        self.request = bytearray(HEADER.size + _size(asked))
        HEADER.pack_into(self.request, 0, STEP, _size(asked))
        self.actions, self.active = _arrays(memoryview(self.request)[HEADER.size :], asked)
        found: Fields = (
            ((count,), np.float64),
            ((count, names), np.float64),
            ((count, *observation.shape), observation.dtype),
            ((count,), np.bool_),
            ((count,), np.bool_),
        )
        self.file = _shared_file(_size(found)) if file is None else file
        memory = mmap.mmap(self.file, _size(found))
        rewards, infos, obs, terminated, truncated = _arrays(memoryview(memory), found)
        self.results = Results(obs, rewards, terminated, truncated, infos)


def _size(fields: Fields) -> int:
    return sum(int(np.prod(shape)) * np.dtype(dtype).itemsize for shape, dtype in fields)


def _arrays(memory: memoryview, fields: Fields) -> list[Array]:
    """Arrays in `memory`, one after the other."""
    arrays, offset = [], 0
    for one in fields:
        (shape, dtype), size = one, _size([one])
        arrays.append(np.frombuffer(memory[offset : offset + size], dtype).reshape(shape))
        offset += size
    return arrays


def _shared_file(size: int) -> int:
    """The descriptor of a file of zeros that has no name, in memory where the system offers that."""
    if hasattr(os, "memfd_create"):
        file = os.memfd_create("rl_training")
    else:
        with tempfile.TemporaryFile() as made:
            file = os.dup(made.fileno())
    os.ftruncate(file, size)
    return file


def write_all(fd: int, data: bytes | bytearray) -> None:
    """Write all bytes."""
    done = os.write(fd, data)
    while done < len(data):  # a signal may interrupt a long write
        done += os.write(fd, memoryview(data)[done:])


def json_frame(value: Any) -> bytes:
    """A frame with a JSON value."""
    payload = json.dumps(value).encode()
    return HEADER.pack(JSON, len(payload)) + payload


def read_exactly(fd: int, buffer: bytearray | memoryview) -> None:
    """Fill `buffer`, or raise EOFError."""
    view = memoryview(buffer)
    while view:
        count = os.readv(fd, [view])
        if count == 0:
            raise EOFError
        view = view[count:]


def read_frame(fd: int, step: bytearray | None = None) -> tuple[int, bytearray]:
    """The next frame's kind and payload; a STEP is read into `step`."""
    header = bytearray(HEADER.size)
    read_exactly(fd, header)
    kind, size = HEADER.unpack(header)
    if kind == STEP and step is not None:
        read_exactly(fd, memoryview(step)[HEADER.size :])
        return kind, step
    payload = bytearray(size)
    read_exactly(fd, payload)
    return kind, payload


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
