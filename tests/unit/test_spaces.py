"""Observations and actions of every supported space: encoded, decoded, described in files, read from callers."""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import Any

import dict_envs
import numpy as np
import pytest
import torch
from dict_envs import ACTIONS, MIXED, NUMBERS, OBSERVATIONS, AnySpaces
from gymnasium import spaces

from rl_training.core.checks import UserError
from rl_training.core.specs import continuous, multi_discrete
from rl_training.envs.host.conformance import check_spaces
from rl_training.envs.host.factory import EnvSource
from rl_training.envs.host.vector import EnvironmentFailure, SeededEnvs
from rl_training.envs.spaces import ActionCodec, ObservationCodec, space_from_dict, space_to_dict
from rl_training.tensors.observations import pack, split

ALL_OBSERVATIONS = {**OBSERVATIONS, "vector": spaces.Box(-1, 1, (3,)), "discrete": spaces.Discrete(4, start=2)}


def same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(np.array_equal(one, other))


def batched(values: list[Any]) -> Any:
    if isinstance(values[0], dict):
        return {key: batched([value[key] for value in values]) for key in values[0]}
    if isinstance(values[0], tuple):
        return tuple(batched([value[k] for value in values]) for k in range(len(values[0])))
    return np.stack(values)


def samples(space: spaces.Space[Any], count: int = 5) -> list[Any]:
    space.seed(3)
    return [space.sample() for _ in range(count)]


@pytest.mark.parametrize("name", ALL_OBSERVATIONS)
def test_rows_are_encoded_alone_and_together_alike_and_decoded(name: str) -> None:
    codec, values = ObservationCodec(ALL_OBSERVATIONS[name]), samples(ALL_OBSERVATIONS[name])
    rows = np.full((5, *codec.shape), 7, codec.dtype)
    for value, row in zip(values, rows, strict=True):
        codec.encode(value, row)
    if codec.spec.parts:  # padding has no meaning
        rows[:, sum(part.nbytes for _, part in codec.spec.parts) :] = 0
    together = codec.encode_rows(batched(values))
    assert np.array_equal(rows, together)
    assert same(codec.decode_rows(rows), batched(values))
    assert np.array_equal(codec.read(batched(values))[0], together)
    one, single = codec.read(values[1])
    assert single and np.array_equal(one[0], together[1])


def test_a_nested_dict_is_one_vector_in_a_known_order() -> None:
    codec = ObservationCodec(NUMBERS)
    value = {
        "position": np.array([0.5, -1], np.float32),
        "inner": {"mode": 3, "flags": np.array([1, 0], np.int8)},
        "gears": (np.array([1, 2]), np.array([[0.1, 0.2], [0.3, 0.4]], np.float32)),
    }
    row = np.zeros(codec.shape, codec.dtype)
    codec.encode(value, row)
    names = ["position", "inner.mode", "inner.flags", "gears.0", "gears.1"]
    assert [entry.name for entry in codec.spec.entries] == names
    expected = [0.5, -1, 0, 0, 1, 1, 0, 0, 1, 0, 0, 1, 0.1, 0.2, 0.3, 0.4]
    assert row.tolist() == np.array(expected, np.float32).tolist()
    named = codec.spec.unpack(row[None])
    assert named["gears.1"].tolist() == [value["gears"][1].tolist()] and named["position"].shape == (1, 2)


def test_images_with_numbers_are_one_row_of_bytes_that_networks_get_as_arrays() -> None:
    codec, values = ObservationCodec(MIXED), batched(samples(MIXED))
    spec = codec.spec
    assert spec.kind == "mixed" and spec.shape[0] % 4 == 0 and list(spec.arrays) == ["vector", "images.camera"]
    rows = torch.from_numpy(codec.encode_rows(values))
    arrays = split(spec, rows)
    assert torch.equal(arrays["images.camera"], torch.from_numpy(values["camera"]))
    assert arrays["vector"].dtype == torch.float32 and arrays["vector"].data_ptr() == rows.data_ptr()
    assert torch.equal(arrays["vector"][:, :2], torch.from_numpy(values["position"]))
    assert torch.equal(pack(spec, arrays), rows)
    named = spec.unpack(arrays)
    assert set(named) == {"camera", "mode", "position"} and named["mode"].argmax(-1).tolist() == values["mode"].tolist()


@pytest.mark.parametrize("space", [*ALL_OBSERVATIONS.values(), *ACTIONS.values()])
def test_a_space_survives_a_file(space: spaces.Space[Any]) -> None:
    again = space_from_dict(json.loads(json.dumps(space_to_dict(space))))
    assert again == space


def test_a_dict_keeps_the_order_of_its_keys_in_a_file() -> None:
    space = spaces.Dict(OrderedDict([("z", spaces.Discrete(2)), ("a", spaces.Box(-1, 1, (2,)))]))
    again = space_from_dict(json.loads(json.dumps(space_to_dict(space))))
    assert ObservationCodec(again).spec == ObservationCodec(space).spec


@pytest.mark.parametrize(
    "described",
    [
        {"kind": "dict", "spaces": [[1, {"kind": "discrete", "n": 2, "start": 0}]]},
        {"kind": "multi_discrete", "shape": [2], "dtype": "int64", "nvec": [2, 0], "start": [0, 0]},
        {"kind": "multi_discrete", "shape": [2], "dtype": "float32", "nvec": [2, 2], "start": [0, 0]},
        {"kind": "multi_discrete", "shape": [3], "dtype": "int64", "nvec": [2, 2], "start": [0, 0]},
        {"kind": "multi_binary", "shape": [2**30]},
        {"kind": "multi_binary", "shape": [-1, -1]},
    ],
)
def test_a_described_space_is_checked(described: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        space_from_dict(described)


def test_a_deep_space_in_a_file_is_rejected() -> None:
    described: dict[str, Any] = {"kind": "discrete", "n": 2, "start": 0}
    for _ in range(40):
        described = {"kind": "tuple", "spaces": [described]}
    with pytest.raises(ValueError, match="levels"):
        space_from_dict(described)


@pytest.mark.parametrize("name", ACTIONS)
def test_actions_go_to_the_environment_and_back(name: str) -> None:
    space, codec = ACTIONS[name], ActionCodec(ACTIONS[name])
    mine = codec.spec.sample(np.random.default_rng(0), 20)
    theirs = codec.to_env(mine)
    assert all(space.contains(codec.one(theirs[row : row + 1])) for row in range(20))
    assert codec.contains(theirs) and codec.accepts(theirs)
    assert np.allclose(codec.from_env(theirs), mine, atol=1e-6)
    assert theirs.shape == (20, *codec.env_shape) and theirs.dtype == codec.env_dtype


def test_joint_actions_are_counted_and_limited() -> None:
    assert ActionCodec(spaces.MultiDiscrete([2, 3])).spec.choices == 6
    assert ActionCodec(spaces.MultiBinary(9)).spec.choices == 512
    assert ActionCodec(spaces.MultiBinary(10)).spec.kind == "multi_discrete"
    every = ActionCodec(spaces.MultiDiscrete([2, 3])).to_env(np.arange(6))
    assert every.tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"camera": 1}, "the observation must have the keys camera, mode, position, got camera"),
        ([1, 2], "the observation must have the keys camera, mode, position, got list"),
        ({**samples(MIXED)[0], "mode": 9}, "observation entry 'mode' must be in Discrete(3), got 9"),
        ({**samples(MIXED)[0], "position": [1, np.nan]}, "observation entry 'position' must be finite"),
        ({**samples(MIXED)[0], "position": [1, 2, 3]}, "observation entry 'position' must be of shape (2,)"),
        ({**samples(MIXED)[0], "position": [[1, 2]] * 3}, "a batch of the same length for all"),
    ],
)
def test_a_wrong_observation_names_its_entry(value: Any, message: str) -> None:
    with pytest.raises(UserError) as refused:
        ObservationCodec(MIXED).read(value)
    assert message in str(refused.value)


class Changing(AnySpaces):
    """An environment whose observation changes at its third step."""

    change: Any = None

    def step(self, action: Any) -> Any:
        obs, *rest = super().step(action)
        if self.steps == 20:
            obs = type(self).change(obs)
        return obs, *rest


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda obs: {**obs, "extra": 1},
            "must have the keys gears, inner, position, got extra, gears, inner, position (unknown: extra)",
        ),
        (lambda obs: {key: obs[key] for key in ("gears", "inner")}, "got gears, inner (missing: position)"),
        (lambda obs: {**obs, "position": np.array([0, np.nan])}, "an observation with NaN or infinity in 'position'"),
        (lambda obs: {**obs, "position": np.zeros(3)}, "observation entry 'position': "),
        (lambda obs: {**obs, "inner": {**obs["inner"], "mode": 4}}, "observation entry 'inner.mode': 4 is not in"),
    ],
)
def test_an_observation_that_breaks_its_space_later_names_the_entry(change: Any, message: str) -> None:
    made = type("Made", (Changing,), {"change": staticmethod(change)})
    envs = SeededEnvs(EnvSource("x", {"limit": 100}, made, restore="replay"), [0], 1)
    envs.reset_all()
    with pytest.raises(EnvironmentFailure) as failed:
        for _ in range(25):
            envs.step(np.zeros(1, np.int64))
            envs.advance()
    assert message in str(failed.value) and "\n" not in str(failed.value)


def test_wider_floats_are_cast_with_one_note(capsys: pytest.CaptureFixture[str]) -> None:
    class Wide(dict_envs.AnySpaces):
        def observe(self) -> Any:
            gears = (super().observe()["gears"][0], np.zeros((2, 2)))
            return {**super().observe(), "position": np.zeros(2), "gears": gears}

    source = EnvSource("Wide-of-this-test", {}, Wide)
    for _ in range(2):
        check_spaces(source)
    notes = [line for line in capsys.readouterr().err.splitlines() if "Wide-of-this-test" in line]
    (note,) = notes
    assert note.endswith("returns float64 for 'position', 'gears.1', the space has float32: observations are cast")


def test_conformance_names_the_entry() -> None:
    class Outside(dict_envs.AnySpaces):
        def observe(self) -> Any:
            return {**super().observe(), "position": np.full(2, 9, np.float32)}

    with pytest.raises(UserError, match="reset returned an observation entry 'position' outside Box"):
        check_spaces(EnvSource("Outside", {}, Outside))


def test_entries_must_have_names_of_their_own() -> None:
    space = spaces.Dict({"a.b": spaces.Box(-1, 1, (3,)), "a": spaces.Dict(b=spaces.Box(-1, 1, (2,)))})
    with pytest.raises(UserError, match=r"two entries of the observation have the name 'a\.b'; keys must not contain"):
        ObservationCodec(space)


def test_the_shapes_of_entries_are_those_that_features_receive() -> None:
    mixed = ObservationCodec(dict_envs.MIXED).spec
    assert mixed.shapes == {"mode": (3,), "position": (2,), "camera": (3, 36, 36)}
    assert ObservationCodec(dict_envs.OBSERVATIONS["one image"]).spec.shapes == {"camera": (3, 36, 36)}
    numbers = ObservationCodec(dict_envs.NUMBERS)
    rows = numbers.spec.unpack(np.zeros((2, numbers.spec.size), np.float32))
    assert numbers.spec.shapes == {name: array.shape[1:] for name, array in rows.items()}
    assert ObservationCodec(spaces.Box(-1, 1, (3,))).spec.shapes == {}


# --- the factors of joint actions ------------------------------------------------------------------------------------
def test_a_joint_action_knows_its_factors() -> None:
    joint, plain = ActionCodec(spaces.MultiDiscrete([2, 3])).spec, ActionCodec(spaces.Discrete(6)).spec
    assert joint.kind == plain.kind == "discrete" and joint.choices == joint.size == plain.size == 6
    assert joint.multi_choices == (2, 3) and plain.multi_choices == () and joint != plain
    assert ActionCodec(spaces.MultiBinary((2, 2))).spec.multi_choices == (2, 2, 2, 2)
    assert (str(joint), str(plain)) == ("(2, 3) choices", "6 choices")
    assert (joint.space_name, plain.space_name) == ("MultiDiscrete([2, 3])", "Discrete(6)")
    index = np.arange(6)
    both = np.stack(np.unravel_index(index, joint.multi_choices), -1)
    assert np.array_equal(ActionCodec(spaces.MultiDiscrete([2, 3])).to_env(index), both), "the last changes fastest"


@pytest.mark.parametrize("choices", [(2, 3), (30, 5, 7)])
def test_random_elements_are_valid_and_reach_every_choice(choices: tuple[int, ...]) -> None:
    spec, rng = multi_discrete(choices), np.random.default_rng(0)
    below_one = float(np.nextafter(np.float32(1), np.float32(0)))
    uniforms = torch.from_numpy(rng.random((400, len(choices)), np.float32))
    uniforms[0], uniforms[1] = 0, below_one
    for found in (spec.from_uniforms(uniforms), torch.from_numpy(spec.sample(rng, 400))):
        assert found.dtype == torch.int64 and spec.contains(found)
        assert [len(set(column)) for column in found.T.tolist()] == list(choices)
    assert spec.from_uniforms(uniforms)[1].tolist() == [one - 1 for one in choices]
    assert spec.exploration_noise(4) == ("uniform", (4, len(choices)))
    wrong = torch.zeros(3, len(choices), dtype=torch.int64)
    assert spec.contains(wrong)
    wrong[1, -1] = choices[-1]
    assert not spec.contains(wrong) and not spec.contains(-wrong)


def test_noise_replaces_whole_rows_of_elements() -> None:
    spec, rng = multi_discrete([50, 60]), np.random.default_rng(1)
    actions = np.full((400, 2), 7)
    changed = (spec.perturbed(actions, 0.25, rng) != actions).any(1)
    assert 60 < changed.sum() < 140 and spec.max_noise == 1.0
    assert np.array_equal(spec.perturbed(actions, 0.0, rng), actions)


# --- actions without bounds ------------------------------------------------------------------------------------------
HALF = spaces.Box(np.array([[-np.inf, -1]], np.float32), np.array([[np.inf, 2]], np.float32))
UNBOUNDED = {
    "all": spaces.Box(-np.inf, np.inf, (2,)),
    "low": spaces.Box(-np.inf, 1, (2,), np.float64),
    "some": HALF,
}


@pytest.mark.parametrize("name", UNBOUNDED)
def test_actions_without_bounds_are_in_the_units_of_the_environment(name: str) -> None:
    space = UNBOUNDED[name]
    codec = ActionCodec(space)
    assert codec.spec == continuous(2, bounded=False) != continuous(2) and codec.spec.bounded is False
    assert str(codec.spec) == "unbounded actions of shape (2,)" and codec.spec.space_name == "unbounded Box(2,)"
    units = np.array([[0.25, -0.5], [-700, 1], [900.5, 1e6], [0, -1e6]], np.float32)
    found = codec.to_env(units)
    assert found.shape == (4, *space.shape) and found.dtype == space.dtype and codec.contains(found)
    assert all(space.contains(one) for one in found)
    expected = np.clip(units.reshape(found.shape), space.low, space.high)
    assert np.array_equal(found, expected.astype(space.dtype)), "as they are, but for finite bounds"
    inside = units[:1]
    assert np.array_equal(codec.from_env(codec.to_env(inside)), inside)
    assert codec.outside(units, 1e-3).tolist() == (found.reshape(4, 2) != units).any(1).tolist()
    assert not codec.contains(np.full((1, *space.shape), np.inf)) and not codec.contains(np.full(found.shape, np.nan))
    with pytest.raises(UserError, match=r"^action space Box\(.* is unbounded; give it bounds, e\.g\. gymnasium"):
        codec.require_bounds()
    ActionCodec(spaces.Box(-1, 1, (2,))).require_bounds()


@pytest.mark.parametrize("name", UNBOUNDED)
def test_infinite_bounds_are_stored_as_json(name: str) -> None:
    space = UNBOUNDED[name]
    text = json.dumps(space_to_dict(space), allow_nan=False)
    assert space_from_dict(json.loads(text)) == space


def test_random_actions_without_bounds_are_normal() -> None:
    spec, rng = continuous(1, bounded=False), np.random.default_rng(0)
    uniforms = torch.from_numpy(rng.random((4000, 1), np.float32))
    uniforms[0] = 0
    for found in (spec.sample(rng, 4000), spec.from_uniforms(uniforms).numpy()):
        assert found.dtype == np.float32 and np.isfinite(found).all()
        assert abs(found.mean()) < 0.06 and abs(found.std() - 1) < 0.05 and abs(found).max() > 3
    far = spec.perturbed(np.full((500, 1), 40, np.float32), 0.5, rng)
    assert abs(far.mean() - 40) < 0.1 and continuous(1).perturbed(far, 0.5, rng).max() == 1
