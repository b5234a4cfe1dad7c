"""Bodies of requests and answers: JSON, one array (.npy) or arrays by name (.npz). Everything in them is untrusted."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from rl_training.core.checks import UserError, did_you_mean, one_line, shown
from rl_training.files.archives import READ_ERRORS, open_member
from rl_training.files.npy import Array, read_array

JSON, NPY, NPZ = "application/json", "application/x-npy", "application/x-npz"
FIELDS = ("obs", "action_mask", "state", "episode_start", "deterministic")
MAX_ARRAYS = 256  # in one .npz body
STATE, NEXT_STATE = "state.", "next_state."
_FLAG = np.zeros((), np.bool_)


class BadRequest(UserError):
    """A request that is answered with a status of 400 or more, and one line."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


def read_request(kind: str, body: bytes, limit: int) -> dict[str, Any]:
    """The arguments of `Agent.predict` in a body of this content type; `limit` bounds the bytes of arrays in it."""
    if kind == JSON:
        return _read_json(body)
    if kind == NPY:
        return {"obs": _read_npy(body)}
    if kind == NPZ:
        return _read_npz(body, limit)
    raise BadRequest(f"Content-Type must be {JSON}, {NPY} or {NPZ}, got {shown(kind)}", 415)


def _read_json(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body, parse_constant=_reject)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body must be JSON: {one_line(error)}") from error
    if not isinstance(found, dict) or "obs" not in found:
        raise BadRequest('the body must be a JSON object with obs, such as {"obs": [0.1, 0, 0]}')
    for name in found:
        if name not in FIELDS:
            raise BadRequest(f"{shown(name)} is no field of a request{did_you_mean(name, FIELDS)}")
    if not isinstance(found.get("deterministic", True), bool):
        raise BadRequest(f"deterministic must be true or false, got {shown(found['deterministic'])}")
    if not _is_flags(found.get("episode_start")):
        raise BadRequest(f"episode_start must be true or false, or a list of them, got {shown(found['episode_start'])}")
    return found


def _is_flags(value: Any) -> bool:
    return value is None or all(isinstance(one, bool) for one in (value if isinstance(value, list) else [value]))


def _reject(text: str) -> float:
    raise ValueError(f"{text} is not a number of JSON")


def _read_npy(body: bytes) -> Array:
    with _rejecting("an array of numbers as written by numpy.save"):
        return read_array(io.BytesIO(body), len(body), "it")


@contextmanager
def _rejecting(what: str) -> Iterator[None]:
    """Context in which a body that cannot be read is a bad request."""
    try:
        yield
    except BadRequest:
        raise
    except READ_ERRORS as error:
        raise BadRequest(f"the body must be {what}: {one_line(error) or type(error).__name__}") from error


def _read_npz(body: bytes, limit: int) -> dict[str, Any]:
    arrays = {}
    with _rejecting("arrays as written by numpy.savez"), zipfile.ZipFile(io.BytesIO(body)) as archive:
        members = archive.infolist()
        # Before anything is unpacked: a small file may hold a large one.
        if len(members) > MAX_ARRAYS or sum(one.file_size for one in members) > limit:
            raise BadRequest(f"the arrays must be at most {MAX_ARRAYS}, of {limit} bytes in all", 413)
        for one in members:
            name = one.filename.removesuffix(".npy")
            if name in arrays:
                raise BadRequest(f"the arrays must have distinct names, got {shown(name)} twice")
            with open_member(archive, one.filename, shown(name)) as file:
                arrays[name] = read_array(file, one.file_size, shown(name))
    state = {name.removeprefix(STATE): arrays.pop(name) for name in list(arrays) if name.startswith(STATE)}
    found: dict[str, Any] = {"state": state} if state else {}
    found |= {name: arrays.pop(name) for name in ("action_mask", "episode_start") if name in arrays}
    if found.get("episode_start", _FLAG).dtype != np.bool_:
        raise BadRequest(f"episode_start must be an array of bool, got {found['episode_start'].dtype}")
    if set(arrays) == {"obs"}:
        return {**found, "obs": arrays["obs"]}
    entries = {name.removeprefix("obs."): one for name, one in arrays.items() if name.startswith("obs.")}
    if not entries or len(entries) != len(arrays):
        raise BadRequest(
            f"the arrays must be obs or obs.<entry>, action_mask and state.<name>, got {', '.join(arrays)}"
        )
    return {**found, "entries": entries}


def write_answer(kind: str, action: Any, state: Mapping[str, Any] | None) -> bytes:
    """An action and a state in the content type of the request."""
    if kind == JSON:
        answer: dict[str, Any] = {"action": _listed(action)}
        if state is not None:
            answer["state"] = {name: _listed(one) for name, one in state.items()}
        return json.dumps(answer, allow_nan=False).encode()
    file = io.BytesIO()
    if kind == NPY:
        np.save(file, np.asarray(action), allow_pickle=False)
    else:
        after = {NEXT_STATE + name: np.asarray(one) for name, one in (state or {}).items()}
        np.savez(file, allow_pickle=False, action=np.asarray(action), **after)
    return file.getvalue()


def _listed(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else value
