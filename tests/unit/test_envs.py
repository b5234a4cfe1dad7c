"""Environments: seeded episodes, true successors, units of spaces, refusals, exact restoring."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from rl_training.core.checks import UserError
from rl_training.envs.host import vector
from rl_training.envs.host.conformance import check_environment
from rl_training.envs.host.factory import EnvSource
from rl_training.envs.host.vector import EnvironmentFailure, SeededEnvs
from rl_training.envs.host.wrappers import episode_limit
from rl_training.envs.spaces import ActionCodec, ObservationCodec, space_from_dict, space_to_dict

CARTPOLE, PENDULUM = EnvSource("CartPole-v1"), EnvSource("Pendulum-v1")


class Counting(gym.Env[np.ndarray, int]):
    """Observes (start, steps taken); the start is drawn by the seed. Ends by itself after `length` steps."""

    def __init__(self, length: int = 1000, answer: Callable[..., Any] | None = None, reset: Any = None) -> None:
        self.observation_space = spaces.Box(-100, 100, (2,), np.float32)
        self.action_space: spaces.Space[Any] = spaces.Discrete(3)
        self.length, self.answer, self.reset_answer = length, answer, reset
        self.taken: list[Any] = []

    def observation(self) -> np.ndarray:
        return np.array([self.offset, len(self.taken)], np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.offset, self.taken = float(self.np_random.integers(50)), []
        return (self.observation(), {}) if self.reset_answer is None else self.reset_answer(self)

    def step(self, action: Any) -> Any:
        self.taken.append(action)
        answer = (self.observation(), 1.0, len(self.taken) >= self.length, False, {})
        return answer if self.answer is None else self.answer(self, *answer)


def source(make: Callable[[], Any]) -> EnvSource:
    return EnvSource("<probe>", factory=make)


def seeded(env_source: EnvSource, seeds: tuple[int, ...] = (0,), num_envs: int = 1, **options: Any) -> SeededEnvs:
    envs = SeededEnvs(env_source, seeds, num_envs, **options)
    envs.reset_all()
    return envs


def actions_at(envs: SeededEnvs, step: int) -> np.ndarray:
    """Some actions, always the same for the same step."""
    rng = np.random.default_rng(step)
    if envs.action.spec.kind == "discrete":
        return rng.integers(envs.action.spec.size, size=envs.size)
    return rng.uniform(-1, 1, (envs.size, envs.action.spec.size)).astype(np.float32)


def play(envs: SeededEnvs, steps: int, first: int = 0) -> list[bytes]:
    """Everything that can be seen of `steps` steps."""
    trace = []
    for step in range(first, first + steps):
        envs.step(actions_at(envs, step))
        seen = (envs.obs, envs.next_obs, envs.rewards, envs.terminated, envs.truncated)
        trace.append(b"".join(array.tobytes() for array in seen))
        envs.advance()
    return trace


# --- seeds -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("env_source", [CARTPOLE, PENDULUM], ids=["CartPole", "Pendulum"])
def test_the_same_seed_plays_the_same_episodes(env_source: EnvSource) -> None:
    assert play(seeded(env_source, (3,), 2), 60) == play(seeded(env_source, (3,), 2), 60)
    assert play(seeded(env_source, (3,), 2), 60) != play(seeded(env_source, (4,), 2), 60)


def test_every_seed_environment_and_episode_begins_differently() -> None:
    envs = seeded(CARTPOLE, (0, 1), 2)
    starts = {envs.obs[row].tobytes() for row in range(4)}
    for step in range(100):
        envs.step(actions_at(envs, step))
        ended = envs.terminated.copy()
        envs.advance()
        starts |= {envs.obs[row].tobytes() for row in np.flatnonzero(ended)}
    assert len(starts) == 4 + sum(envs.episodes)
    assert min(envs.episodes) >= 2


def test_an_environment_is_seeded_by_its_run_seed_and_index_alone() -> None:
    many, alone = seeded(CARTPOLE, (7, 8), 3), seeded(CARTPOLE, (8,), 3)
    assert many.obs[3:].tobytes() == alone.obs.tobytes()
    assert seeded(CARTPOLE, (8,), 3, stream="eval_episode").obs.tobytes() != alone.obs.tobytes()
    assert seeded(CARTPOLE, (8,), 3, first_episode=1).obs.tobytes() != alone.obs.tobytes()


# --- resets and successors ---------------------------------------------------------------------------------------
def test_only_ended_rows_are_reset() -> None:
    lengths = itertools.chain([2], itertools.repeat(1000))
    envs = seeded(source(lambda: Counting(next(lengths))), (0,), 3)
    play(envs, 2)
    assert envs.episodes == [1, 0, 0]
    assert envs.obs[:, 1].tolist() == [0, 2, 2]
    assert [len(log) for log in envs.logs] == [0, 2, 2]
    play(envs, 1)
    assert envs.obs[:, 1].tolist() == [1, 3, 3]


@pytest.mark.parametrize("by", ["time limit", "end"])
def test_the_successor_of_the_last_step_is_not_the_next_start(by: str) -> None:
    def make() -> gym.Env[Any, Any]:
        return gym.wrappers.TimeLimit(Counting(), 3) if by == "time limit" else Counting(3)

    envs = seeded(source(make))
    start = envs.obs[0, 0]
    play(envs, 2)
    envs.step(np.array([0]))
    assert envs.next_obs[0].tolist() == [start, 3]
    assert (envs.truncated[0], envs.terminated[0]) == ((True, False) if by == "time limit" else (False, True))
    envs.advance()
    assert envs.obs[0, 1] == 0
    assert envs.obs[0, 0] != start, "another episode, another seed"


def test_inactive_rows_do_not_move() -> None:
    envs = seeded(source(Counting), (0,), 2)
    envs.step(np.array([1, 1]), active=np.array([True, False]))
    assert envs.next_obs[:, 1].tolist() == [1, 0]
    envs.step(np.array([1, 1]))
    assert envs.next_obs[:, 1].tolist() == [2, 1]
    assert [len(log) for log in envs.logs] == [2, 1]


# --- spaces ------------------------------------------------------------------------------------------------------
def test_continuous_actions_are_scaled_to_odd_bounds_and_back() -> None:
    codec = ActionCodec(spaces.Box(np.array([-3, 0.1], np.float32), np.array([1, 0.3], np.float32)))
    inside = np.array([[-1, -1], [0, 0], [1, 1], [0.5, -0.5]], np.float32)
    outside = codec.to_env(inside)
    np.testing.assert_allclose(outside, [[-3, 0.1], [-1, 0.2], [1, 0.3], [0, 0.15]], rtol=1e-6)
    assert outside.dtype == np.float32
    np.testing.assert_allclose(codec.from_env(outside), inside, atol=1e-6)
    assert all(codec.space.contains(action) for action in codec.to_env(np.array([[1, 1], [-1, -1]], np.float32)))


def test_scaled_actions_never_leave_the_space() -> None:
    rng = np.random.default_rng(0)
    low = rng.normal(size=200).astype(np.float32)
    codec = ActionCodec(spaces.Box(low, low + rng.uniform(1e-3, 9, 200).astype(np.float32)))
    for value in (-1.0, 1.0, np.nextafter(np.float32(1), np.float32(2))):
        assert codec.space.contains(codec.to_env(np.full((1, 200), value, np.float32))[0])


def test_discrete_actions_start_at_zero_inside() -> None:
    codec = ActionCodec(spaces.Discrete(3, start=-5))
    assert codec.to_env(np.array([0, 1, 2])).tolist() == [-5, -4, -3]
    assert codec.from_env(np.array([-5, -3])).tolist() == [0, 2]
    taken: list[int] = []

    class Shifted(Counting):
        def __init__(self) -> None:
            super().__init__()
            self.action_space = spaces.Discrete(3, start=-5)
            self.taken_by_all = taken

        def step(self, action: Any) -> Any:
            taken.append(int(action))
            return super().step(action)

    seeded(source(Shifted)).step(np.array([2]))
    assert taken == [-3]


def test_discrete_observations_are_one_hot() -> None:
    codec, row = ObservationCodec(spaces.Discrete(4, start=10)), np.full(4, 9, np.float32)
    codec.encode(12, row)
    assert row.tolist() == [0, 0, 1, 0]
    codec.encode(np.int64(10), row)
    assert row.tolist() == [1, 0, 0, 0]


def test_matrices_are_flattened_and_images_are_not() -> None:
    codec = ObservationCodec(spaces.Box(-1, 1, (2, 3), np.float64))
    row = np.zeros(6, np.float32)
    codec.encode(np.arange(6.0).reshape(2, 3), row)
    assert row.tolist() == [0, 1, 2, 3, 4, 5]
    image = ObservationCodec(spaces.Box(0, 255, (3, 8, 9), np.uint8))
    assert (image.shape, image.dtype, image.is_image) == ((3, 8, 9), np.uint8, True)


SUPPORTED = (
    "is not supported; supported: Box (numbers or images), Discrete, MultiDiscrete, MultiBinary, and Dict or Tuple of "
    "them. Wrap the environment, e.g. with "
)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Text(4), f"observation space Text {SUPPORTED}"),
        (spaces.Dict(a=spaces.Dict(b=spaces.Text(4))), f"observation space Text of 'a.b' {SUPPORTED}"),
        (spaces.Dict(), "observation space Dict() is empty"),
        (spaces.Box(-1, 1, (0,)), "observation space Box([], [], (0,), float32) is empty"),
    ],
)
def test_refused_observation_spaces(space: spaces.Space[Any], message: str) -> None:
    with pytest.raises(UserError) as refused:
        ObservationCodec(space)
    assert str(refused.value).startswith(message)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (
            spaces.Dict(a=spaces.Discrete(2)),
            "action space Dict is not supported; supported: Box, Discrete, MultiDiscrete, MultiBinary",
        ),
        (
            spaces.Box(-np.inf, 1, (1,)),
            "action space Box(-inf, 1.0, (1,), float32) is unbounded; give it bounds, e.g. gymnasium.wrappers."
            "TransformAction(env, lambda action: action, gymnasium.spaces.Box(-1, 1, env.action_space.shape))",
        ),
        (spaces.Box(0, 3, (1,), np.int64), "action space Box(0, 3, (1,), int64) must hold floats, got int64"),
        (spaces.Box(1, 1, (1,)), "action space Box(1.0, 1.0, (1,), float32) has a bound with low >= high"),
    ],
)
def test_refused_action_spaces(space: spaces.Space[Any], message: str) -> None:
    with pytest.raises(UserError) as refused:
        ActionCodec(space).require_bounds()
    assert str(refused.value) == message


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(4, start=-2),
        spaces.Box(-1, 1, (3,)),
        spaces.Box(np.array([0.1, -np.inf]), np.array([0.3, 2]), dtype=np.float64),
        spaces.Box(0, 255, (2, 4, 4), np.uint8),
    ],
)
def test_a_space_survives_being_written_down(space: spaces.Space[Any]) -> None:
    again = space_from_dict(space_to_dict(space))
    assert again == space
    assert again.dtype == space.dtype


def test_a_module_of_the_current_folder_is_found_first_and_only_then(tmp_path: Path, monkeypatch) -> None:
    """It goes before an installed module of the same name; later imports of other names are not shadowed by it."""
    installed, here = tmp_path / "installed", tmp_path / "here"
    for folder, length in ((installed, 3), (here, 7)):
        folder.mkdir()
        made = f"lambda: gym.make('CartPole-v1', max_episode_steps={length})"
        (folder / "module_of_mine.py").write_text(f"import gymnasium as gym\ngym.register('Mine-v0', {made})\n")
    (here / "broken_module.py").write_text("raise SystemExit(3)\n")
    monkeypatch.setattr(sys, "path", [str(installed), *filter(None, sys.path)])
    monkeypatch.chdir(here)
    env = EnvSource("module_of_mine:Mine-v0").make()
    try:
        assert episode_limit(env) == 7
        assert sys.path[0] == str(installed) and sys.path[-1] == str(here)
        with pytest.raises(UserError, match=r"^environment 'nowhere:Mine-v0': No module named 'nowhere'$"):
            EnvSource("nowhere:Mine-v0").make()
        message = "^environment 'broken_module:E-v0': module broken_module cannot be imported: SystemExit: 3$"
        with pytest.raises(UserError, match=message):
            EnvSource("broken_module:E-v0").make()
        assert sys.path.count(str(here)) == 1
    finally:
        env.close()
        gym.registry.pop("Mine-v0")
        sys.modules.pop("module_of_mine")


# --- conformance -------------------------------------------------------------------------------------------------
def first_step(**changes: Any) -> Callable[..., Any]:
    """A step answer with some of its five parts replaced."""

    def answer(env: Counting, obs: Any, reward: Any, terminated: Any, truncated: Any, info: Any) -> Any:
        parts = {"obs": obs, "reward": reward, "terminated": terminated, "truncated": truncated, "info": info}
        return tuple({**parts, **changes}.values())

    return answer


BOX = "Box(-100.0, 100.0, (2,), float32)"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reset": lambda env: np.zeros(2)}, "reset must return (observation, info), got array([0., 0.])"),
        ({"reset": lambda env: ([1.0, 2.0], {})}, f"reset must return a numpy array of {BOX}, got [1.0, 2.0]"),
        ({"reset": lambda env: (np.zeros(3, np.float32), {})}, "reset returned shape (3,), the space has (2,)"),
        ({"reset": lambda env: 1 / 0}, "reset raised ZeroDivisionError: division by zero"),
        (
            {"answer": lambda env, obs, reward, terminated, truncated, info: (1, 0.0, False, {})},
            "step must return (observation, reward, terminated, truncated, info), got (1, 0.0, False, {})",
        ),
        (
            {"answer": first_step(obs=np.array([0, np.nan], np.float32))},
            "step returned an observation with NaN or infinity",
        ),
        ({"answer": first_step(obs=np.zeros(2, np.int64))}, "step returned dtype int64, the space has float32"),
        (
            {"answer": first_step(obs=np.full(2, 101, np.float32))},
            f"step returned an observation outside {BOX}: array([101., 101.], dtype=float32)",
        ),
        ({"answer": first_step(reward=None)}, "step must return a finite number as reward, got None"),
        ({"answer": first_step(reward=float("inf"))}, "step must return a finite number as reward, got inf"),
        ({"answer": first_step(reward=np.ones(1))}, "step must return a finite number as reward, got array([1.])"),
        (
            {"answer": first_step(terminated=None)},
            "step must return booleans for terminated and truncated, got None and False",
        ),
    ],
)
def test_conformance_refuses_with_the_violation(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as refused:
        check_environment(source(lambda: Counting(**options)))
    assert str(refused.value) == f"environment '<probe>': {message}"


def test_conformance_describes_a_good_environment() -> None:
    found = check_environment(CARTPOLE)
    assert found.restore != "inexact"
    assert found.spec.episode_limit == 500
    assert (found.spec.observation.shape, found.spec.action.size, found.spec.action.kind) == ((4,), 2, "discrete")


@pytest.mark.parametrize("where", ["observation", "reward"])
def test_an_environment_that_does_not_repeat_itself_is_noticed(where: str) -> None:
    unseeded = np.random.default_rng()

    def answer(env: Any, obs: Any, reward: Any, *rest: Any) -> Any:
        noise = np.float32(unseeded.random())
        return (obs + noise, reward, *rest) if where == "observation" else (obs, reward + float(noise), *rest)

    assert check_environment(source(lambda: Counting(answer=answer))).restore == "inexact"


def test_an_unknown_environment_gets_the_nearest_name() -> None:
    with pytest.raises(UserError, match=r"Cartpoole.*CartPole") as refused:
        EnvSource("Cartpoole-v1").make()
    assert "\n" not in str(refused.value)


def test_a_factory_that_makes_something_else_is_refused() -> None:
    with pytest.raises(UserError, match=r"the environment factory must return a gymnasium\.Env, got int"):
        source(lambda: 3).make()


# --- restoring ---------------------------------------------------------------------------------------------------
def end_of_first_episode(envs: SeededEnvs) -> int:
    for step in itertools.count(1):
        play(envs, 1, first=step - 1)
        if envs.episodes[0]:
            return step
    raise AssertionError


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1", "HalfCheetah-v5"])
@pytest.mark.parametrize("at", ["mid-episode", "episode end"])
def test_a_restored_environment_goes_on_with_the_same_bits(env_id: str, at: str) -> None:
    if env_id.startswith("HalfCheetah"):
        pytest.importorskip("mujoco")
    env_source = EnvSource(env_id, {"max_episode_steps": 30})
    envs, again = seeded(env_source, (1, 2), 2), SeededEnvs(env_source, (1, 2), 2)
    if at == "mid-episode":
        steps = 47  # some way into the second or a later episode
        play(envs, steps)
        assert max(len(log) for log in envs.logs) > 0
    else:
        steps = end_of_first_episode(envs)
        assert envs.logs[0] == []
    assert again.restore(envs.snapshot())
    assert again.episodes == envs.episodes
    assert again.obs.tobytes() == envs.obs.tobytes()
    assert play(again, 40, first=steps) == play(envs, 40, first=steps)


def test_a_snapshot_is_not_changed_by_going_on() -> None:
    envs = seeded(PENDULUM)
    play(envs, 3)
    snapshot = envs.snapshot()
    obs = snapshot["obs"].tobytes()
    play(envs, 5, first=3)
    assert (len(snapshot["actions"][0]), snapshot["obs"].tobytes()) == (3, obs)


def test_an_environment_that_writes_into_its_action_is_restored_too() -> None:
    class Greedy(Counting):
        """Observes the sum of its actions, and overwrites each."""

        def __init__(self) -> None:
            super().__init__()
            self.action_space = spaces.Box(-1, 1, (1,), np.float32)

        def observation(self) -> np.ndarray:
            return np.array([self.offset, sum(self.taken)], np.float32)

        def step(self, action: Any) -> Any:
            answer = super().step(float(action[0]))
            action *= 0.5
            return answer

    envs, again = seeded(source(Greedy)), SeededEnvs(source(Greedy), (0,), 1)
    play(envs, 4)
    assert again.restore(envs.snapshot())
    assert again.restore(again.snapshot())


def test_an_environment_that_cannot_be_restored_begins_its_next_episode() -> None:
    unseeded = itertools.count()

    def answer(env: Any, obs: Any, *rest: Any) -> Any:
        return (obs + np.float32([0, next(unseeded) / 7]), *rest)

    envs = seeded(source(lambda: Counting(answer=answer)), (0,), 2)
    play(envs, 3)
    snapshot = envs.snapshot()
    assert not envs.restore(snapshot)
    assert envs.episodes == [1, 1]
    assert envs.obs[:, 1].tolist() == [0, 0]
    assert envs.logs == [[], []]


# --- failures ----------------------------------------------------------------------------------------------------
def breaks_at(step: int, what: Any) -> Callable[..., Any]:
    """Fails at that step of an episode, if its start is an even number."""

    def answer(env: Counting, obs: Any, reward: Any, *rest: Any) -> Any:
        if len(env.taken) == step and env.offset % 2 == 0:
            return what(obs, reward, *rest)
        return (obs, reward, *rest)

    return answer


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (lambda *parts: 1 / 0, "step raised ZeroDivisionError: division by zero"),
        (lambda obs, reward, *rest: (obs * np.float32(np.nan), reward, *rest), "step returned an observation with NaN"),
        (lambda obs, reward, *rest: (obs, np.inf, *rest), "step returned reward inf"),
    ],
    ids=["raises", "NaN observation", "infinite reward"],
)
def test_a_failure_carries_what_reproduces_it(what: Any, message: str) -> None:
    def make() -> Counting:
        return Counting(length=6, answer=breaks_at(4, what))

    envs = seeded(source(make), (20, 21), 2)
    with np.errstate(all="ignore"), pytest.raises(EnvironmentFailure, match=message) as failed:
        play(envs, 100)
    report = failed.value.report
    assert f"environment {report['env_index']} of seed {report['run_seed']}" in str(failed.value)
    assert len(report["actions"]) == 4
    env = make()
    env.reset(seed=report["reset_seed"])
    for action in report["actions"][:-1]:
        obs, reward, *_ = env.step(action)
        assert np.isfinite(obs).all() and np.isfinite(reward)
    try:
        obs, reward, *_ = env.step(report["actions"][-1])
    except ZeroDivisionError:
        return
    assert not (np.isfinite(obs).all() and np.isfinite(reward))


# --- episodes without an end -------------------------------------------------------------------------------------
def test_the_log_of_an_endless_episode_is_bounded(monkeypatch) -> None:
    monkeypatch.setattr(vector, "MAX_LOG", 10)
    envs = seeded(source(lambda: Counting(length=26)))
    for step in range(25):
        assert (envs.unlogged == {0}) == (step > 10) and len(envs.logs[0]) <= 10
        envs.step(np.array([1]))
        envs.advance()
    snapshot = envs.snapshot()
    assert not envs.can_restore and snapshot["unlogged"] == [0] and len(snapshot["actions"][0]) == 0
    again = seeded(source(lambda: Counting(length=26)))
    assert not again.restore(snapshot) and again.episodes == [1] and again.unlogged == set()
    # Even if it looks as it did at its start.
    beginning = seeded(source(lambda: Counting(length=26)))
    assert not again.restore({**snapshot, "obs": beginning.obs})
    envs.step(np.array([1]))  # the 26th: it ends after all
    envs.advance()
    assert envs.unlogged == set() and envs.snapshot()["unlogged"] == [] and envs.can_restore


def test_an_endless_episode_with_native_state_comes_back(monkeypatch) -> None:
    pytest.importorskip("mujoco")
    monkeypatch.setattr(vector, "MAX_LOG", 10)
    env_source = EnvSource("InvertedPendulum-v5")
    envs = seeded(env_source)
    for _ in range(12):
        envs.step(np.zeros((1, 1), np.float32))
        envs.advance()
    snapshot = envs.snapshot()
    assert envs.can_restore and snapshot["unlogged"] == [0]
    again = seeded(env_source)
    assert again.restore(snapshot) and again.unlogged == {0}
    assert again.timeout_failure().report["actions"] is None and "step beyond 10" in str(again.timeout_failure())


def test_warnings_of_gymnasium_are_plain_lines_said_once(capsys) -> None:
    for _ in range(2):
        EnvSource("CartPole-v0").make().close()
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1 and said[0].startswith("note: ") and "v1" in said[0] and "\x1b" not in said[0]
