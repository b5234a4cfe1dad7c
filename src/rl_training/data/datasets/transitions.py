"""Transitions as stored in files: in the environment's units and dtypes, terminated and truncated separate.

The checks of a dataset by itself are here; checks against an environment are in `conversion`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rl_training.core.checks import UserError
from rl_training.data.datasets.array_store import Array, allocate, blocks, memory_share_for_copy

MAX_FLOAT32 = np.finfo(np.float32).max  # learners compute in float32, where larger numbers are infinite
STORED_TWICE = 1e-6  # relative difference of two copies of an observation, one of them rounded
NONFINITE, BEYOND_FLOAT32 = "NaN or infinity", "numbers beyond float32's range"
DROP_HINT = "; leave them out with drop_nonfinite=True"
FIELDS = ("obs", "actions", "rewards", "next_obs", "terminated", "truncated")


@dataclass(frozen=True)
class Transitions:
    """Transitions in their order. `truncated` marks every end of a trajectory that is not a terminal state."""

    obs: Array
    actions: Array
    rewards: Array
    next_obs: Array
    terminated: Array
    truncated: Array
    env_id: str | None = None
    observation_space: dict[str, Any] | None = None
    action_space: dict[str, Any] | None = None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.rewards)

    @property
    def holds_choices(self) -> bool:
        """Whether the actions are discrete."""
        return self.actions.ndim == 1

    def arrays(self) -> dict[str, Array]:
        """The arrays by name."""
        return {name: getattr(self, name) for name in FIELDS}

    def stops(self) -> Array:
        """The last row of every trajectory."""
        ends = self.terminated | self.truncated
        ends[-1] = True
        return np.flatnonzero(ends)

    def sha256(self) -> str:
        """The digest of the content, which is the same in every file format."""
        digest = hashlib.sha256()
        for name, array in self.arrays().items():
            little = array.dtype.newbyteorder("<")
            digest.update(f"{name} {little.str} {array.shape}\n".encode())
            for rows in blocks(array):
                digest.update(np.ascontiguousarray(array[rows], little).data)
        return digest.hexdigest()


def fill_successors(obs: Array, next_obs: Array, terminated: Array, truncated: Array) -> Array:
    """Fill `next_obs` from the following rows; returns the rows whose successor was not recorded."""
    numbers = np.arange(len(obs))
    # The value after a terminal state is not used; another episode's observation does not belong there.
    following = np.where(terminated, numbers, np.minimum(numbers + 1, len(obs) - 1))
    for rows in blocks(obs):
        next_obs[rows] = obs[following[rows]]
    lost = truncated & ~terminated
    lost[-1:] |= ~terminated[-1:]
    return np.asarray(lost)


def discontinuous_rows(obs: Array, next_obs: Array, tolerance: float = 0.0) -> Array:
    """Rows whose next observation is not the observation of the next row, except the last row."""
    found = np.zeros(len(obs), np.bool_)
    for rows in blocks(obs[:-1]):
        mine, following = next_obs[rows], obs[rows.start + 1 : rows.stop + 1]
        differs = mine != following
        if tolerance and obs.dtype.kind == "f":
            differs &= np.abs(mine - following) > tolerance * np.maximum(np.abs(following), 1)
        elif obs.dtype.kind == "f":
            differs |= np.signbit(mine) != np.signbit(following)  # zero and negative zero differ in their bits
        found[rows] = differs.reshape(len(differs), -1).any(1)
    return found


def drop_rows(transitions: Transitions, rows: Array, reason: str, where: str) -> Transitions:
    """The transitions without some rows. A trajectory that loses a row ends before it."""
    ends = transitions.terminated | transitions.truncated
    truncated = transitions.truncated.copy()
    truncated[:-1] |= rows[1:] & ~ends[:-1]
    kept = np.flatnonzero(~rows)
    before = {**transitions.arrays(), "truncated": truncated}
    layout = {name: ((len(kept), *array.shape[1:]), array.dtype) for name, array in before.items()}
    after: dict[str, Any] = {**allocate(layout, where, memory_share_for_copy(*before.values()))}
    for name, array in after.items():
        for piece in blocks(array):
            array[piece] = before[name][kept[piece]]
    note = f"{int(rows.sum())} transitions left out: {reason}"
    return replace(transitions, **after, notes=(*transitions.notes, note))


def concatenated(parts: Sequence[Transitions], names: Sequence[str]) -> Transitions:
    """Several datasets as one, with the ends of each; of two precisions the finer is used."""
    first = parts[0]
    if len(parts) == 1:
        return first
    for part, name in zip(parts[1:], names[1:], strict=True):
        for field, array in part.arrays().items():
            mine = getattr(first, field)
            mixed = array.dtype.kind != mine.dtype.kind and field != "rewards"  # rewards may be of any number type
            if array.shape[1:] != mine.shape[1:] or mixed:
                raise UserError(
                    f"{name}: {field} are {array.dtype} {array.shape[1:]} a row, "
                    f"those of {names[0]} are {mine.dtype} {mine.shape[1:]}"
                )
        if None not in (part.env_id, first.env_id) and part.env_id != first.env_id:
            raise UserError(f"{name} is of {part.env_id}, {names[0]} of {first.env_id}: they are not one dataset")
    rows = sum(map(len, parts))
    wide = {field: np.result_type(*(getattr(part, field) for part in parts)) for field in first.arrays()}
    layout = {field: ((rows, *array.shape[1:]), wide[field]) for field, array in first.arrays().items()}
    share = memory_share_for_copy(*(part.obs for part in parts))
    arrays: dict[str, Any] = {**allocate(layout, ", ".join(names), share)}
    for field, array in arrays.items():
        np.concatenate([getattr(part, field) for part in parts], out=array)
    return replace(first, **arrays, notes=tuple(note for part in parts for note in part.notes))


def check_values(
    transitions: Transitions,
    where: str,
    drop_nonfinite: bool = False,
    from_file: bool = True,
    hint: str = DROP_HINT,
    lost: Array | None = None,
) -> Transitions:
    """Check values: reject or drop rows with nonfinite numbers, and note suspicious facts of a file.

    `lost` rows have no successor and are left out last, so that messages have the file's row numbers.
    """
    bad = np.zeros(len(transitions), np.bool_)
    for name in ("obs", "actions", "rewards", "next_obs"):
        wrong = nonfinite_rows(getattr(transitions, name))
        if lost is not None:
            wrong &= ~lost
        if wrong.any() and not drop_nonfinite:
            count, first = int(wrong.sum()), int(np.argmax(wrong))
            what = BEYOND_FLOAT32 if np.isfinite(getattr(transitions, name)[first]).all() else NONFINITE
            raise UserError(f"{where}: {what} in {name}: {count} of {len(wrong)} rows, the first is row {first}{hint}")
        bad |= wrong
    if bad.any():
        transitions = drop_rows(transitions, bad, NONFINITE, where)
    if lost is not None and lost[~bad].any():
        transitions = drop_rows(transitions, lost[~bad], "the file does not have their next observations", where)
    if len(transitions) < 2:
        some = "only 1 transition" if len(transitions) else "no transitions"
        raise UserError(f"{where}: has {some}, at least 2 are needed")
    if not from_file:
        return transitions
    # A recording with spaces has the environment's own ends, and may be of one-step episodes.
    if transitions.terminated.all() and transitions.observation_space is None:
        raise UserError(
            f"{where}: all {len(transitions)} transitions are terminal, so none has a future to learn; "
            "a time limit or the end of the recording belongs in `timeouts`"
        )
    return replace(transitions, notes=(*transitions.notes, *_suspicious_facts(transitions)))


def nonfinite_rows(array: Array) -> Array:
    """Rows with NaN, infinity or numbers beyond float32's range."""
    found = np.zeros(len(array), np.bool_)
    if array.dtype.kind != "f":
        return found
    for rows in blocks(array):
        finite = np.abs(array[rows]) <= MAX_FLOAT32  # false for NaN too
        found[rows] = ~finite.reshape(len(finite), -1).all(1)
    return found


def mostly_single_rows(transitions: Transitions) -> bool:
    """Whether the rows are mostly single transitions, not trajectories."""
    return bool((transitions.truncated & ~transitions.terminated).sum() > len(transitions) / 2)


def _suspicious_facts(transitions: Transitions) -> list[str]:
    """Notes on properties that may be intended and often are mistakes."""
    terminated, truncated = transitions.terminated, transitions.truncated
    found = []
    marked = truncated.copy()
    marked[-1:] &= terminated[-1:]  # the end of the recording is marked by the loader
    both = int((terminated & marked).sum())
    if both and both == marked.sum():
        found.append(f"all {both} time limits are marked terminal as well: they count as terminal states")
    lengths = np.diff(transitions.stops(), prepend=-1)
    if terminated.sum() >= 3 and not marked.any() and len(set(lengths[:-1].tolist())) == 1 and lengths[0] > 1:
        found.append(
            f"every trajectory ends in a terminal state after {lengths[0]} steps: if that is a time limit, it belongs "
            "in `timeouts`"
        )
    apart = discontinuous_rows(transitions.obs, transitions.next_obs, STORED_TWICE)
    limits = (truncated & ~terminated)[:-1]
    run_over = int((limits & ~apart[:-1]).sum())
    if run_over > limits.sum() / 2:
        found.append(
            f"at {run_over} of {int(limits.sum())} time limits the next observation is that of the next row: if "
            "another episode begins there, values run on into it"
        )
    if mostly_single_rows(transitions):
        found.append(
            f"{len(transitions.stops())} of {len(transitions)} rows end a trajectory: they are shuffled, or their next "
            "observations are of something else; returns mean nothing"
        )
    breaks = apart & ~(terminated | truncated)
    if breaks.any():
        found.append(
            f"in {int(breaks.sum())} rows the next observation is not that of the next row, and no end is marked there"
        )
    return found


def column(array: Array, name: str, where: str) -> Array:
    """One number per row, also when it is stored as (rows, 1)."""
    if array.ndim > 2 or array.shape[1:] not in ((), (1,)):
        raise UserError(f"{where}: {name} must be one number per row, got shape {array.shape}")
    return array.reshape(-1)


def flags(array: Array, name: str, where: str) -> Array:
    """One boolean per row, also when it is stored as 0 and 1."""
    array = column(array, name, where)
    if array.dtype.kind != "b" and not np.isin(array, (0, 1)).all():
        row = int(np.argmax(~np.isin(array, (0, 1))))
        raise UserError(f"{where}: {name} must be 0 or 1, got {array[row]} in row {row}")
    return array.astype(np.bool_)
