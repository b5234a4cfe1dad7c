"""Pixels, action repeat and Atari preprocessing: what an agent sees, and that runs through them can be resumed."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from image_envs import DISCRETE_DOT, HEIGHT, WIDTH, picture

from rl_training.cli import main
from rl_training.core.checks import ConfigError, UserError
from rl_training.envs.host.conformance import check_environment
from rl_training.envs.host.factory import EnvSource
from rl_training.envs.host.pixels import resize_area
from rl_training.envs.host.snapshots import native_state, restore_native
from rl_training.envs.host.vector import SeededEnvs
from rl_training.envs.host.wrappers import parse_wrappers

PIXELS = {"pixels": {"resize_shape": [HEIGHT, WIDTH], "frame_stack": 3}}


# --- resizing ---------------------------------------------------------------------------------------------------------
def shares(size: int, target: int) -> list[list[Fraction]]:
    """How much of each target pixel each source pixel makes up."""
    rows = []
    for i in range(target):
        left, right = Fraction(i * size, target), Fraction((i + 1) * size, target)
        rows.append([max(Fraction(0), min(right, j + 1) - max(left, j)) / (right - left) for j in range(size)])
    return rows


def slow_resize(image: np.ndarray, height: int, width: int) -> np.ndarray:
    down, across = shares(image.shape[0], height), shares(image.shape[1], width)
    out = np.zeros((image.shape[2], height, width), np.uint8)
    for c, y, x in np.ndindex(*out.shape):
        cover = [(j, k) for j, a in enumerate(down[y]) if a for k, b in enumerate(across[x]) if b]
        mean = sum(down[y][j] * across[x][k] * int(image[j, k, c]) for j, k in cover)
        out[c, y, x] = math.floor(mean + Fraction(1, 2))
    return out


@pytest.mark.parametrize(
    ("shape", "target"),
    [((21, 16, 1), (8, 8)), ((7, 9, 3), (7, 9)), ((5, 4, 2), (8, 9)), ((13, 17, 3), (6, 5)), ((20, 30, 3), (10, 10))],
)
def test_resizing_is_the_exact_mean_over_the_area(shape: tuple[int, ...], target: tuple[int, int]) -> None:
    image = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    assert np.array_equal(resize_area(image, *target), slow_resize(image, *target))


def test_a_grey_image_and_sizes_without_a_common_factor() -> None:
    image = np.random.default_rng(1).integers(0, 256, (401, 599), dtype=np.uint8)  # beyond what float32 adds exactly
    assert np.array_equal(resize_area(np.full_like(image, 255), 84, 84), np.full((1, 84, 84), 255))
    assert abs(float(resize_area(image, 84, 84).mean()) - float(image.mean())) < 0.1


# --- pixels -----------------------------------------------------------------------------------------------------------
def shown(at: int, age: int) -> np.ndarray:
    return picture(at, age).transpose(2, 0, 1)


def test_pixels_are_stacked_oldest_first_and_the_first_frame_is_repeated() -> None:
    env = EnvSource(DISCRETE_DOT, {"wrappers": PIXELS}).make()
    obs, _ = env.reset(seed=3)
    start = env.unwrapped.at
    assert obs.shape == (9, HEIGHT, WIDTH) and obs.dtype == np.uint8 and env.observation_space.contains(obs)
    assert np.array_equal(obs, np.concatenate([shown(start, 0)] * 3))
    first, *_ = env.step(1)
    second, *_ = env.step(1)
    assert np.array_equal(first, np.concatenate([shown(start, 0), shown(start, 0), shown(start + 1, 1)]))
    assert np.array_equal(second, np.concatenate([shown(start + k, k) for k in range(3)]))
    again, _ = env.reset(seed=3)
    assert np.array_equal(again, obs), "nothing of the last episode is left"
    assert env.render().shape == (HEIGHT, WIDTH, 3), "a video shows what is rendered, not what the agent sees"


def test_action_repeat_sums_rewards_and_stops_at_the_end() -> None:
    env = EnvSource(DISCRETE_DOT, {"wrappers": {"action_repeat": 3}}).make()
    env.reset(seed=0)
    env.unwrapped.at = 0
    assert env.step(1)[1:4] == (0.0, False, False) and env.unwrapped.at == 3
    env.unwrapped.at = WIDTH - 3
    assert env.step(1)[1:4] == (1.0, True, False) and env.unwrapped.age == 5, "two steps, not three"


def test_the_shape_tells_the_stack_and_the_agents_time_limit() -> None:
    spec = check_environment(EnvSource(DISCRETE_DOT, {"wrappers": {**PIXELS, "action_repeat": 4}})).spec
    assert (spec.observation.shape, spec.observation.frames, spec.episode_limit) == ((9, HEIGHT, WIDTH), 3, 4)
    plain = check_environment(EnvSource(DISCRETE_DOT)).spec
    assert (plain.observation.frames, plain.episode_limit) == (1, 15)


@pytest.mark.parametrize("workers", [0, 2])
def test_open_episodes_with_pixels_come_back(workers: int) -> None:
    source = EnvSource("CartPole-v1", {"wrappers": {"pixels": {"resize_shape": [10, 12]}, "action_repeat": 2}})
    envs, restored = (SeededEnvs(source, [1, 2], 2, workers=w) for w in (0, workers))
    rng = np.random.default_rng(0)
    try:
        assert restored.note is None
        envs.reset_all()
        for _ in range(15):
            envs.step(rng.integers(2, size=4))
            envs.advance()
        assert restored.restore(envs.snapshot())
        for _ in range(12):
            actions = rng.integers(2, size=4)
            for one in (envs, restored):
                one.step(actions)
            assert np.array_equal(envs.next_obs, restored.next_obs)
            for one in (envs, restored):
                one.advance()
            assert np.array_equal(envs.obs, restored.obs)
    finally:
        envs.close()
        restored.close()


@pytest.mark.parametrize(
    ("wrappers", "message"),
    [
        ({"pixel": {}}, "unknown wrapper 'pixel'; did you mean pixels?"),
        ({"pixels": {"frame_stak": 3}}, "unknown key 'frame_stak'; did you mean frame_stack?"),
        ({"pixels": {"channel_first": False}}, "channel_first must be true: networks take"),
        ({"pixels": {"resize_shape": [84]}}, "resize_shape must be a list of 2 integers, got [84]"),
        ({"pixels": {"frame_stack": 0}}, "frame_stack must be in [1, 64], got 0"),
        ({"pixels": 3}, "must be a mapping, got 3"),
        ({"action_repeat": 0}, "wrappers.action_repeat must be an integer >= 1, got 0"),
        ({"atari": {"noop": 3}}, "unknown key 'noop'; did you mean noop_max?"),
        ({"atari": {}, "action_repeat": 2}, "wrappers.atari cannot be combined"),
        ([], "wrappers must be a mapping, got []"),
    ],
)
def test_a_wrong_wrapper_is_told_in_one_line(wrappers: Any, message: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_wrappers(wrappers)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_wrong_wrapper_in_a_file_is_told_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("algo: dqn\nenv_id: CartPole-v1\nenv_kwargs:\n  wrappers:\n    pixels:\n      frame_stak: 3\n")
    assert main(["train", "--config", str(path)]) == 2
    assert f"{path}:6: unknown key 'frame_stak'; did you mean frame_stack?" in capsys.readouterr().err


class Blind(gym.Env[Any, Any]):
    observation_space = gym.spaces.Box(0, 1, (1,), np.float32)
    action_space = gym.spaces.Discrete(2)
    modes: list[str] = []  # noqa: RUF012

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode, self.metadata = render_mode, {"render_modes": self.modes}

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return np.zeros(1, np.float32), {}

    def render(self) -> Any:
        raise RuntimeError("no\nscreen")


class Broken(Blind):
    modes = ["rgb_array"]  # noqa: RUF012


class Empty(Broken):
    def render(self) -> Any:
        return np.zeros((0, 0, 3), np.uint8)


@pytest.mark.parametrize("wrappers", [{"action_repeat": 2}, PIXELS, {"action_repeat": 2, **PIXELS}])
@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((np.zeros(1, np.float32), 1.0, False, {}), "step must return (observation, reward, terminated, truncated"),
        ((np.zeros(1, np.float32), "1.5", False, False, {}), "step must return a finite number as reward, got '1.5'"),
        ((np.zeros(1, np.float32), 1.0, 0, False, {}), "step must return booleans for terminated and truncated"),
    ],
)
def test_wrappers_do_not_hide_what_an_environment_does_wrong(wrappers: Any, answer: Any, message: str) -> None:
    class Wrong(Broken):
        def render(self) -> Any:
            return np.zeros((HEIGHT, WIDTH, 3), np.uint8)

        def step(self, action: Any) -> Any:
            return answer

    kwargs = {"render_mode": "rgb_array", "wrappers": wrappers}
    with pytest.raises(UserError) as error:
        check_environment(EnvSource("env", kwargs, Wrong))
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("factory", "kwargs", "message"),
    [
        (Blind, {}, "env cannot be rendered as pixels: its render modes are none"),
        (Broken, {}, "env cannot be rendered: RuntimeError: no screen"),
        (Empty, {}, "env cannot be used as pixels: render() gives uint8 (0, 0, 3), not uint8 (height, width, 3)"),
        (Broken, {"render_mode": "human"}, "env_kwargs.render_mode must be rgb_array for pixels"),
    ],
)
def test_an_environment_that_cannot_be_rendered_is_refused(factory: Any, kwargs: Any, message: str) -> None:
    with pytest.raises(UserError) as error:
        check_environment(EnvSource("env", {**kwargs, "wrappers": PIXELS}, factory))
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("said", ["'NoneType' object has no attribute 'eglQueryString'", "no attribute 'glGetError'"])
def test_a_missing_graphics_library_is_told_with_what_to_install(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def make(*_: Any, **__: Any) -> None:
        raise AttributeError(said)

    monkeypatch.setattr(gym, "make", make)
    with pytest.raises(UserError, match=r"^environment 'Some-v0' cannot be rendered: AttributeError: .*libegl1\)$"):
        EnvSource("Some-v0", {"wrappers": PIXELS}).make()


@pytest.mark.sweep
def test_pixels_of_mujoco_keep_their_native_state() -> None:
    pytest.importorskip("mujoco")
    source = EnvSource("Hopper-v5", {"wrappers": {"pixels": {"resize_shape": [9, 9]}}})
    env, other = source.make(), source.make()
    try:
        env.reset(seed=1)
        other.reset(seed=2)
    except UserError as error:
        pytest.skip(f"no headless rendering here: {error}")
    actions = np.random.default_rng(0).uniform(-1, 1, (8, 3)).astype(np.float32)
    for action in actions[:4]:
        env.step(action)
    state = native_state(env)
    assert state is not None and restore_native(other, state)
    for action in actions[4:]:
        mine, theirs = env.step(action), other.step(action)
        assert np.array_equal(mine[0], theirs[0]) and mine[1:4] == theirs[1:4]
    env.close()
    other.close()


# --- Atari ------------------------------------------------------------------------------------------------------------
@pytest.fixture
def game():
    pytest.importorskip("ale_py")

    def make(env_id: str = "ALE/Breakout-v5", evaluation: bool = False, **atari: Any) -> Any:
        source = EnvSource(env_id, {"wrappers": {"atari": atari}})
        return (source.for_evaluation() if evaluation else source).make()

    return make


def test_atari_steps_are_four_frames_of_which_the_last_two_are_seen(game) -> None:
    env = game("ALE/Pong-v5", repeat_action_probability=0.0)
    obs, _ = env.reset(seed=0)
    assert obs.shape == (4, 84, 84) and (obs[0] == obs[3]).all()
    ale, emulator = env.unwrapped.ale, env.unwrapped
    before, frames = emulator.clone_state(include_rng=True), ale.getEpisodeFrameNumber()
    obs, *_ = env.step(2)
    assert ale.getEpisodeFrameNumber() == frames + 4
    emulator.restore_state(before)
    screens = []
    for _ in range(4):
        emulator.step(2)
        screens.append(ale.getScreenGrayscale().copy())
    assert np.array_equal(obs[3:], resize_area(np.maximum(screens[2], screens[3]), 84, 84))


@pytest.mark.sweep
def test_a_game_starts_with_up_to_thirty_noops_drawn_from_the_seed(game) -> None:
    env = game()
    start = env.game.ale.getEpisodeFrameNumber()
    counts = []
    for seed in [*range(60), 0]:
        env.reset(seed=seed)
        counts.append(env.game.ale.getEpisodeFrameNumber() - start)
    assert (min(counts), max(counts)) == (1, 30) and counts[0] == counts[-1]


def test_sticky_joystick_repeats_a_quarter_of_the_frames(game) -> None:
    env = game("ALE/Pong-v5")
    env.reset(seed=0)
    taken = []
    step = env.env.step
    env.env.step = lambda action: (taken.append(action), step(action))[1]
    held = 0
    for number in range(300):
        env.step(2 + number % 2)
    fresh = 0
    for number, action in enumerate(taken):
        wanted = 2 + (number // 4) % 2
        assert action in (wanted, held), "either the action or the one before"
        fresh += number % 4 == 0 and action == wanted
        held = action
    assert 0.68 < fresh / 300 < 0.82  # 0.75 expected, standard deviation 0.025


@pytest.mark.parametrize("evaluation", [False, True])
def test_a_share_of_random_actions_is_for_evaluation_alone(evaluation: bool, game) -> None:
    env = game("ALE/Pong-v5", evaluation, evaluation_epsilon=0.3, repeat_action_probability=0.0, noop_max=0)
    env.reset(seed=0)
    taken = []
    step = env.env.step
    env.env.step = lambda action: (taken.append(int(action)), step(action))[1]
    for _ in range(300):
        env.step(2)
    others = np.mean(np.array(taken[::4]) != 2)
    assert others == 0 if not evaluation else 0.18 < others < 0.32  # 0.25 expected, standard deviation 0.025
    assert not evaluation or set(taken) == set(range(6))


def play(env: Any, seed: int, steps: int, first: int = 0) -> list[Any]:
    rng, trace = np.random.default_rng(seed), []
    for number in range(steps):
        action = rng.integers(env.action_space.n)
        if number < first:
            continue
        obs, reward, terminated, truncated, _ = env.step(action)
        trace.append((obs.tobytes(), reward, terminated, truncated))
        if terminated or truncated:
            trace.append(env.reset(seed=number)[0].tobytes())
    return trace


def test_a_lost_life_ends_an_episode_in_training_and_the_game_goes_on(game) -> None:
    env = game(terminal_on_life_loss=True)
    env.reset(seed=0)
    lives, ends = [env.lives], 0
    while len(lives) < 6:
        _, _, terminated, truncated, _ = env.step(1 + ends % 3)
        ends += 1
        if terminated or truncated:
            env.reset(seed=ends)
            lives.append(env.lives)
    assert lives == [5, 4, 3, 2, 1, 5], "a new game only when the last life is gone"


def test_evaluation_plays_whole_games_for_the_full_reward(game) -> None:
    env = game(evaluation=True, terminal_on_life_loss=True, noop_max=0)
    env.reset(seed=0)
    rewards, lives, terminated = [], {5}, False
    rng = np.random.default_rng(0)
    while not terminated:
        _, reward, terminated, truncated, _ = env.step(rng.integers(4))
        assert not truncated
        rewards.append(reward)
        lives.add(env.lives)
    assert lives == {5, 4, 3, 2, 1, 0}
    clipped = game(noop_max=0)
    clipped.reset(seed=0)
    clipped.env.step = lambda action: (None, 7.0, False, False, {})
    assert clipped.step(0)[1] == 1.0
    env.env.step = clipped.env.step
    assert env.step(0)[1] == 28.0


@pytest.mark.sweep
@pytest.mark.parametrize("cut", [5, 41, 133])
def test_an_atari_game_comes_back_in_the_middle_of_its_lives(cut: int, game) -> None:
    env, other = game(terminal_on_life_loss=True), game(terminal_on_life_loss=True)
    env.reset(seed=4)
    other.reset(seed=9)
    play(other, 1, 20)
    whole = play(env, 7, cut)
    env.held = 3  # whatever the last action was: a sticky joystick may repeat it
    state = native_state(env)
    assert state is not None and restore_native(other, state) and other.held == 3
    assert play(env, 7, 220, cut) == play(other, 7, 220, cut)
    fresh = game(terminal_on_life_loss=True)
    fresh.reset(seed=4)
    assert play(fresh, 7, cut) == whole, "a fresh game with the same seeds is the same game"


def test_a_time_limit_counts_the_agents_steps(game) -> None:
    source = EnvSource("ALE/Pong-v5", {"max_episode_steps": 5, "wrappers": {"atari": {}}})
    found = check_environment(source)
    assert found.restore != "inexact" and found.spec.episode_limit == 5 and found.spec.observation.frames == 4
    env = source.make()
    env.reset(seed=0)
    assert [env.step(0)[3] for _ in range(5)] == [False] * 4 + [True]


@pytest.mark.parametrize(
    ("env_id", "kwargs", "message"),
    [
        ("CartPole-v1", {}, "wrappers.atari needs an Atari game such as ALE/Pong-v5, got CartPole-v1"),
        ("ALE/Pong-v5", {"frameskip": 4}, "env_kwargs.frameskip must be left out"),
    ],
)
def test_what_is_no_bare_game_is_refused(env_id: str, kwargs: Any, message: str, game) -> None:
    with pytest.raises(UserError, match=message):
        EnvSource(env_id, {**kwargs, "wrappers": {"atari": {}}}).make()


def test_a_missing_emulator_is_told_with_the_command_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ale_py", None)
    with pytest.raises(
        UserError, match=r"'ALE/Pong-v5' needs ale_py; install it with: pip install 'rl-training\[atari\]'"
    ):
        EnvSource("ALE/Pong-v5").make()
