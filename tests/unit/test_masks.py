"""Action masks: specs, rows, values that environments give, and the steps that carry them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from dict_envs import MIXED, NUMBERS
from dict_envs import OBSERVATIONS as ALL_OBSERVATIONS
from gymnasium import spaces
from masked_envs import DOORS, SPACES, Doors

from rl_training.core.checks import UserError
from rl_training.core.rng import stream
from rl_training.core.specs import MASK, ArraySpec, EnvSpec, continuous, discrete, image, mixed, multi_discrete, vector
from rl_training.data.replay.buffer import ReplayBuffer
from rl_training.envs.host.conformance import Takes, check_environment, check_spaces, with_conformance
from rl_training.envs.host.factory import EnvSource
from rl_training.envs.host.masks import newest_mask, valid_action
from rl_training.envs.host.vector import EnvironmentFailure, SeededEnvs
from rl_training.envs.host.workers import WorkerStepper
from rl_training.envs.spaces import ActionCodec, ObservationCodec, codecs_from_dict, codecs_of, codecs_to_dict
from rl_training.envs.spaces.masks import allowed_action, allowed_actions, blocked, read_mask
from rl_training.tensors.observations import numbers, pack, split, without_mask

MASKS = Takes(masks=True)
SIX = discrete(6)
PAIR = discrete(6, (2, 3))


# --- specs -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "plain", [vector(3), image(3, 8, 9), *(ObservationCodec(space).spec for space in ALL_OBSERVATIONS.values())]
)
def test_a_mask_is_the_last_part_and_networks_see_the_rest(plain: ArraySpec) -> None:
    masked = plain.with_mask(5)
    assert masked.kind == "mixed" and masked.parts[-1][0] == MASK and masked.mask == 5 and plain.mask == 0
    assert masked.shape[0] % 4 == 0 and masked.shape[0] >= plain.nbytes + 5 > masked.shape[0] - 8
    assert masked.without_mask() == plain and plain.without_mask() is plain and plain.with_mask(0) is plain
    assert masked != plain and masked != plain.with_mask(6)
    for name in ("numbers", "network_input", "has_names", "shapes", "channels_last", "stored_as_frames"):
        assert getattr(masked, name) == getattr(plain, name), name
    assert list(masked.images.values()) == list(plain.images.values())
    assert str(masked) == f"{plain} with an action mask of 5"


def test_the_frames_of_a_masked_image_are_known_to_the_image_alone() -> None:
    masked = image(4, 8, 8).with_mask(3).with_frames(4)
    assert masked.frames == 1 and masked.without_mask().frames == 4, "a row of bytes is not a stack"
    assert image(4, 8, 8).with_frames(4).frames == 4


@pytest.mark.parametrize("parts", [{MASK: vector(3, "uint8")}, {MASK: vector(3, "uint8"), "vector": vector(2)},
                                   {"vector": vector(2), MASK: vector(3)}])  # fmt: skip
def test_a_mask_elsewhere_is_rejected(parts: dict[str, ArraySpec]) -> None:
    with pytest.raises(UserError, match=r"mask must be the last part of an observation, of uint8, got "):
        mixed(parts)


def test_actions_know_the_size_of_their_mask() -> None:
    sizes = [one.mask_size for one in (SIX, PAIR, multi_discrete([20, 30]), continuous(4))]
    assert sizes == [6, 5, 50, 0]
    assert [ActionCodec(space).spec.mask_size for space in SPACES.values()] == [12, 9, 12]


@pytest.mark.parametrize("plain", [vector(3), image(1, 2, 3), ObservationCodec(MIXED).spec])
def test_rows_are_split_and_packed_with_their_mask(plain: ArraySpec) -> None:
    spec, rng = plain.with_mask(5), np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    for name, part in spec.parts:
        values = rng.integers(2, size=(7, *part.shape)).astype(part.dtype)
        arrays[name] = torch.from_numpy(values)
    rows = pack(spec, {**arrays, MASK: arrays[MASK].bool()})
    assert rows.dtype == torch.uint8 and rows.shape == (7, *spec.shape)
    found = split(spec, rows)
    assert found.keys() == arrays.keys() and all(torch.equal(found[name], arrays[name]) for name in arrays)
    assert found[MASK].dtype == torch.uint8
    obs, mask = without_mask(spec, split(spec, rows))
    assert mask is not None and mask.dtype == torch.bool and torch.equal(mask, arrays[MASK].bool())
    rest = {name: one for name, one in arrays.items() if name != MASK}
    if plain.parts:
        assert obs.keys() == rest.keys() and all(torch.equal(obs[name], rest[name]) for name in rest)
    else:
        assert torch.equal(obs, next(iter(rest.values()))) and obs.shape == (7, *plain.shape)
    if plain.numbers is not None:
        assert torch.equal(numbers(plain, obs), arrays["vector"])


def test_an_observation_without_a_mask_is_only_split() -> None:
    rows = torch.ones(2, 3)
    assert without_mask(vector(3), rows)[0] is rows and without_mask(vector(3), rows)[1] is None


def test_a_replay_stores_masks_with_their_observations() -> None:
    spec = EnvSpec(vector(2).with_mask(3), discrete(3))
    replay = ReplayBuffer(spec, seeds=1, capacity=8, num_envs=2, device=torch.device("cpu"))
    rows = torch.randint(0, 2, (1, 2, *spec.observation.shape), dtype=torch.uint8)
    flags, nothing = torch.zeros(1, 2, dtype=torch.bool), torch.zeros(1, 2)
    replay.add(obs=rows, next_obs=1 - rows, actions=nothing.long(), rewards=nothing, terminated=flags, truncated=flags)
    batch = replay.gather(torch.tensor([[0, 1]]))
    assert torch.equal(batch["obs"], rows) and torch.equal(batch["next_obs"], 1 - rows)


# --- values ----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("action", "value", "expected"),
    [
        (discrete(3), np.array([1, 0, 1], np.int8), [1, 0, 1]),
        (discrete(3), [True, False, True], [1, 0, 1]),
        (discrete(3), np.array([[1.0, 0.0, 0.0]]), [1, 0, 0]),
        (PAIR, np.array([1, 0, 0, 1, 1]), [1, 0, 0, 1, 1]),
        (PAIR, (np.array([0, 1]), np.array([1, 1, 0])), [0, 1, 1, 1, 0]),
        (PAIR, [[True, False], [False, False, True]], [1, 0, 0, 0, 1]),
        (PAIR, np.array([np.array([0, 1]), np.array([1, 1, 0])], dtype=object), [0, 1, 1, 1, 0]),
        (discrete(8, (2, 2, 2)), np.array([[1, 0], [0, 1], [1, 1]]), [1, 0, 0, 1, 1, 1]),  # (bits, 2)
        (discrete(8, (2, 2, 2)), np.array([[1, 0, 1], [0, 1, 1]]), [1, 0, 0, 1, 1, 1]),  # (2, bits)
        (discrete(4, (2, 2)), np.array([[1, 0], [1, 1]]), [1, 0, 1, 1]),  # ambiguous: a row for each bit
    ],
)
def test_masks_of_any_shape_are_flattened(action: ArraySpec, value: Any, expected: list[int]) -> None:
    found = read_mask(value, action)
    assert found.dtype == np.uint8 and found.tolist() == expected


@pytest.mark.parametrize(
    ("action", "value", "message"),
    [
        (SIX, [1, 0], "action_mask must have 6 flags, got 2"),
        (PAIR, [1] * 6, "action_mask must have 5 flags, the choices of [2, 3], got 6"),
        (SIX, [0, 1, 2, 0, 0, 0], "action_mask must hold flags, 0 or 1, got 2"),
        (SIX, [0, 1, np.nan, 0, 0, 0], "action_mask must hold flags, 0 or 1, got nan"),
        (SIX, "all", "action_mask must be an array of flags, got 'all'"),
        (SIX, {"a": 1}, "action_mask must be an array of flags, got {'a': 1}"),
        (SIX, [], "action_mask must have 6 flags, got 0"),
        (SIX, [0] * 6, "action_mask must allow at least one action, got none"),
        (PAIR, [1, 1, 0, 0, 0], "action_mask must allow at least one choice of element 1 of the action, got none"),
    ],
)
def test_invalid_masks_are_rejected_in_one_line(action: ArraySpec, value: Any, message: str) -> None:
    with pytest.raises(UserError) as refused:
        read_mask(value, action)
    assert str(refused.value) == message


@pytest.mark.parametrize("action", [SIX, PAIR, multi_discrete([20, 30])], ids=str)
def test_random_actions_are_among_the_allowed_and_reach_all_of_them(action: ArraySpec) -> None:
    rng, mask = np.random.default_rng(0), np.zeros(action.mask_size, np.uint8)
    mask[[0, -1, -3]] = 1  # of the first element one choice, of the last one two
    found = {tuple(np.atleast_1d(allowed_action(action, one, mask)).tolist()) for one in action.sample(rng, 200)}
    expected = {SIX: {(0,), (3,), (5,)}, PAIR: {(0,), (2,)}}.get(action, {(0, 27), (0, 29)})
    assert found == expected
    allowed = partial(allowed_actions, action, np.tile(mask, (200, 1)))
    noisy = action.perturbed(action.sample(rng, 200), 1.0, rng, allowed)
    assert {tuple(np.atleast_1d(one).tolist()) for one in noisy} == expected, "noise follows the mask too"
    every = np.ones_like(mask)
    for one in action.sample(rng, 20):
        assert np.array_equal(allowed_action(action, one, every), one)


# --- the codec -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ALL_OBSERVATIONS)
def test_a_row_holds_the_observation_and_the_mask(name: str) -> None:
    space = ALL_OBSERVATIONS[name]
    plain, codec = ObservationCodec(space), ObservationCodec(space, SIX)
    assert codec.mask == 6 and plain.mask == 0 and codec.spec == plain.spec.with_mask(6)
    space.seed(3)
    values = [space.sample() for _ in range(4)]
    masks = np.random.default_rng(1).integers(2, size=(4, 6))
    rows, expected = np.zeros((4, *codec.shape), codec.dtype), np.zeros((4, *plain.shape), plain.dtype)
    for index, value in enumerate(values):
        codec.encode(value, rows[index], masks[index])
        plain.encode(value, expected[index])
    obs, mask = without_mask(codec.spec, split(codec.spec, torch.from_numpy(rows)))
    assert mask is not None and np.array_equal(mask.numpy(), masks)
    theirs = split(plain.spec, torch.from_numpy(expected))
    for one in theirs if isinstance(theirs, dict) else [None]:
        both = (obs, theirs) if one is None else (obs[one], theirs[one])
        assert torch.equal(*both)
    assert np.array_equal(codec.without_mask(rows), expected)
    assert np.array_equal(codec.to_file(rows), plain.to_file(expected)) and codec.file_shape == plain.file_shape
    for value, row in zip(values, rows, strict=True):
        (read,), single = codec.read(value, np.ones(6))
        assert single and np.array_equal(codec.without_mask(read), codec.without_mask(row))


def test_masks_are_read_for_one_observation_or_a_batch() -> None:
    codec, one = ObservationCodec(spaces.Box(-1, 1, (2,)), PAIR), [1, 0, 0, 1, 1]
    row = np.array([0.5, -0.5], np.float32)
    assert without_mask(codec.spec, split(codec.spec, torch.from_numpy(codec.read(row)[0])))[1].all()  # type: ignore[union-attr]
    read, single = codec.read(row, one)
    assert single and read[0, 8:13].tolist() == one
    nested = (np.array([1, 0]), np.array([0, 1, 1]))
    assert codec.read(row, nested)[0][0, 8:13].tolist() == one
    batch, single = codec.read(np.stack([row, -row]), [one, nested])
    assert not single and batch[:, 8:13].tolist() == [one, one]
    for mask, message in (
        ([one], "action_mask must be one for each of the 2 observations"),
        ([one, [0, 0, 1, 1, 1]], "action_mask must allow at least one choice of element 0"),
        ([one, [1, 1]], "action_mask must have 5 flags"),
        (3, "action_mask must be one for each of the 2 observations, got 3"),
    ):
        with pytest.raises(UserError, match=message):
            codec.read(np.stack([row, -row]), mask)
    for flat in (one, tuple(map(bool, one)), np.array(one), np.array(one, float), np.array(3)):
        with pytest.raises(UserError, match="action_mask must be one for each of the 5 observations, got "):
            codec.read(np.stack([row] * 5), flat)
    with pytest.raises(UserError, match=r"^action_mask must have 5 flags, the choices of \[2, 3\], got 1$"):
        codec.read(row, 3)


def test_codecs_with_a_mask_are_stored_as_json_and_checked() -> None:
    codecs = ObservationCodec(NUMBERS, PAIR), ActionCodec(spaces.MultiDiscrete([2, 3]))
    stored = json.loads(json.dumps(codecs_to_dict(*codecs)))
    assert stored["action_mask"] == 5
    again = codecs_from_dict(stored)
    assert again[0].spec == codecs[0].spec and again[1].spec == codecs[1].spec
    del stored["action_mask"]
    assert codecs_from_dict(stored)[0].mask == 0
    assert "action_mask" not in codecs_to_dict(ObservationCodec(NUMBERS), codecs[1])
    for wrong in (6, -5, 5.0, True, "5", None, [5]):
        with pytest.raises(ValueError, match=r"action_mask must be 0 or 5, got "):
            codecs_from_dict({**stored, "action_mask": wrong})


def test_the_codecs_of_a_spec_have_its_mask_and_its_factors() -> None:
    for action in (SIX, PAIR, multi_discrete([20, 30]), continuous(2), continuous(2, bounded=False)):
        spec = EnvSpec(vector(3).with_mask(action.mask_size), action)
        observation, found = codecs_of(spec)
        assert (observation.spec, found.spec) == (spec.observation, spec.action)


# --- environments ----------------------------------------------------------------------------------------------------
def made(**kwargs: Any) -> EnvSource:
    return EnvSource("<doors>", kwargs, Doors)


@contextmanager
def stepped(source: EnvSource, rows: int = 1, workers: int = 0) -> Iterator[SeededEnvs]:
    envs = SeededEnvs(source, [5], rows, workers=workers)
    try:
        envs.reset_all()
        yield envs
    finally:
        envs.close()


def masks_of(envs: SeededEnvs, rows: Any = None) -> np.ndarray:
    spec, found = envs.spec.observation, torch.from_numpy(envs.obs if rows is None else rows)
    mask = without_mask(spec, split(spec, found))[1]
    assert mask is not None
    return mask.numpy()


def draw_allowed(envs: SeededEnvs, step: int) -> np.ndarray:
    spec = envs.action.spec
    return allowed_actions(spec, masks_of(envs), spec.sample(stream(0, "explore", step), envs.size))


def play(envs: SeededEnvs, steps: range) -> list[bytes]:
    trace = []
    for step in steps:
        envs.step(draw_allowed(envs, step))
        trace.append(b"".join(one.tobytes() for one in (envs.next_obs, envs.rewards, envs.terminated, envs.truncated)))
        envs.advance()
    return trace


@pytest.mark.parametrize("gives", ["info", "method"])
@pytest.mark.parametrize("action", SPACES)
def test_masks_follow_every_observation(gives: str, action: str) -> None:
    with stepped(EnvSource("<doors>", {"gives": gives, "action": action}, Doors, masked=True), 2) as envs:
        twin = Doors(action=action)
        _, info = twin.reset(seed=envs.episode_seed(1))
        for step in range(120):
            expected = read_mask(info["action_mask"], envs.action.spec)
            assert np.array_equal(masks_of(envs)[1], expected), step
            actions = draw_allowed(envs, step)
            envs.step(actions)
            assert (envs.rewards == 1).all() and not envs.terminated.any(), "an allowed action is a valid one"
            obs, _, _, ended, info = twin.step(envs.action.to_env(actions)[1])
            vectors = envs.observation.numbers(envs.next_obs)
            assert vectors is not None and np.array_equal(vectors[1], obs)
            envs.advance()
            if ended:
                _, info = twin.reset(seed=envs.episode_seed(1))


def test_a_method_is_found_through_wrappers_and_the_info_comes_first() -> None:
    env = gym.wrappers.TimeLimit(Doors(gives="method"), 10)
    _, info = env.reset(seed=0)
    assert np.array_equal(newest_mask(env, info, discrete(12)), np.concatenate(env.unwrapped.allowed))
    other = np.eye(12)[4]
    assert newest_mask(env, {"action_mask": other}, discrete(12)).tolist() == other.tolist()
    assert newest_mask(env, None, discrete(12)).any(), "an info that is no dictionary has no mask"


@pytest.mark.parametrize("odd", ["blocked", "missing", "short"])
def test_the_mask_after_the_end_of_an_episode_is_all_ones(odd: str) -> None:
    """An action that is not allowed ends the episode, whose last mask is all zeros or missing."""
    source = EnvSource("<doors>", {"odd": odd, "odd_at": 1}, Doors, masked=True)
    with stepped(source) as envs:
        closed = np.flatnonzero(~masks_of(envs)[0])[:1]
        if odd == "short":
            with pytest.raises(EnvironmentFailure, match="action_mask must have 12 flags, got 11"):
                envs.step(closed)
            return
        envs.step(closed)
        assert envs.terminated.all() and masks_of(envs, envs.next_obs).all()
        envs.advance()
        assert 1 <= masks_of(envs).sum() <= 3, "that of the next episode"


PROBLEMS = {
    "blocked": "step gave an invalid action mask: action_mask must allow at least one action, got none",
    "missing": "step gave no action mask: neither info['action_mask'] nor action_masks()",
    "short": "step gave an invalid action mask: action_mask must have 12 flags, got 11",
    "text": "step gave an invalid action mask: action_mask must be an array of flags, got 'all'",
}


@pytest.mark.parametrize("odd", PROBLEMS)
def test_an_invalid_mask_names_its_environment_episode_and_step(odd: str) -> None:
    source = EnvSource("<doors>", {"odd": odd, "odd_at": 4}, Doors, masked=True)
    with stepped(source, 2) as envs:
        play(envs, range(3))
        with pytest.raises(EnvironmentFailure) as failed:
            envs.step(draw_allowed(envs, 3))
    assert str(failed.value) == f"environment 0 of seed 5, episode 0, step 4: {PROBLEMS[odd]}"
    assert failed.value.report["reset_seed"] == envs.episode_seed(0) and len(failed.value.report["actions"]) == 4


def test_an_invalid_mask_at_reset_fails_there() -> None:
    source = EnvSource("<doors>", {"odd_at": 0}, Doors, masked=True)
    where = "^environment 0 of seed 5, episode 0, step 0: reset gave an invalid"
    with pytest.raises(EnvironmentFailure, match=where), stepped(source):
        pass


def test_workers_give_the_same_masks_and_failures() -> None:
    def results(workers: int, source: EnvSource) -> tuple[list[bytes], str]:
        with stepped(source, 4, workers) as envs:
            assert isinstance(envs.stepper, WorkerStepper) == bool(workers), envs.note
            trace = [envs.obs.tobytes(), *play(envs, range(9))]
            try:
                trace += play(envs, range(9, 60))
                return trace, ""
            except EnvironmentFailure as failed:
                return trace, str(failed)

    for kwargs in ({}, {"odd_at": 15}):
        source = EnvSource(DOORS, kwargs, masked=True)
        one, two = results(0, source), results(2, source)
        assert one == two and bool(one[1]) == bool(kwargs)


@pytest.mark.parametrize("restore", ["replay", "rebuilt"])
@pytest.mark.parametrize("gives", ["info", "method"])
def test_open_episodes_are_restored_with_their_masks(restore: Any, gives: str) -> None:
    source = EnvSource("<doors>", {"gives": gives}, Doors, restore=restore, masked=True)
    with stepped(source, 3) as envs, stepped(source, 3) as other:
        play(envs, range(57))
        snapshot = envs.snapshot()
        assert other.restore(snapshot) and np.array_equal(masks_of(other), masks_of(envs))
        assert play(other, range(57, 120)) == play(envs, range(57, 120))


# --- the check before training ---------------------------------------------------------------------------------------
@pytest.mark.parametrize(("kwargs", "size"), [({}, 12), ({"gives": "method"}, 12), ({"action": "multi_discrete"}, 9),
                                              ({"gives": "nothing"}, 0), ({"picture": True}, 12)])  # fmt: skip
def test_masks_are_used_where_they_are_given_and_taken(kwargs: dict[str, Any], size: int) -> None:
    source = made(**kwargs)
    without, found = check_environment(source), check_environment(source, takes=MASKS)
    assert without.spec.observation.mask == 0 and not with_conformance(source, without).masked
    assert found.spec.observation.mask == size and with_conformance(source, found).masked == (size > 0)
    assert found.spec.observation.without_mask() == without.spec.observation
    assert found.restore == without.restore == "replay"


def test_the_check_takes_only_valid_actions() -> None:
    """This environment raises on others, which its class of `restore` would hide."""
    source = made(raises=True)
    with pytest.raises(UserError, match=r"step raised RuntimeError: \d+ is closed"):
        check_spaces(source)
    found = check_environment(source, takes=MASKS)
    assert found.spec.observation.mask == 12 and found.restore == "replay"


class Remembering(Doors):
    """Its masks depend on the episodes before, its observations do not."""

    life = 0

    def reset(self, **keywords: Any) -> Any:
        self.life += 1
        return super().reset(**keywords)

    def _mask(self) -> Any:
        return np.roll(super()._mask(), self.life)

    def step(self, action: Any) -> Any:
        self.allowed = [np.ones(12, bool)]
        return super().step(action)


class Strict(Remembering):
    """It raises on actions that its masks do not allow."""

    def step(self, action: Any) -> Any:
        if not self._mask()[action - 3]:
            raise RuntimeError(f"{action} is closed")
        return super().step(action)


@pytest.mark.parametrize("cls", [Remembering, Strict])
def test_an_environment_whose_masks_carry_over_is_rebuilt(cls: Any) -> None:
    source = EnvSource("<remembering>", {}, cls)
    assert check_environment(source, takes=MASKS).restore == "rebuilt", "an exception would hide it"
    if cls is Remembering:
        assert check_environment(source).restore == "replay"


@pytest.mark.parametrize(("odd_at", "call"), [(0, "reset"), (3, "step")])
@pytest.mark.parametrize("odd", ["blocked", "short", "text"])
def test_the_check_rejects_invalid_masks_in_one_line(odd: str, odd_at: int, call: str) -> None:
    message = PROBLEMS[odd].removeprefix("step")
    with pytest.raises(UserError) as refused:
        check_spaces(made(odd=odd, odd_at=odd_at), MASKS)
    assert str(refused.value) == f"environment '<doors>': {call}{message}"


class Broken(Doors):
    """`action_masks` is not a method, or raises `at` a step."""

    def __init__(self, at: int | None = None) -> None:
        super().__init__("nothing")
        self.at = at
        self.action_masks: Any = np.ones(12) if at is None else self._broken

    def _broken(self) -> Any:
        if self.steps == self.at:
            raise RuntimeError("no\nboard")
        return self._mask()


@pytest.mark.parametrize(("at", "message"), [
    (None, "reset gave no action mask: action_masks must be a method, got array([1., 1., 1., "),
    (0, "reset gave no action mask: action_masks() raised RuntimeError: no board"),
    (2, "step gave no action mask: action_masks() raised RuntimeError: no board")])  # fmt: skip
def test_a_broken_method_is_one_line(at: int | None, message: str) -> None:
    source = EnvSource("<broken>", {"at": at}, Broken)
    with pytest.raises(UserError) as refused:
        check_spaces(source, MASKS)
    assert str(refused.value).startswith(f"environment '<broken>': {message}") and "\n" not in str(refused.value)
    assert check_spaces(source).observation.mask == 0, "an algorithm without masks does not use it"
    if at == 2:
        with stepped(EnvSource("<broken>", {"at": at}, Broken, masked=True)) as envs:
            play(envs, range(1))
            with pytest.raises(EnvironmentFailure, match=f"episode 0, step 2: {re.escape(message)}$"):
                play(envs, range(1, 2))


class Late(Doors):
    """It gives masks from its first step on."""

    def reset(self, **keywords: Any) -> Any:
        return super().reset(**keywords)[0], {}


def test_masks_from_the_first_step_on_are_rejected() -> None:
    source = EnvSource("<late>", {}, Late)
    with pytest.raises(UserError) as refused:
        check_spaces(source, MASKS)
    assert str(refused.value) == (
        "environment '<late>': step gave an action mask and reset gave none: reset must give one too, "
        "in info['action_mask'] or by action_masks()"
    )
    assert check_spaces(source).observation.mask == 0


def test_valid_actions_are_in_the_units_of_the_environment() -> None:
    codec = ActionCodec(SPACES["multi_discrete"])
    mask = read_mask([[0, 0, 1, 0], [0, 1, 0, 0, 0]], codec.spec)
    assert blocked(mask, codec.spec) is None
    assert valid_action(codec, np.asarray(0), mask).tolist() == [2, 3]
