"""Files of transitions: the same bits in every format, true successors at every boundary, clear refusals."""

from __future__ import annotations

import dataclasses
import fcntl
import importlib.util
import json
import os
import pwd
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from hostile_data import good_arrays, hdf5, minari, npz

from rl_training.core.checks import UserError
from rl_training.data.datasets import array_store as storage
from rl_training.data.datasets.conversion import differences, load_data, training_data
from rl_training.data.datasets.formats import npz as npz_module
from rl_training.data.datasets.formats import writing
from rl_training.data.datasets.formats.loaders import load_transitions
from rl_training.data.datasets.formats.minari import find_minari
from rl_training.data.datasets.formats.writing import save_transitions
from rl_training.data.datasets.prepare import dataset_spaces
from rl_training.data.datasets.transitions import FIELDS, Transitions, concatenated
from rl_training.envs.spaces import ActionCodec, ObservationCodec, space_from_dict, space_to_dict

SPACES = {
    "observation_space": {"kind": "box", "shape": [3], "dtype": "float32", "low": ["-inf"], "high": ["inf"]},
    "action_space": {"kind": "box", "shape": [2], "dtype": "float32", "low": ["-1.0", "-0.1"], "high": ["1.0", "0.1"]},
}
needs_h5py = pytest.mark.skipif(importlib.util.find_spec("h5py") is None, reason="h5py is an extra")
SUFFIXES = [".npz", pytest.param(".hdf5", marks=needs_h5py), pytest.param("", marks=needs_h5py)]


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch) -> None:
    """Where arrays that are too large for memory go."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def some_transitions(kind: str = "float32", rows: int = 40) -> Transitions:
    """Trajectories of different lengths, with the odd values that a careless copy would lose."""
    rng = np.random.default_rng(0)
    terminated, truncated = rng.random(rows) < 0.1, rng.random(rows) < 0.1
    truncated[-1] = not terminated[-1]
    if kind == "images":
        obs = rng.integers(0, 256, (rows + 1, 3, 4, 4), dtype=np.uint8)
    elif kind == "states":
        obs = rng.integers(0, 9, rows + 1)
    else:
        obs = rng.normal(size=(rows + 1, 3)).astype(kind)
        obs[5, :2] = -0.0, np.finfo(kind).smallest_subnormal
    next_obs = obs[1:].copy()
    next_obs[terminated | truncated] = next_obs[terminated | truncated][::-1]  # not the next row's observation
    actions = rng.integers(0, 3, rows) if kind == "states" else rng.normal(size=(rows, 2)).astype("float32")
    rewards = rng.normal(size=rows).astype("float64" if kind == "float64" else "float32")
    about: dict[str, Any] = {"env_id": "Hopper-v5", **SPACES} if kind == "float32" else {}
    return Transitions(obs[:-1], actions, rewards, next_obs, terminated, truncated, **about)


def same_bits(one: Transitions, other: Transitions) -> bool:
    return all(
        mine.dtype == theirs.dtype and mine.shape == theirs.shape and mine.tobytes() == theirs.tobytes()
        for mine, theirs in zip(one.arrays().values(), other.arrays().values(), strict=True)
    )


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("kind", ["float32", "float64", "float16", "images", "states"])
def test_a_round_trip_keeps_every_bit(suffix: str, kind: str, tmp_path: Path) -> None:
    before = some_transitions(kind)
    path = save_transitions(before, tmp_path / f"new/data{suffix}")
    after = load_transitions(path)
    assert same_bits(before, after) and after.sha256() == before.sha256()
    mapped = load_transitions(path, memory_share=0)
    assert isinstance(mapped.obs, np.memmap) and same_bits(before, mapped)
    assert after.env_id == before.env_id
    if kind == "float32":
        for name, space in SPACES.items():
            found = getattr(after, name)
            assert {**found, "low": set(found["low"]), "high": set(found["high"])} == {
                **space,
                "low": set(space["low"]),
                "high": set(space["high"]),
            }


@needs_h5py
def test_conversion_through_every_format_keeps_every_bit(tmp_path: Path) -> None:
    before = some_transitions()
    path = save_transitions(before, tmp_path / "a.npz")
    for name in ("b.h5", "c", "d.npz", "e", "f.hdf5", "g.npz"):
        path = save_transitions(load_transitions(path), tmp_path / name)
    assert same_bits(before, load_transitions(path))


def test_the_digest_is_of_every_bit(tmp_path: Path) -> None:
    data = some_transitions()
    digests = {data.sha256()}
    for name in FIELDS:
        changed = {**data.arrays(), name: data.arrays()[name].copy()}
        changed[name].view(np.uint8).reshape(-1)[7] ^= 1
        digests.add(Transitions(**changed).sha256())
    swapped = {**data.arrays(), "obs": data.next_obs, "next_obs": data.obs}
    assert len(digests | {Transitions(**swapped).sha256()}) == len(FIELDS) + 2


@pytest.mark.parametrize(
    "changes",
    [
        {"terminals": np.array([0, 0, 1, 0, 0, 0], np.float32), "timeouts": np.array([[0], [0], [0], [0], [0], [1]])},
        {"rewards": np.arange(6, dtype=np.float32)[:, None]},
        {"observations": None, "obs": good_arrays()["observations"]},
        {"terminals": None, "terminations": good_arrays()["terminals"]},
        {"terminals": None, "dones": good_arrays()["terminals"]},
        {"timeouts": None, "truncations": good_arrays()["timeouts"]},
        {"observations": np.asfortranarray(good_arrays()["observations"])},
        {"observations": good_arrays()["observations"].astype(">f4")},
        {"actions": np.asfortranarray(good_arrays()["actions"].astype(">f4"))},
        {"actions": good_arrays()["actions"][:, 0]},
    ],
)
def test_other_names_layouts_and_byte_orders_are_the_same_data(changes, tmp_path: Path) -> None:
    digest = load_transitions(npz("plain.npz")(tmp_path)).sha256()
    assert load_transitions(npz("other.npz", **changes)(tmp_path)).sha256() == digest


def test_successors_stay_within_their_trajectory(tmp_path: Path) -> None:
    """Three trajectories: a terminal state in row 2, a time limit in row 4, the end of the recording in row 7."""
    arrays = {
        "observations": np.arange(8.0)[:, None],
        "actions": np.zeros((8, 1)),
        "rewards": np.arange(8.0),
        "terminals": np.array([0, 0, 1, 0, 0, 0, 0, 0]),
        "timeouts": np.array([0, 0, 0, 0, 1, 0, 0, 0]),
    }
    np.savez(tmp_path / "data.npz", **arrays)
    data = load_transitions(tmp_path / "data.npz")
    # Rows 4 and 7 are left out: nobody recorded what came after them. The row before each is where its trajectory ends.
    assert data.rewards.tolist() == [0, 1, 2, 3, 5, 6]
    assert data.next_obs[:, 0].tolist() == [1, 2, 2, 4, 6, 7]  # of the terminal row, its own: it is never looked at
    assert data.terminated.tolist() == [False, False, True, False, False, False]
    assert data.truncated.tolist() == [False, False, False, True, False, True]
    assert data.stops().tolist() == [2, 3, 5]
    assert data.notes == ("2 transitions left out: the file does not have their next observations",)


def test_without_timeouts_a_trajectory_ends_where_the_next_row_is_elsewhere(tmp_path: Path) -> None:
    arrays = good_arrays(timeouts=None)
    arrays["next_observations"][3] += 100  # row 4 does not go on from row 3
    np.savez(tmp_path / "data.npz", **arrays)
    data = load_transitions(tmp_path / "data.npz")
    assert data.truncated.tolist() == [False, False, False, True, False, True]
    np.savez(tmp_path / "marked.npz", **{**good_arrays(), "next_observations": arrays["next_observations"]})
    (note,) = load_transitions(tmp_path / "marked.npz").notes  # here the file says where they end: it is believed
    assert note == "in 1 rows the next observation is not that of the next row, and no end is marked there"


@needs_h5py
def test_minari_has_the_true_successor_at_every_end(tmp_path: Path, monkeypatch) -> None:
    def change(file: Any, place: Path) -> None:
        file["episode_1/observations"][3] = 77, 78  # what came after the time limit
        file["episode_0/terminations"][2] = False  # the recording of this one stopped

    minari(change)(tmp_path)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    data = load_transitions("set")  # by its id
    assert data.next_obs.tolist() == [[2, 3], [4, 5], [6, 7], [8, 9], [10, 11], [77, 78]]
    assert data.truncated.tolist() == [False, False, True, False, False, True] and not data.terminated.any()
    assert data.notes[0] == "trajectories that end without a terminal state or a time limit, taken as truncated: 1"


@needs_h5py
def test_a_minari_set_is_called_what_its_folder_is(tmp_path: Path) -> None:
    folder = minari()(tmp_path)
    assert json.loads((folder / "data" / "metadata.json").read_text())["dataset_id"] == folder.name == "set"


@needs_h5py
def test_minari_cannot_hold_trajectories_with_holes(tmp_path: Path) -> None:
    arrays = good_arrays()
    arrays["observations"][4] = 50
    np.savez(tmp_path / "data.npz", **arrays)
    with pytest.raises(UserError, match=r"set: row 4 does not continue where row 3 ended, .* to npz or hdf5"):
        save_transitions(load_transitions(tmp_path / "data.npz"), tmp_path / "set")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data.npz"]


@needs_h5py
def test_bounds_that_nobody_knows_stay_unknown_through_minari(tmp_path: Path) -> None:
    """Without an environment actions are then taken to be in [-1, 1], as from the file it was made of."""
    plain = load_transitions(npz()(tmp_path))
    found = load_transitions(save_transitions(plain, tmp_path / "set"))
    assert found.action_space["low"] == ["-inf"] and found.sha256() == plain.sha256()
    for data in (plain, found):
        observation, action = dataset_spaces(data, "here")
        assert action.space == spaces.Box(-1, 1, (1,)) and observation.shape == (2,)
        training_data(data, observation, action, "here")
    half = {**found.action_space, "high": ["1.0"]}  # here somebody knew something
    with pytest.raises(UserError, match=r"here: its spaces cannot be used: action space .* is unbounded"):
        dataset_spaces(dataclasses.replace(found, action_space=half), "here")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_single_numbers_are_observations(suffix: str, tmp_path: Path) -> None:
    number = np.arange(6, dtype=np.float32)
    path = npz("number.npz", observations=number, next_observations=number + 1)(tmp_path)
    data = load_transitions(path)
    assert data.obs.shape == data.next_obs.shape == (6, 1)
    assert load_transitions(save_transitions(data, tmp_path / f"again{suffix}")).sha256() == data.sha256()
    for observation in (dataset_spaces(data, "here")[0], ObservationCodec(spaces.Box(-9, 9, ()))):
        dataset = training_data(data, observation, ActionCodec(spaces.Box(-1, 1, (1,))), "here")
        assert dataset.obs.tolist() == number[:, None].tolist()
    states = npz("states.npz", observations=np.arange(6), next_observations=np.arange(6) + 1)(tmp_path)
    assert load_transitions(states).obs.shape == (6,)  # numbers of states


def nan(name: str, *rows: int) -> dict[str, Any]:
    array = good_arrays()[name].copy()
    array[list(rows)] = np.nan
    return {name: array}


def test_rows_with_nan_are_left_out_on_request_and_end_the_trajectory(tmp_path: Path) -> None:
    path = npz(**nan("rewards", 1), **nan("actions", 3))(tmp_path)
    data = load_transitions(path, drop_nonfinite=True)
    assert data.rewards.tolist() == [0, 2, 4, 5]
    assert data.truncated.tolist() == [True, False, False, True] and data.terminated.tolist() == [
        False,
        True,
        False,
        False,
    ]
    assert data.notes == ("2 transitions left out: NaN or infinity",)


REFUSED: dict[str, tuple[Any, str]] = {
    "NaN rewards": (npz(**nan("rewards", 1, 4)), "NaN or infinity in rewards: 2 of 6 rows, the first is row 1; "
                    "leave them out with drop_nonfinite=True"),
    "NaN obs": (npz(**nan("observations", 2)), "NaN or infinity in obs: 1 of 6 rows, the first is row 2{text}"),
    "NaN actions": (npz(**nan("actions", 0)), "NaN or infinity in actions: 1 of 6 rows, the first is row 0; {text}"),
    "infinite": (npz(next_observations=np.full((6, 2), np.inf, np.float32)), "NaN or infinity in next_obs: 6 {text}"),
    "ragged": (npz(actions=np.zeros((5, 1))), "all arrays must have the same length, got observations 6, actions 5, "
               "rewards 6, next_observations 6, terminals 6, timeouts 6"),
    "zero length": (npz(**{name: value[:0] for name, value in good_arrays().items()}), "has no transitions, at least 2 "
                    "are needed"),
    "one transition": (npz(**{name: value[:1] for name, value in good_arrays().items()}), "has only 1 transition, at "
                       "least 2 are needed"),
    "all terminal": (npz(terminals=np.ones(6)), "all 6 transitions are terminal, so none has a future {text}"),
    "no rewards": (npz(rewards=None), "has no rewards; it has actions, next_observations, observations, {text}"),
    "no ends": (npz(terminals=None, timeouts=None), "has neither terminals nor timeouts, {text}"),
    "no successors": (npz(next_observations=None, timeouts=None), "has neither next_observations nor timeouts, {text}"),
    "flags": (npz(terminals=np.array([0, 0, 2, 0, 0, 0])), "terminals must be 0 or 1, got 2 in row 2"),
    "flag NaN": (npz(timeouts=np.array([0, np.nan, 0, 0, 0, 0])), "timeouts must be 0 or 1, got nan in row 1"),
    "flag table": (npz(terminals=np.zeros((6, 2))), "terminals must be one number per row, got shape (6, 2)"),
    "reward table": (npz(rewards=np.zeros((6, 2))), "rewards must be one number per row, got shape (6, 2)"),
    "one number": (npz(rewards=np.float32(1)), "rewards must be an array with a row for each transition, got {text}"),
    "other shape": (npz(next_observations=np.zeros((6, 3), np.float32)), "observations is float32 (6, 2), "
                    "next_observations is float32 (6, 3): they must have the same shape and type"),
    "other type": (npz(next_observations=np.zeros((6, 2))), "{text}next_observations is float64 (6, 2): {text}"),
    "choices": (npz(actions=np.zeros((6, 2), np.int64)), "actions must be numbers of shape {text}"),
    "true actions": (npz(actions=np.zeros((6, 1), np.bool_)), "actions must be numbers of shape {text}"),
    "empty actions": (npz(actions=np.zeros((6, 0), np.float32)), "actions must be numbers of shape {text}"),
    "complex": (npz(actions=np.zeros((6, 1), np.complex64)), "'actions' has elements of type '<c8', {text}"),
    "about": (npz(rl_training=np.frombuffer(b"[1]", np.uint8)), "rl_training must have env_id, {text}, got [1]"),
    "about text": (npz(rl_training=np.frombuffer(b"{", np.uint8)), "rl_training is not valid JSON"),
    "about numbers": (npz(rl_training=np.zeros(3)), "rl_training must be bytes, got float64 (3,)"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused_in_one_line(name: str, tmp_path: Path) -> None:
    build, message = REFUSED[name]
    path = build(tmp_path)
    with pytest.raises(UserError) as refusal:
        load_transitions(path)
    pattern = re.escape(f"{path}: {message}").replace(r"\{text\}", ".*")
    assert re.fullmatch(pattern, str(refusal.value)), refusal.value


@needs_h5py
@pytest.mark.parametrize(
    ("change", "metadata", "message"),
    [
        (lambda file, place: file.pop("episode_0"), None, r"metadata.json: declares 2 episodes, main_data.hdf5 has 1"),
        (lambda file, place: [file.pop(name) for name in list(file)], None, "has no episodes"),
        (lambda file, place: file["episode_1"].pop("rewards"), None, "episode_1: has no 'rewards'"),
        (
            lambda file, place: file["episode_1"].move("actions", "x")
            or file["episode_1"].create_dataset("actions", data=np.zeros((2, 1), np.float32)),
            None,
            "episode_1: observations must be one more than the rest, got observations 4, actions 2, rewards 3",
        ),
        (lambda file, place: file["episode_0/terminations"].write_direct(np.array([1, 0, 0], bool)), None,
         "an episode continues after a terminal state"),
        (None, lambda values: {**values, "data_format": "arrow"}, "in Minari's 'arrow' format, only hdf5 is supported"),
    ],
)  # fmt: skip
def test_a_minari_set_that_is_not_whole_is_refused(change, metadata, message, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        load_transitions(minari(change, metadata)(tmp_path))


def test_places_without_a_data_set(tmp_path: Path) -> None:
    npz("pendulum.npz")(tmp_path)
    for name, message in {
        "pendulun.npz": r"pendulun.npz: no such dataset; did you mean pendulum.npz\?",
        ".": r"is a directory, and not a Minari dataset \(no data/metadata.json\)",
        "data.csv": "a dataset must be .npz, .hdf5, .h5 or a Minari folder, got '.csv'",
        "../../nothing": "no such dataset",
    }.items():
        (tmp_path / "data.csv").touch()
        with pytest.raises(UserError, match=message):
            load_transitions(tmp_path / name)


def test_suspicious_ends_are_told(tmp_path: Path) -> None:
    ends = np.array([0, 1, 0, 1, 0, 1])
    (note,) = load_transitions(npz(terminals=ends, timeouts=ends)(tmp_path)).notes
    assert note == "all 3 time limits are marked terminal as well: they count as terminal states"
    (note,) = load_transitions(npz(terminals=ends, timeouts=np.zeros(6))(tmp_path)).notes
    assert note.startswith("every trajectory ends in a terminal state after 2 steps: if that is a time limit,")


@pytest.mark.parametrize("timeouts", ["as terminals", "none", "zero"])
def test_a_recording_that_stops_within_an_episode_is_no_less_suspicious(timeouts: str, tmp_path: Path) -> None:
    rows = np.arange(11.0)[:, None]
    ends = np.array([0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0])
    arrays = {"observations": rows, "next_observations": rows + 1, "actions": rows / 20, "rewards": rows}
    limits = {"as terminals": {"timeouts": ends}, "none": {}, "zero": {"timeouts": 0 * ends}}[timeouts]
    np.savez(tmp_path / "data.npz", **arrays, terminals=ends, **limits)
    expected = (
        "all 5 time limits" if timeouts == "as terminals" else "every trajectory ends in a terminal state after 2"
    )
    (note,) = load_transitions(tmp_path / "data.npz").notes
    assert note.startswith(expected)


def test_a_text_beside_the_arrays_is_no_obstacle(tmp_path: Path) -> None:
    plain = load_transitions(npz()(tmp_path))
    told = npz("told.npz", env=np.array("Pendulum-v1"), authors=np.array(["a", "b"]), raw=np.array(b"x"))(tmp_path)
    assert load_transitions(told).sha256() == plain.sha256()
    with pytest.raises(UserError, match="'rewards' has elements of type '<U1', numbers of at most 64 bits"):
        load_transitions(npz("text.npz", rewards=np.array(["1"] * 6))(tmp_path))


@needs_h5py
def test_an_environment_that_a_function_makes_is_written_to_minari(tmp_path: Path) -> None:
    import gymnasium

    gymnasium.register("Made-v0", entry_point=lambda: None)
    try:
        data = dataclasses.replace(some_transitions(), env_id="Made-v0")
        again = load_transitions(save_transitions(data, tmp_path / "made"))
    finally:
        del gymnasium.registry["Made-v0"]
    assert again.sha256() == data.sha256() and again.env_id == "Made-v0"


@pytest.mark.parametrize(("true_ends", "told"), [([], "3 of 3"), ([1], "2 of 3"), ([1, 3], None), ([1, 3, 5], None)])
def test_successors_that_run_over_a_time_limit_are_told(true_ends: list[int], told: str | None, tmp_path: Path) -> None:
    """Time limits in rows 1, 3 and 5, the recording ends in row 7; at `true_ends` the last observation was recorded."""
    obs = np.arange(8.0)[:, None]
    after = obs + 1
    after[true_ends] += 100
    limits = np.array([0, 1, 0, 1, 0, 1, 0, 1])
    arrays = {"observations": obs, "next_observations": after, "actions": obs / 9, "rewards": obs, "timeouts": limits}
    np.savez(tmp_path / "data.npz", **arrays)
    text = "time limits the next observation is that of the next row: if another episode begins there, values run on"
    expected = () if told is None else (f"at {told} {text} into it",)
    assert load_transitions(tmp_path / "data.npz").notes == expected


def test_numbers_that_float32_cannot_hold_are_as_good_as_infinite(tmp_path: Path) -> None:
    for name, value in (("rewards", 1e39), ("actions", -1e300), ("observations", 4e38)):
        arrays = {key: array.astype(np.float64) for key, array in good_arrays().items()}
        arrays[name][4] = value
        np.savez(tmp_path / f"{name}.npz", **arrays)
        field = "obs" if name == "observations" else name
        said = (
            rf"{name}.npz: numbers beyond float32's range in {field}: 1 of 6 rows, the first is row 4; leave them out"
        )
        with pytest.raises(UserError, match=said):
            load_transitions(tmp_path / f"{name}.npz")
        assert len(load_transitions(tmp_path / f"{name}.npz", drop_nonfinite=True)) == 5
    np.savez(tmp_path / "large.npz", **{**arrays, "observations": np.full((6, 2), 3.4e38)[:, :], "next_observations":
                                        np.full((6, 2), -3.4e38)})  # fmt: skip
    assert len(load_transitions(tmp_path / "large.npz")) == 6


def test_a_user_without_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that is started for a user whom it does not know."""

    def unknown(number: int) -> None:
        raise KeyError(number)

    for name in ("HOME", "XDG_CACHE_HOME", "MINARI_DATASETS_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert storage._folder() == Path(tempfile.gettempdir())
    assert find_minari("data.npz") is None


def test_what_does_not_fit_is_refused_before_it_is_read(tmp_path: Path, monkeypatch) -> None:
    path = npz()(tmp_path)
    monkeypatch.setattr(storage, "free_memory", lambda: 0)
    monkeypatch.setattr(storage.shutil, "disk_usage", lambda folder: shutil._ntuple_diskusage(100, 0, 100))
    monkeypatch.setattr(Transitions, "__init__", None)
    with pytest.raises(
        UserError, match=r"data.npz: needs 0.0 GiB; 0.0 GiB of memory and 0.0 GiB on disk are available"
    ):
        load_transitions(path)


@pytest.mark.parametrize("order", ["C", "F"])
def test_what_is_mapped_stays_out_of_memory(order: Any, tmp_path: Path, monkeypatch) -> None:
    """Ten megabytes of float64 without next observations, with time limits and a NaN: each step makes a copy."""
    monkeypatch.setattr(storage, "BLOCK_BYTES", 1 << 18)
    monkeypatch.setattr(npz_module, "BLOCK_BYTES", 1 << 18)
    rows, width = 20_000, 64
    rng = np.random.default_rng(0)
    obs = np.asarray(rng.normal(size=(rows, width)), order=order)
    arrays = {"observations": obs, "actions": np.asarray(rng.uniform(-1, 1, (rows, 16)), order=order)}
    arrays |= {"rewards": rng.normal(size=rows), "timeouts": np.arange(rows) % 100 == 99, "terminals": np.zeros(rows)}
    arrays["terminals"][::70], arrays["rewards"][5] = 1, np.nan
    np.savez(tmp_path / "data.npz", **arrays)
    observation, action = (spaces.Box(-np.inf, np.inf, (width,)), spaces.Box(-1, 1, (16,)))
    made = {}
    for share in (0.0, 0.5):
        tracemalloc.start()
        data = load_transitions(tmp_path / "data.npz", drop_nonfinite=True, memory_share=share)
        dataset = training_data(data, ObservationCodec(observation), ActionCodec(action), "here")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert (peak < 4e6) is (share == 0), peak
        assert isinstance(data.obs, np.memmap) is isinstance(data.next_obs, np.memmap) is (share == 0)
        made[share] = (data, dataset)
    assert same_bits(made[0.0][0], made[0.5][0]) and len(data) == rows - 1 - int(
        (~(arrays["terminals"] > 0))[99::100].sum()
    )
    for name in ("obs", "next_obs", "actions"):
        assert torch.equal(getattr(made[0.0][1], name), getattr(made[0.5][1], name))


def test_several_mapped_sets_are_one_mapped_set(tmp_path: Path) -> None:
    path = npz()(tmp_path)
    parts = [load_transitions(path, memory_share=0) for _ in range(2)]
    both = concatenated(parts, ["a", "b"])
    assert isinstance(both.obs, np.memmap) and both.rewards.tolist() == [*range(6), *range(6)]
    assert not isinstance(concatenated([load_transitions(path)] * 2, ["a", "b"]).obs, np.memmap)


def test_without_h5py_one_line_says_what_to_install(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "h5py", None)
    (tmp_path / "data.hdf5").touch()
    with pytest.raises(UserError, match=r"^HDF5 and Minari datasets need h5py: pip install 'rl-training\[offline\]'$"):
        load_transitions(tmp_path / "data.hdf5")
    with pytest.raises(UserError, match="need h5py"):
        save_transitions(some_transitions(), tmp_path / "new.hdf5")
    assert [path.name for path in tmp_path.iterdir()] == ["data.hdf5"]


def test_nothing_is_overwritten_and_nothing_half_written(tmp_path: Path, monkeypatch) -> None:
    data, path = some_transitions(), npz()(tmp_path)
    before = path.read_bytes()
    with pytest.raises(UserError, match=r"data.npz: already exists"):
        save_transitions(data, path)
    for name, message in {"new.txt": "must end in .npz, .hdf5, .h5, or in nothing for a Minari folder"}.items():
        with pytest.raises(UserError, match=message):
            save_transitions(data, tmp_path / name)
    with pytest.raises(UserError, match=r"format must be one of npz, hdf5, minari, got 'hdf'; did you mean hdf5\?"):
        save_transitions(data, tmp_path / "new", "hdf")
    for name, kind in (("new.npz", "hdf5"), ("new.zip", "npz"), ("new", "npz"), ("new.bin", "hdf5")):
        with pytest.raises(UserError, match=rf"{name}: does not have the suffix of {kind}"):
            save_transitions(data, tmp_path / name, kind)
    monkeypatch.setattr(
        writing, "sync_tree", lambda path: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    with pytest.raises(UserError, match=r"new.npz: cannot be written \(No space left on device\)"):
        save_transitions(data, tmp_path / "new.npz")
    assert [path.name for path in tmp_path.iterdir()] == ["data.npz"] and path.read_bytes() == before


@needs_h5py
@pytest.mark.filterwarnings("error")  # what HDF5 throws away is shown as one
@pytest.mark.parametrize("limit", [500, 3000, 12_000, 26_000, 100_000, 300_000])  # bytes
@pytest.mark.parametrize("name", ["new.npz", "new.hdf5", "new"])
def test_a_disk_that_is_full_is_one_line_and_leaves_nothing(name: str, limit: int, tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    noise = np.random.default_rng(0).normal(size=(300, 10) if limit < 30_000 else (20_000, 2))
    data = dataclasses.replace(some_transitions(), **rows_of(noise))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))  # HDF5's own files crash the process when they close
    try:
        with pytest.raises(UserError, match=rf"/{name}: cannot be written \(File too large\)$"):
            save_transitions(data, tmp_path / name)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert list(tmp_path.iterdir()) == []
    assert load_transitions(save_transitions(data, tmp_path / name)).sha256() == data.sha256()


def rows_of(obs: np.ndarray) -> dict[str, np.ndarray]:
    rows, end = len(obs), np.zeros(len(obs), np.bool_)
    end[-1] = True
    following = np.concatenate([obs[1:], obs[:1]])
    return {
        "obs": obs, "next_obs": following, "actions": np.zeros((rows, 1)), "rewards": np.zeros(rows),
        "terminated": np.zeros(rows, np.bool_), "truncated": end, "observation_space": None, "action_space": None,
    }  # fmt: skip


def test_what_came_to_be_there_while_writing_is_kept(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "new.npz"
    real = writing.sync_tree
    monkeypatch.setattr(writing, "sync_tree", lambda place: (real(place), path.write_text("another's")))
    with pytest.raises(UserError, match=r"new.npz: already exists"):
        save_transitions(some_transitions(), path)
    assert [place.name for place in tmp_path.iterdir()] == ["new.npz"] and path.read_text() == "another's"


def test_what_a_killed_process_was_writing_is_removed(tmp_path: Path) -> None:
    with writing._work_folder(tmp_path) as mine:
        left, new, used = (tmp_path / f"{mine.name}{name}" for name in ("left", "new", "used"))
    for place in (left, new, used):
        place.mkdir()
        (place / "data").touch()
    for place in (left, used):
        os.utime(place, (0, 0))
    handle = os.open(used, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    save_transitions(some_transitions(), tmp_path / "new.npz")
    os.close(handle)
    assert {place.name for place in tmp_path.iterdir()} == {"new.npz", new.name, used.name}


@needs_h5py
@pytest.mark.parametrize("filters", [{"shuffle": True, "fletcher32": True}, {"scaleoffset": 0}])
def test_large_packed_chunks_are_read(filters: dict[str, Any], tmp_path: Path) -> None:
    rows = 100_000
    rewards = np.random.default_rng(0).integers(-(2**63), 2**63 - 1, rows)  # scaleoffset only adds a header
    obs = np.arange(2 * rows, dtype=np.float32).reshape(rows, 2)
    ends = {"terminals": np.zeros(rows, np.bool_), "timeouts": np.arange(rows) % 10 == 9}

    def packed(file: Any, place: Path) -> None:
        del file["rewards"]
        file.create_dataset("rewards", data=rewards, chunks=(rows,), compression="gzip", **filters)

    arrays = {"observations": obs, "next_observations": obs, "actions": np.zeros((rows, 1), np.float32)}
    path = hdf5(packed, **arrays, **ends)(tmp_path)
    assert (load_transitions(path).rewards == rewards).all()


@needs_h5py
def test_a_handler_that_raises_does_not_raise_within_hdf5(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).normal(size=(100_000, 2))
    data = dataclasses.replace(some_transitions(), **rows_of(noise))

    def leave(*_: Any) -> None:
        raise SystemExit(3)

    before = signal.signal(signal.SIGALRM, leave)
    try:
        for delay in (0.01, 0.02, 0.03, 0.05):
            signal.setitimer(signal.ITIMER_REAL, delay)
            with pytest.raises(SystemExit):
                save_transitions(data, tmp_path / f"{delay}.hdf5")
                time.sleep(1)  # a disk that was faster
    finally:
        signal.signal(signal.SIGALRM, before)
    assert not list(tmp_path.glob(f"{writing.WORK_PREFIX}*"))


@needs_h5py
@pytest.mark.parametrize("name", ["new.hdf5", "new"])
def test_ctrl_c_while_writing_leaves_nothing(name: str, tmp_path: Path, ctrl_c: None) -> None:
    noise = np.random.default_rng(0).normal(size=(100_000, 2))
    data = dataclasses.replace(some_transitions(), **rows_of(noise))
    for delay in (0.005, 0.02, 0.05, 0.1):
        timer = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):
            timer.start()
            save_transitions(data, tmp_path / name)
            timer.join()
            time.sleep(0.1)  # a disk that was faster
        assert not list(tmp_path.glob(f"{writing.WORK_PREFIX}*"))
        if (tmp_path / name).exists():
            break


def test_a_new_file_is_looked_at_before_it_is_made(tmp_path: Path) -> None:
    writing.check_writable(tmp_path / "there" / f"{'n' * 251}.npz", "npz")  # the longest name that there is
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "link.npz").symlink_to(tmp_path / "nowhere")
    for name, message in {
        "link.npz": "already exists",
        f"{'n' * 252}.npz": r"cannot be written \(File name too long\)",
    }.items():
        with pytest.raises(UserError, match=message):
            writing.check_writable(tmp_path / name, "npz")


@needs_h5py
@pytest.mark.parametrize("suffix", [".HDF5", ".NPZ"])
def test_a_suffix_may_be_in_capitals(suffix: str, tmp_path: Path) -> None:
    data = some_transitions()
    assert load_transitions(save_transitions(data, tmp_path / f"data{suffix}")).sha256() == data.sha256()


@needs_h5py
def test_minari_does_not_turn_a_negative_zero(tmp_path: Path) -> None:
    data = some_transitions()
    for following, kept in ((0.0, True), (-0.0, False)):
        data.obs[1, 0], data.next_obs[0, 0] = 0.0, following
        if kept:
            assert load_transitions(save_transitions(data, tmp_path / "set")).sha256() == data.sha256()
        else:
            with pytest.raises(UserError, match="row 1 does not continue where row 0 ended"):
                save_transitions(data, tmp_path / "other")


@needs_h5py
def test_an_episode_without_a_step_is_passed_over(tmp_path: Path) -> None:
    def empty(file: Any, place: Path) -> None:
        group = file.create_group("episode_2")
        for name in ("observations", "actions", "rewards", "terminations", "truncations"):
            rows = file["episode_1"][name]
            group.create_dataset(name, data=rows[: name == "observations"])

    path = minari(empty, lambda values: {**values, "total_episodes": 3})(tmp_path)
    assert load_transitions(path).sha256() == load_transitions(tmp_path / "data.npz").sha256()


def test_rows_are_numbered_as_in_the_file(tmp_path: Path) -> None:
    rewards = np.arange(6, dtype=np.float32)
    rewards[4] = np.nan
    ends = np.array([0, 1, 0, 0, 0, 0], np.bool_)  # without its successor row 1 is left out
    path = npz(rewards=rewards, next_observations=None, terminals=None, timeouts=ends)(tmp_path)
    with pytest.raises(UserError, match=r"in rewards: 1 of 6 rows, the first is row 4;"):
        load_transitions(path)
    found = load_transitions(path, drop_nonfinite=True)
    assert found.rewards.tolist() == [0, 2, 3]  # row 5 has no successor either
    assert found.truncated.tolist() == [True, False, True]
    assert [note.split(":")[0] for note in found.notes[:2]] == ["1 transitions left out", "2 transitions left out"]


def test_rows_that_are_left_out_may_hold_anything(tmp_path: Path) -> None:
    actions = np.linspace(-1, 1, 6, dtype=np.float32)[:, None]
    actions[[2, 5]] = np.nan  # as of a last observation, after which nothing was done
    ends = np.array([0, 0, 1, 0, 0, 1], np.bool_)
    path = npz(actions=actions, next_observations=None, terminals=None, timeouts=ends)(tmp_path)
    assert load_transitions(path).rewards.tolist() == [0, 1, 3, 4]


@needs_h5py
@pytest.mark.parametrize("dtype", ["int64", "uint64", "uint32", "int8"])
def test_bounds_of_whole_numbers_are_what_the_type_can_hold(dtype: str, tmp_path: Path) -> None:
    space = spaces.Box(0, np.iinfo(dtype).max, (2,), np.dtype(dtype).type)
    assert space_from_dict(space_to_dict(space)) == space
    data = load_transitions(
        npz(observations=np.arange(12, dtype=dtype).reshape(6, 2), next_observations=None)(tmp_path)
    )
    for told in (None, space_to_dict(space)):
        name = "told" if told else "unknown"
        path = save_transitions(dataclasses.replace(data, observation_space=told), tmp_path / name)
        assert load_data(path).sha256() == data.sha256()


def test_whole_rewards_go_with_broken_ones(tmp_path: Path) -> None:
    whole = load_transitions(npz("a.npz", rewards=np.arange(6))(tmp_path))
    both = concatenated([whole, load_transitions(npz("b.npz")(tmp_path))], ["a", "b"])
    assert both.rewards.dtype == np.float64 and both.rewards.tolist() == [*range(6), *range(6)]


BOX = {"kind": "box", "shape": [2], "dtype": "float32", "low": ["-1.0"], "high": ["1.0"]}


@pytest.mark.parametrize(
    ("space", "message"),
    [
        ({}, "'kind'"),
        ({"kind": 5}, "'shape'"),
        ({"kind": "discrete"}, ""),
        ({**BOX, "shape": ["x"]}, "it is of shape"),
        ({**BOX, "shape": "abc"}, "it is of shape"),
        ({**BOX, "shape": 7}, ""),
        ({**BOX, "shape": [10**12]}, r"it is of shape \(1000000000000,\), the rows are of shape \(2,\)"),
        ({**BOX, "shape": [4]}, r"it is of shape \(4,\), the rows are of shape \(2,\)"),
        ({**BOX, "low": []}, "a space of shape"),
        ({**BOX, "low": ["a"]}, "could not convert"),
        ({**BOX, "dtype": "O"}, "dtype must be a number type, got 'O'"),
        ({**BOX, "dtype": "(3,f4,f4"}, "dtype must be a number type"),
        ({**BOX, "dtype": ["f4"]}, "dtype must be a number type"),
    ],
)
def test_a_space_that_a_file_tells_of_must_be_that_of_its_rows(space: Any, message: str, tmp_path: Path) -> None:
    about = json.dumps({"env_id": None, "observation_space": space, "action_space": None}).encode()
    path = npz(rl_training=np.frombuffer(about, np.uint8))(tmp_path)
    with pytest.raises(UserError, match=f"^{path}: its observation_space cannot be used: .*{message}"):
        load_data(path)


def test_what_a_file_tells_of_itself_is_compared_with_the_environment(tmp_path: Path) -> None:
    space = spaces.Box(-8, 8, (2,)), spaces.Box(-2, 2, (1,))
    codecs = ObservationCodec(space[0]), ActionCodec(space[1])
    told = {"env_id": "Pendulum-v1", "action_space": {**BOX, "shape": [1]}, "observation_space": None}
    data = dataclasses.replace(load_transitions(npz()(tmp_path)), **told)  # the last two rows are (8, 9) and (10, 11)
    assert differences(data, *codecs, "module:Hopper-v5", "here") == [
        "here: the dataset is of Pendulum-v1, the environment is module:Hopper-v5",
        f"here: the dataset's action space is Box(-1.0, 1.0, (1,), float32), the environment's {space[1]}",
        f"here: 2 of 6 observations are outside {space[0]}",
    ]
    fitting = {"action_space": space_to_dict(space[1]), "obs": data.obs * 8 / 11}
    assert differences(dataclasses.replace(data, **fitting), *codecs, "module:Pendulum-v1", "here") == []
    unknown = {**told["action_space"], "low": ["-inf"], "high": ["inf"]}
    silent = dataclasses.replace(data, env_id=None, action_space=unknown)
    assert len(differences(silent, *codecs, "Hopper-v5", "here")) == 1
    assert len(differences(dataclasses.replace(silent, env_id="Pendulum-v1"), *codecs, "<make_env>", "here")) == 1


@needs_h5py
def test_a_d4rl_file_with_its_extras_is_read(tmp_path: Path) -> None:
    def extras(file: Any, place: Path) -> None:
        import h5py

        file["infos/qpos"] = np.zeros((6, 3))
        file["metadata/algorithm"] = "SAC"
        file["metadata/policy"] = h5py.SoftLink("/infos")  # not looked at

    data = load_transitions(hdf5(extras, next_observations=None)(tmp_path))
    assert len(data) == 5 and data.rewards.tolist() == [0, 1, 2, 3, 4]
    assert data.notes == ("1 transitions left out: the file does not have their next observations",)
