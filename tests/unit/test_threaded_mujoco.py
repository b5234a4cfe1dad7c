"""MuJoCo tasks stepped in threads: Gymnasium's observations, rewards, ends and infos bit for bit, in float64."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rl_training.envs.host.factory import EnvSource
from rl_training.envs.host.mujoco import registry
from rl_training.envs.host.mujoco.arms import InvertedDoublePendulum
from rl_training.envs.host.mujoco.registry import TASKS, threaded_task
from rl_training.envs.host.mujoco.spatial import Humanoid
from rl_training.envs.host.mujoco.stepper import ThreadedStepper
from rl_training.envs.host.mujoco.tasks import Rows, norms, square_sums
from rl_training.envs.host.mujoco.threads import RowThreads
from rl_training.envs.host.stepping import LocalStepper, Results, RowsFailed, Start
from rl_training.envs.host.vector import SeededEnvs

pytest.importorskip("mujoco")

NAMES = ["HalfCheetah", "Hopper", "Walker2d", "Ant", "Humanoid", "Swimmer", "Reacher", "Pusher", "InvertedPendulum",
         "InvertedDoublePendulum"]  # fmt: skip
IDS = [f"{name}-v{version}" for name in NAMES for version in (5, 4) if (name, version) != ("Pusher", 4)]
INFOS = ("x_position", "y_position", "z_distance_from_origin", "distance_from_origin", "x_velocity", "y_velocity",
         "reward_forward", "reward_run", "reward_fwd", "forward_reward", "reward_ctrl", "reward_quadctrl",
         "reward_linvel", "reward_alive", "reward_survive", "reward_contact", "reward_dist", "reward_near",
         "distance_penalty", "velocity_penalty", "tendon_length", "no_such_number")  # fmt: skip
HEALTH = {"terminate_when_unhealthy": False, "healthy_reward": 0.7}
FORWARD = {"ctrl_cost_weight": 0.37, "exclude_current_positions_from_observation": False, "reset_noise_scale": 0.02}
WITHOUT = {f"include_{name}_in_observation": False for name in ("cinert", "qfrc_actuator")}
# Arguments of the constructors, by task; those in FIVE are of version 5 alone.
FOUR: dict[str, list[dict[str, Any]]] = {
    "HalfCheetah": [{**FORWARD, "forward_reward_weight": 3}],
    "Hopper": [
        {**FORWARD, **HEALTH, "healthy_angle_range": (-0.1, 0.3)},
        {"healthy_state_range": (-3.0, 3.0), "healthy_z_range": (0.9, 1.3)},
    ],
    "Walker2d": [{**FORWARD, **HEALTH}, {"healthy_z_range": [1.0, 1.4], "healthy_angle_range": [-0.3, 0.5]}],
    "Ant": [{**FORWARD, **HEALTH, "contact_cost_weight": 0.3}, {"healthy_z_range": (0.3, 0.8)}],
    "Humanoid": [{**FORWARD, **HEALTH, "forward_reward_weight": 2}, {"healthy_z_range": (1.2, 1.6)}],
    "Swimmer": [{**FORWARD, "forward_reward_weight": 0.1}],
}
FIVE: dict[str, list[dict[str, Any]]] = {
    "HalfCheetah": [{"frame_skip": 3}],
    "Walker2d": [{"xml_file": "walker2d.xml", "frame_skip": 2}],
    "Ant": [
        {"main_body": "torso", "include_cfrc_ext_in_observation": False, "forward_reward_weight": 0.9},
        {"contact_force_range": (-0.3, 0.2), "main_body": 3, "frame_skip": 4},
    ],
    "Humanoid": [{**WITHOUT, "contact_cost_range": (0.001, 0.002)}, {"include_cvel_in_observation": False}],
    "Reacher": [{"reward_dist_weight": 0.3, "reward_control_weight": 1.7}],
    "Pusher": [{"reward_near_weight": 0.3, "reward_dist_weight": 2, "reward_control_weight": 0.7}],
    "InvertedPendulum": [{"frame_skip": 1, "reset_noise_scale": 0.1}],
    "InvertedDoublePendulum": [{"healthy_reward": 3, "frame_skip": 2}],
}
CONTACT = [("Ant-v4", {"use_contact_forces": True}), ("Ant-v4", {"use_contact_forces": True, **HEALTH})]
VARIANTS = [(env_id, kwargs) for env_id in IDS for kwargs in FOUR.get(env_id.split("-")[0], [])]
VARIANTS += [(f"{name}-v5", kwargs) for name, several in FIVE.items() for kwargs in several]
VARIANTS += CONTACT


class Side:
    """A stepper with results in float64, so that no rounding hides a difference."""

    def __init__(self, stepper: LocalStepper, size: int) -> None:
        self.stepper, self.seeds = stepper, list(range(100, 100 + size))
        names = len(stepper.source.info_metrics)
        obs, rewards = np.zeros((size, *stepper.observation.shape)), np.zeros(size)
        flags = np.zeros(size, np.bool_), np.zeros(size, np.bool_)
        self.results = Results(obs, rewards, *flags, np.full((size, names), np.nan))

    def start(self, rows: list[int]) -> None:
        for row in rows:
            self.seeds[row] += 1000
        self.stepper.start({row: Start(self.seeds[row]) for row in rows}, self.results.obs)

    def step(self, actions: np.ndarray, active: np.ndarray | None = None) -> list[int]:
        """One step, and the next episode where one ended; returns those rows."""
        self.stepper.step(actions, active, self.results)
        self.after = self.bits()
        ended = np.flatnonzero(self.results.terminated | self.results.truncated).tolist()
        self.start(ended)
        return ended

    def bits(self) -> list[bytes]:
        return [array.tobytes() for array in self.results]


@contextmanager
def two_sides(
    source: EnvSource, size: int, threads: int, all_threaded: bool = True
) -> Iterator[tuple[Side, Side, ThreadedStepper]]:
    stepper = ThreadedStepper(source, size, threads)
    sides = Side(LocalStepper(source, size), size), Side(stepper, size)
    try:
        for side in sides:
            side.start(list(range(size)))
        assert sides[0].bits() == sides[1].bits()
        assert all(row is not None for row in stepper.rows) == all_threaded
        yield *sides, stepper
    finally:
        for side in sides:
            side.stepper.close()


def random_actions(stepper: LocalStepper, size: int, step: int) -> np.ndarray:
    """Random actions; each third step has every number at a bound, each fifth some zeros."""
    low, high = stepper.action.space.low, stepper.action.space.high
    rng = np.random.default_rng(step)
    drawn = rng.uniform(low, high, (size, *low.shape))
    if step % 3 == 0:
        drawn = np.where(drawn > (low + high) / 2, high, low)
    if step % 5 == 0:
        drawn[rng.uniform(size=drawn.shape) < 0.5] = 0
    return drawn.astype(np.float32)


def compare(env_id: str, kwargs: dict[str, Any], size: int, steps: int, threads: int) -> None:
    source = EnvSource(env_id, {"max_episode_steps": 50, **kwargs}, info_metrics=INFOS)
    assert threaded_task(source) is not None
    with two_sides(source, size, threads) as (gymnasium, ours, stepper):
        ends = 0
        for step in range(steps):
            actions = random_actions(stepper, size, step)
            ended = gymnasium.step(actions)
            assert ours.step(actions) == ended, (step, "ends")
            equal = [mine == theirs for mine, theirs in zip(ours.after, gymnasium.after, strict=True)]
            assert all(equal), (step, dict(zip(Results._fields, equal, strict=True)))
            assert ours.bits() == gymnasium.bits(), (step, "resets")
            ends += len(ended)
            if step == steps // 2:  # states are the same, and move from one kind to the other
                mine, theirs = stepper.states(), gymnasium.stepper.states()
                assert [one.tobytes() for one in mine] == [one.tobytes() for one in theirs]
                for side, states in ((ours, theirs), (gymnasium, mine)):
                    obs = side.results.obs.copy()
                    side.start(list(range(size)))
                    side.results.obs[...] = obs
                    assert all(side.stepper.set_states(range(size), states))
        assert ends > steps // 50


@pytest.mark.parametrize("env_id", IDS)
def test_every_task_is_gymnasiums_bit_for_bit(env_id: str) -> None:
    compare(env_id, {}, size=3, steps=70, threads=2)


@pytest.mark.sweep
@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("env_id", IDS)
def test_long_runs_of_many_seeds_are_gymnasiums(env_id: str, threads: int) -> None:
    compare(env_id, {"max_episode_steps": 130}, size=9, steps=330, threads=threads)


@pytest.mark.sweep
@pytest.mark.parametrize(("env_id", "kwargs"), VARIANTS, ids=str)
def test_arguments_of_the_constructors_are_followed(env_id: str, kwargs: dict[str, Any]) -> None:
    compare(env_id, kwargs, size=6, steps=310, threads=2)


@pytest.mark.parametrize(
    ("env_id", "kwargs"),
    [
        ("Hopper-v5", {**HEALTH, "ctrl_cost_weight": 0.37, "exclude_current_positions_from_observation": False}),
        ("Walker2d-v4", {"healthy_z_range": [1.0, 1.4], "terminate_when_unhealthy": False}),
        ("Ant-v5", {"main_body": "torso", "include_cfrc_ext_in_observation": False, "frame_skip": 2}),
        CONTACT[0],
    ],
    ids=str,
)
def test_some_arguments_are_followed(env_id: str, kwargs: dict[str, Any]) -> None:
    compare(env_id, kwargs, size=3, steps=70, threads=2)


@pytest.mark.parametrize("env_id", ["HalfCheetah-v5", "Humanoid-v5", "Hopper-v4", "InvertedDoublePendulum-v5"])
@pytest.mark.parametrize("broken", ["qvel", "qpos"])
def test_a_simulation_that_diverges_is_reset_as_in_gymnasium(
    env_id: str, broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MuJoCo starts a diverged simulation anew inside of `mj_step`, controls included."""
    monkeypatch.chdir(tmp_path)  # it writes a log into the working directory
    with two_sides(EnvSource(env_id), 4, 2) as (gymnasium, ours, stepper):
        for step in range(6):
            for side in (gymnasium, ours):
                data: Any = side.stepper.envs[step % 4].unwrapped.data  # type: ignore[attr-defined]
                getattr(data, broken)[1] = (1e12, np.nan)[step % 2]
            actions = random_actions(stepper, 4, step)
            assert ours.step(actions) == gymnasium.step(actions)
            assert ours.after == gymnasium.after and ours.bits() == gymnasium.bits()
        assert (tmp_path / "MUJOCO_LOG.TXT").exists()


def test_the_forms_for_many_rows_round_as_those_for_one() -> None:
    """A difference of the last bit is rare: tens of thousands of rows show what a few hundred steps may not."""
    rng = np.random.default_rng(0)
    for size in (2, 3):
        vectors = rng.normal(size=(20_000, size))
        assert np.array_equal(norms(vectors), [np.linalg.norm(one - 0) for one in vectors])
    for size in (1, 2, 3, 6, 7, 8, 17, 78, 84):
        for kind in (np.float32, np.float64):
            rows = rng.normal(size=(2000, size)).astype(kind)
            assert np.array_equal(square_sums(rows), [np.sum(np.square(one.copy())) for one in rows])
    mass, places = rng.uniform(0, 9, 14), list(rng.normal(size=(500, 14, 3)))
    centers = Humanoid({}).mass_centers(Rows({"mass": [mass], "xipos": places}, np.ones(1)))
    one_by_one = [np.einsum("b,bj->j", mass, place.copy()) / mass.sum() for place in places]
    assert np.array_equal(centers, np.array(one_by_one)[:, :2])


def test_the_squares_of_the_double_pendulum_are_those_of_scalars() -> None:
    rng = np.random.default_rng(0)
    views = {name: list(rng.normal(size=(10_000, 3))) for name in ("qpos", "qvel", "tip", "qfrc_constraint")}
    found = InvertedDoublePendulum({"healthy_reward": 10.0}).after(Rows(views, np.ones(1)), np.zeros(1), None).infos()
    for place, ((x, _, y), (_, v1, v2)) in enumerate(zip(views["tip"], views["qvel"], strict=True)):
        assert found["distance_penalty"][place] == -(0.01 * x**2 + (y - 2) ** 2)
        assert found["velocity_penalty"][place] == -(1e-3 * v1**2 + 5e-3 * v2**2)


def test_rows_that_are_not_active_stay_as_they_are() -> None:
    with two_sides(EnvSource("Reacher-v5", info_metrics=INFOS), 5, 2) as (gymnasium, ours, stepper):
        for step in range(120):
            active = np.random.default_rng(step).uniform(size=5) < (0.6 if step % 7 else 0)
            actions = random_actions(stepper, 5, step)
            assert ours.step(actions, active) == gymnasium.step(actions, active)
            assert ours.after == gymnasium.after
        mine, theirs = stepper.states(), gymnasium.stepper.states()
        assert [one.tobytes() for one in mine] == [one.tobytes() for one in theirs]


# --- as `SeededEnvs` --------------------------------------------------------------------------------------------------
@contextmanager
def seeded(source: EnvSource, *threads: int) -> Iterator[list[SeededEnvs]]:
    made = [SeededEnvs(source, (3, 4), 2, threads=count) for count in threads]
    try:
        yield made
    finally:
        for envs in made:
            envs.close()


def play(envs: SeededEnvs, steps: range) -> list[bytes]:
    trace = []
    for step in steps:
        envs.step(np.random.default_rng(step).uniform(-1, 1, (4, envs.action.spec.size)).astype(np.float32))
        results = (envs.obs, envs.next_obs, envs.rewards, envs.terminated, envs.truncated)
        trace.append(b"".join(array.tobytes() for array in results))
        envs.advance()
    return trace


@pytest.mark.parametrize("env_id", ["Hopper-v5", "Ant-v5", "Humanoid-v4"])
def test_snapshots_move_between_threads_and_one_process(env_id: str) -> None:
    with seeded(EnvSource(env_id, {"max_episode_steps": 40}), 0, 2, 3, 0) as (local, threaded, other, last):
        assert isinstance(threaded.stepper, ThreadedStepper) and type(local.stepper) is LocalStepper
        for envs in (local, threaded):
            envs.reset_all()
        assert play(local, range(67)) == play(threaded, range(67))
        snapshot = threaded.snapshot()
        expected = play(threaded, range(67, 120))
        for envs in (other, last, threaded):
            assert envs.restore(snapshot)
            assert play(envs, range(67, 120)) == expected


def test_a_changed_environment_is_read_again() -> None:
    """The rows have the new number of frames from their next episode on: for a while they differ."""
    with seeded(EnvSource("Hopper-v5", {"max_episode_steps": 30}), 0, 2) as (local, threaded):
        traces: list[list[bytes]] = []
        for envs in (local, threaded):
            envs.reset_all()
            trace = play(envs, range(20))
            envs.change({"frame_skip": 2})
            trace += play(envs, range(20, 24))
            frames = {env.unwrapped.frame_skip for env in envs.stepper.envs}
            assert frames == {2, 4}
            envs.change({"frame_skip": 7})
            traces.append(trace + play(envs, range(24, 70)))
        assert traces[0] == traces[1]
        assert all(row is not None for row in threaded.stepper.rows)


# --- what is stepped otherwise ----------------------------------------------------------------------------------------
def test_the_config_alone_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(IDS) == len(TASKS) and all(threaded_task(EnvSource(env_id)) for env_id in IDS)
    others: list[EnvSource] = [
        EnvSource("CartPole-v1"),
        EnvSource("HumanoidStandup-v5"),
        EnvSource("Pusher-v4"),
        EnvSource("NoSuch-v5"),
        EnvSource("HalfCheetah-v5", {"render_mode": "rgb_array"}),
        EnvSource("HalfCheetah-v5", {"wrappers": {"action_repeat": 2}}),
        EnvSource("HalfCheetah-v5", factory=lambda: gym.make("HalfCheetah-v5")),
    ]
    assert [threaded_task(source) for source in others] == [None] * len(others)

    source = EnvSource("HalfCheetah-v5")
    monkeypatch.setitem(TASKS, "half_cheetah_v5", (TASKS["half_cheetah_v5"][0], "another"))
    assert threaded_task(source) is None
    with seeded(source, 2) as (envs,):
        assert type(envs.stepper) is LocalStepper and envs.note is None


def test_an_id_that_a_script_registers_anew_is_another_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = gym.spec("Swimmer-v5")
    monkeypatch.setitem(gym.registry, "Swimmer-v5", gym.envs.registration.EnvSpec("Swimmer-v5", lambda: None))
    assert threaded_task(EnvSource("Swimmer-v5")) is None
    monkeypatch.setitem(gym.registry, "Own-v0", gym.envs.registration.EnvSpec("Own-v0", spec.entry_point))
    assert threaded_task(EnvSource("Own-v0")) is not None


def test_other_code_of_gymnasium_has_another_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = gym.spec("Hopper-v5").entry_point
    module, _, name = str(found).partition(":")
    text = Path(__import__(module, fromlist=["x"]).__file__).read_text()
    monkeypatch.syspath_prepend(str(tmp_path))
    changes = {"same": ("", ""), "reset": ("noise_high = self", "noise_high = +self"), "docs": ("## Rewards", "## R")}
    changes |= {"step": ("self.data.qpos[1] - self", "self.data.qpos[1]-self"), "cost": ("np.sum(np.square(", "sum((")}
    digests = {}
    for key, (old, new) in changes.items():
        (tmp_path / f"copied_{key}.py").write_text(text.replace(old, new, 1))
        digests[key] = registry.step_digest(f"copied_{key}", name)
    expected = TASKS["hopper_v5"][1]
    assert {key for key, digest in digests.items() if digest == expected} == {"same", "reset", "docs"}
    assert registry.step_digest("copied_same", "Nothing") is None and registry.step_digest("no_such", name) is None


@pytest.mark.parametrize("kwargs", [{"terminate_when_unhealthy": 1}, {"healthy_z_range": np.array([0.8, 2.0])}])
def test_settings_that_the_formulas_do_not_cover_are_stepped_by_gymnasium(kwargs: dict[str, Any]) -> None:
    source = EnvSource("Walker2d-v5", kwargs)
    with two_sides(source, 3, 2, all_threaded=False) as (gymnasium, ours, stepper):
        assert stepper.rows == [None] * 3
        for step in range(40):
            actions = random_actions(stepper, 3, step)
            assert ours.step(actions) == gymnasium.step(actions) and ours.after == gymnasium.after


def test_a_row_that_differs_from_the_others_is_stepped_by_gymnasium() -> None:
    with two_sides(EnvSource("Swimmer-v5"), 3, 2) as (gymnasium, ours, stepper):
        for side in (gymnasium, ours):
            side.stepper.envs[1].unwrapped._ctrl_cost_weight = 5.0  # type: ignore[attr-defined]
            side.start([1])
        assert [row is None for row in stepper.rows] == [False, True, False]
        for step in range(20):
            actions = random_actions(stepper, 3, step)
            assert ours.step(actions) == gymnasium.step(actions) and ours.after == gymnasium.after


# --- threads ----------------------------------------------------------------------------------------------------------
def helpers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("physics-")]


def test_jobs_run_at_the_same_time_and_the_first_failure_is_returned() -> None:
    threads = RowThreads(3)
    barrier = threading.Barrier(3, timeout=20)
    assert threads.run([(row, barrier.wait) for row in range(3)]) is None  # passes only if three threads wait

    def fail(row: int) -> None:
        raise ValueError(str(row))

    done: list[int] = []
    for _ in range(50):
        jobs: list[Any] = [(row, lambda row=row: fail(row) if row in (7, 4) else done.append(row)) for row in range(9)]
        failure = threads.run(jobs)
        assert failure is not None and failure[0] == 4 and str(failure[1]) == "4"
    assert len(done) == 50 * 7 and threads.run([(0, lambda: done.append(9))]) is None and done[-1] == 9
    threads.close()
    threads.close()
    assert not helpers()


def test_an_exception_in_a_step_names_the_row() -> None:
    stepper = ThreadedStepper(EnvSource("HalfCheetah-v5"), 3, 2)
    try:
        side = Side(stepper, 3)
        side.start([0, 1, 2])
        row = stepper.rows[2]
        assert row is not None
        stepper.rows[2] = row._replace(physics=lambda: 1 / 0)
        with pytest.raises(RowsFailed, match="step raised ZeroDivisionError: division by zero") as caught:
            side.step(np.zeros((3, 6), np.float32))
        assert caught.value.rows == [2]
    finally:
        stepper.close()


def test_an_interrupted_step_is_not_continued_and_closes_cleanly() -> None:
    stepper = ThreadedStepper(EnvSource("HalfCheetah-v5"), 4, 3)
    side = Side(stepper, 4)
    side.start([0, 1, 2, 3])

    def interrupt() -> None:
        if threading.current_thread() is threading.main_thread():
            raise KeyboardInterrupt
        time.sleep(0.05)

    stepper.rows = [row and row._replace(physics=interrupt) for row in stepper.rows]
    with pytest.raises(KeyboardInterrupt):
        side.step(np.zeros((4, 6), np.float32))
    with pytest.raises(RuntimeError, match="cut an earlier step short"):
        stepper.states()
    with pytest.raises(RuntimeError, match="cut an earlier step short"):
        side.start([0])
    stepper.close()
    assert not helpers()


def test_threads_end_with_their_owner() -> None:
    threads: RowThreads | None = RowThreads(4)
    assert len(helpers()) == 3
    del threads
    deadline = time.monotonic() + 10
    while helpers() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not helpers()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_steps_alone() -> None:
    """Threads do not exist in the child, which must neither wait for them nor have other results."""
    with seeded(EnvSource("HalfCheetah-v5"), 0, 3) as (local, threaded):
        for envs in (local, threaded):
            envs.reset_all()
            play(envs, range(10))
        expected = play(local, range(10, 20))
        child = os.fork()
        if child == 0:
            same = play(threaded, range(10, 20)) == expected
            threaded.close()
            os._exit(0 if same else 3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert play(threaded, range(10, 20)) == expected
