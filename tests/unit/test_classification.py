"""How an environment is brought back on resume: the check before training finds it out."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import gymnasium as gym
import numpy as np
import pytest
from carrying_envs import CARRYING, Carrying

from rl_training.core.checks import UserError
from rl_training.envs.host import classification, conformance
from rl_training.envs.host.classification import reset_is_enough
from rl_training.envs.host.conformance import check_environment, check_spaces, classified
from rl_training.envs.host.factory import EnvSource, Restore
from rl_training.envs.host.snapshots import native_state


def carrying(what: str) -> EnvSource:
    return EnvSource("<carrying>", factory=lambda: Carrying(what, length=20))


@pytest.mark.parametrize(
    ("carries", "expected"),
    [
        ("nothing", "replay"),
        ("actions", "rebuilt"),
        ("length", "rebuilt"),
        ("episodes", "rebuilt"),
        ("generator", "rebuilt"),
        ("construction", "inexact"),
        ("chance", "inexact"),
    ],
)
def test_what_is_carried_over_is_noticed_before_a_resume(carries: str, expected: str) -> None:
    Carrying.made = Carrying.closed = 0
    found = check_environment(carrying(carries))
    assert found.restore == expected
    assert (found.rebuild_ms is not None) == (expected == "rebuilt")
    assert Carrying.made == Carrying.closed, "every copy is closed, once"
    assert check_environment(carrying(carries)).restore == expected, "the same environment has the same class"


@pytest.mark.parametrize(("carries", "expected"), [("episodes", "rebuilt"), ("chance", "inexact"), ("ends", "rebuilt")])
def test_what_is_carried_over_is_noticed_in_long_episodes_with_flags_of_numpy(carries: str, expected: str) -> None:
    """`ends`: what changes only when an episode comes to its own end, after more steps than a compared one has."""
    source = EnvSource("<carrying>", factory=lambda: Carrying(carries, length=100, numpy_flags=True))
    assert check_environment(source).restore == expected


FAMILIES = [
    ("CartPole-v1", {}, None, "replay"),
    ("FrozenLake-v1", {}, None, "replay"),
    ("LunarLander-v3", {}, "Box2D", "replay"),
    ("BipedalWalker-v3", {}, "Box2D", "rebuilt"),
    ("HalfCheetah-v5", {}, "mujoco", "native"),
    ("ALE/Pong-v5", {"wrappers": {"atari": {}}}, "ale_py", "native"),
    ("dm_control/cartpole-swingup-v0", {}, "shimmy", "native"),
    ("dm_control/lqr-lqr_2_1-v0", {}, "shimmy", "inexact"),
]


@pytest.mark.sweep
@pytest.mark.parametrize(("env_id", "kwargs", "package", "expected"), FAMILIES)
def test_one_environment_of_each_family(env_id: str, kwargs: dict, package: str | None, expected: str) -> None:
    if package is not None:
        pytest.importorskip(package)
    assert check_environment(EnvSource(env_id, kwargs)).restore == expected


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("env_id", ["BipedalWalker-v3", "BipedalWalkerHardcore-v3"])
def test_bipedal_walker_is_noticed_whatever_is_played(env_id: str, seed: int) -> None:
    pytest.importorskip("Box2D")
    assert check_environment(EnvSource(env_id), seed).restore == "rebuilt"


def test_below_pixels_the_environment_itself_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A walker whose physics rounds differently looks the same for hundreds of steps."""
    pytest.importorskip("Box2D")
    monkeypatch.setattr(classification, "_fresh_copies_agree", lambda *_: _[-1].append(0.0) or True)  # 36 pictures less
    wrappers = {"pixels": {"resize_shape": [12, 12], "frame_stack": 1}}
    assert check_environment(EnvSource("BipedalWalker-v3", {"wrappers": wrappers})).restore == "rebuilt"


@pytest.mark.sweep
def test_a_life_lost_carries_the_game_on_and_its_native_state_holds_that(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ale_py")
    atari = {"terminal_on_life_loss": True, "frame_skip": 40, "resize_shape": [16, 16], "frame_stack": 1}
    source = EnvSource("ALE/Breakout-v5", {"wrappers": {"atari": atari}})
    assert check_environment(source).restore == "native"
    monkeypatch.setattr(classification, "native_state", lambda env: None)
    monkeypatch.setattr(classification, "_fresh_copies_agree", lambda *_: False)
    assert check_environment(source).restore == "inexact", "a life was lost, and the next episode was not a new game"


@pytest.mark.parametrize("carries", ["actions", "episodes", "length", "generator", "ends", "chance", "nothing"])
def test_a_reset_is_enough_where_nothing_is_carried(carries: str) -> None:
    made = Carrying.made - Carrying.closed
    assert reset_is_enough(EnvSource(CARRYING, {"carries": carries, "length": 9})) == (carries == "nothing")
    assert Carrying.made - Carrying.closed == made


@pytest.mark.sweep
def test_a_reset_is_enough_in_the_games_of_evaluations_alone() -> None:
    pytest.importorskip("ale_py")
    atari = {"terminal_on_life_loss": True, "frame_skip": 40, "resize_shape": [16, 16], "frame_stack": 1}
    source = EnvSource("ALE/Breakout-v5", {"wrappers": {"atari": atari}}, restore="native")
    assert not reset_is_enough(source)  # a life was lost, and the next episode was not a new game
    assert reset_is_enough(source.for_evaluation())


def hidden(carried: bool) -> type[gym.Env]:
    """A MuJoCo environment with more state than MuJoCo's, of this episode or of all of them."""
    from gymnasium.envs.mujoco.inverted_pendulum_v5 import InvertedPendulumEnv

    class Hidden(InvertedPendulumEnv):
        more = 0.0

        def reset(self, **kwargs):
            self.more = self.more if carried else 0.0
            return super().reset(**kwargs)

        def step(self, action):
            self.more += float(action[0])
            obs, reward, *rest = super().step(action)
            return obs, reward + self.more, *rest

    Hidden.__module__ = "gymnasium.envs.mujoco.hidden"  # as if native_state knew it
    return Hidden


@pytest.mark.parametrize(("carried", "expected"), [(False, "replay"), (True, "rebuilt")])
def test_a_native_state_that_is_not_the_whole_state_is_not_used(carried: bool, expected: str) -> None:
    pytest.importorskip("mujoco")
    source = EnvSource("<hidden>", factory=hidden(carried))
    env = source.make()
    env.reset(seed=0)
    assert native_state(env) is not None
    env.close()
    assert check_environment(source).restore == expected


def test_an_environment_that_raises_is_left_for_training_to_report() -> None:
    class Falls(Carrying):
        def step(self, action):
            if self.taken == 15:
                raise RuntimeError("the robot fell over")
            return super().step(action)

    assert check_environment(EnvSource("<falls>", factory=lambda: Falls("nothing"))).restore == "replay"


@pytest.mark.parametrize(("image", "most"), [(False, 2300), (True, 120)])
def test_the_check_is_bounded_by_steps(image: bool, most: int) -> None:
    class Counted(Carrying):
        steps = 0

        def __init__(self) -> None:
            super().__init__("nothing")
            if image:
                self.observation_space = gym.spaces.Box(0, 255, (1, 32, 32), np.uint8)

        def step(self, action):
            Counted.steps += 1
            return super().step(action)

        def observation(self):
            return np.full((1, 32, 32), self.taken, np.uint8) if image else super().observation()

    assert check_environment(EnvSource("<counted>", factory=Counted)).restore == "replay"
    assert most / 2 < Counted.steps < most


def test_the_spaces_alone_take_one_copy_and_a_dozen_steps() -> None:
    Carrying.made = 0
    check_spaces(carrying("actions"))
    assert Carrying.made == 1
    check_environment(classified(carrying("actions")))
    made = Carrying.made
    known = EnvSource("<carrying>", factory=lambda: Carrying("actions"), restore="rebuilt")
    assert check_environment(known).restore == "rebuilt" and Carrying.made == made + 1, "decided once"


def test_a_known_class_does_not_excuse_a_violation() -> None:
    def make() -> gym.Env:
        return gym.wrappers.TransformReward(Carrying("nothing"), lambda reward: None)

    with pytest.raises(UserError, match="a finite number as reward"):
        check_environment(EnvSource("<broken>", factory=make, restore="native"))


def test_a_registered_one_is_classified_under_its_time_limit() -> None:
    assert classified(EnvSource(CARRYING)).restore == "rebuilt"
    assert classified(EnvSource(CARRYING, {"carries": "nothing"})).restore == "replay"


def test_the_page_of_the_docs_holds_the_classes_that_are_tested_here() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "environment-classes.md").read_text(encoding="utf-8")
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| ") and line.count("|") == 5]
    # A game is listed as training uses it, then as it is without wrappers.
    classes = {row[0].removeprefix("| "): row[1] for row in reversed(rows) if row[1] in get_args(Restore)}
    assert len(classes) > 200 and "Commit " in page and "gymnasium " in page
    for env_id, _, _, expected in FAMILIES:
        assert classes[env_id] == expected


def test_a_slow_check_is_reported(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(conformance, "REPORT_AFTER", 0.0)
    check_environment(carrying("nothing"))
    assert "checking environment '<carrying>' before training" in capsys.readouterr().err
    monkeypatch.setattr(conformance, "REPORT_AFTER", 60.0)
    check_environment(carrying("nothing"))
    assert capsys.readouterr().err == ""
