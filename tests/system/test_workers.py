"""Environments in worker processes: the same numbers as in one process, clear failures, nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.classic_control import CartPoleEnv

from rl_training.core.rng import stream
from rl_training.envs.host.factory import EnvSource
from rl_training.envs.host.stepping import LocalStepper
from rl_training.envs.host.vector import EnvironmentFailure, SeededEnvs
from rl_training.envs.host.workers import WorkerStepper, choose_workers

# Importable by its name, so that a worker can build what it registers. Episodes whose seed is a multiple of 4 go wrong.
ODD_ENVS = """
    import os, sys, time
    import gymnasium as gym
    from gymnasium.envs.classic_control import CartPoleEnv

    class Odd(CartPoleEnv):
        def __init__(self, what, at, **kwargs):
            super().__init__(**kwargs)
            self.what, self.at = what, at

        def step(self, action):
            self.taken += 1
            if self.what == "print":
                print("printed by Python")
                os.write(1, b"printed by C\\n")
                sys.stdin.read()
            if self.taken == self.at and self.unlucky:
                if self.what == "raise":
                    raise ValueError("the pole fell off")
                if self.what == "exit":
                    sys.exit(3)
                if self.what == "hang":
                    time.sleep(60)
            return super().step(action)

        def reset(self, seed=None, options=None):
            self.taken, self.unlucky = 0, seed is not None and seed % 4 == 0
            return super().reset(seed=seed)

    gym.register("Odd-v0", Odd, max_episode_steps=30)
"""
SEEDS = (3, 4, 5, 6, 7)
# The first half, which this process steps itself, goes well; the worker's half goes wrong.
ODD_SEEDS = (2, 3, 4, 5, 6, 9)


@pytest.fixture
def make() -> Iterator[Callable[..., SeededEnvs]]:
    made: list[SeededEnvs] = []

    def build(
        env_id: str, workers: int, seeds: tuple[int, ...] = SEEDS, num_envs: int = 1, **kwargs: Any
    ) -> SeededEnvs:
        made.append(SeededEnvs(EnvSource(env_id, kwargs), seeds, num_envs, workers=workers))
        return made[-1]

    yield build
    for envs in made:
        envs.close()


@pytest.fixture
def odd_envs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "odd_envs.py").write_text(textwrap.dedent(ODD_ENVS))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "odd_envs:Odd-v0"
    sys.modules.pop("odd_envs", None)
    gym.registry.pop("Odd-v0", None)


def pids_of(envs: SeededEnvs) -> list[int]:
    assert isinstance(envs.stepper, WorkerStepper), envs.note
    return [worker.process.pid for worker in envs.stepper.workers]


def random_actions(envs: SeededEnvs, step: int) -> np.ndarray:
    rng = stream(0, "explore", step)
    if envs.action.spec.kind == "discrete":
        return rng.integers(envs.action.spec.size, size=envs.size)
    return rng.uniform(-1, 1, (envs.size, envs.action.spec.size)).astype(np.float32)


def play(envs: SeededEnvs, steps: range) -> list[bytes]:
    trace = []
    for step in steps:
        envs.step(random_actions(envs, step))
        results = (envs.obs, envs.next_obs, envs.rewards, envs.terminated, envs.truncated)
        trace.append(b"".join(array.tobytes() for array in results))
        envs.advance()
    return trace


def equal(one: dict[str, Any], other: dict[str, Any]) -> bool:
    same_actions = all(np.array_equal(a, b) for a, b in zip(one["actions"], other["actions"], strict=True))
    return one["episodes"] == other["episodes"] and same_actions and one["obs"].tobytes() == other["obs"].tobytes()


def gone(pid: int, seconds: float = 5.0) -> bool:
    """Ended, if not yet reaped: in a container nobody may reap orphans."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
            state = Path(f"/proc/{pid}/stat")
            if state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.02)
    return False


@pytest.mark.parametrize(
    ("env_id", "kwargs"),
    [
        ("CartPole-v1", {}),
        ("Pendulum-v1", {"max_episode_steps": 60}),
        ("HalfCheetah-v5", {"max_episode_steps": 70, "reset_noise_scale": 0.2}),
    ],
)
def test_workers_give_the_same_bits_and_snapshots_move_between_kinds(
    make: Callable[..., SeededEnvs], env_id: str, kwargs: dict[str, Any]
) -> None:
    if env_id.startswith("HalfCheetah"):
        pytest.importorskip("mujoco")
    local, shared = make(env_id, 0, **kwargs), make(env_id, 2, **kwargs)
    assert isinstance(local.stepper, LocalStepper) and len(pids_of(shared)) == 1  # this process is the other one
    for envs in (local, shared):
        envs.reset_all()
    assert play(local, range(203)) == play(shared, range(203))
    assert max(local.episodes) > 0 and any(local.logs)
    snapshot = local.snapshot()
    assert equal(snapshot, shared.snapshot())
    expected = play(local, range(203, 230))

    moved = make(env_id, 3, **kwargs)
    assert moved.restore(snapshot)
    assert equal(moved.snapshot(), snapshot)
    assert play(moved, range(203, 230)) == expected
    assert local.restore(moved.snapshot()) and equal(local.snapshot(), moved.snapshot())


def test_a_snapshot_that_does_not_come_back_starts_the_next_episode(make: Callable[..., SeededEnvs]) -> None:
    local, shared = make("CartPole-v1", 0), make("CartPole-v1", 2)
    local.reset_all()
    play(local, range(7))
    snapshot = local.snapshot()
    snapshot["obs"][[1, 4]] += 1
    assert not local.restore(snapshot) and not shared.restore(snapshot)
    assert shared.episodes == [0, 1, 0, 0, 1] and equal(local.snapshot(), shared.snapshot())


def test_finished_rows_are_left_alone(make: Callable[..., SeededEnvs]) -> None:
    local, shared = make("CartPole-v1", 0, num_envs=2), make("CartPole-v1", 3, num_envs=2)
    for envs in (local, shared):
        envs.reset_all()
        active = np.ones(envs.size, np.bool_)
        while active.any():
            envs.step(random_actions(envs, 0), active)
            active &= ~(envs.terminated | envs.truncated)
    for name in ("obs", "next_obs", "rewards", "terminated", "truncated"):
        assert np.array_equal(getattr(local, name), getattr(shared, name))
    assert [len(log) for log in local.logs] == [len(log) for log in shared.logs]


def test_images_larger_than_a_pipe(make: Callable[..., SeededEnvs], tmp_path: Path, monkeypatch: Any) -> None:
    program = """
        import gymnasium as gym, numpy as np
        class Pictures(gym.Env):
            observation_space = gym.spaces.Box(0, 255, (200, 200, 3), np.uint8)
            action_space = gym.spaces.Discrete(3, start=-1)
            def reset(self, seed=None, options=None):
                super().reset(seed=seed)
                return self.observation_space.low + np.uint8(seed % 256), {}
            def step(self, action):
                return self.np_random.integers(0, 256, (200, 200, 3), np.uint8), float(action), False, False, {}
        gym.register("Pictures-v0", lambda: Pictures())
    """
    (tmp_path / "picture_envs.py").write_text(textwrap.dedent(program))
    monkeypatch.syspath_prepend(str(tmp_path))
    local, shared = make("picture_envs:Pictures-v0", 0), make("picture_envs:Pictures-v0", 2)
    for envs in (local, shared):
        envs.reset_all()
    assert pids_of(shared) and play(local, range(5)) == play(shared, range(5))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc")
def test_closing_leaves_no_descriptor_open(make: Callable[..., SeededEnvs]) -> None:
    make("CartPole-v1", workers=2).close()  # what is opened once for the whole process
    before = os.listdir("/proc/self/fd")
    envs = make("CartPole-v1", workers=3)
    assert len(pids_of(envs)) == 2
    envs.close()
    assert len(os.listdir("/proc/self/fd")) == len(before)


def test_what_an_environment_prints_does_no_harm(
    make: Callable[..., SeededEnvs], odd_envs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", open(os.devnull))  # noqa: SIM115 (the rows of this process read it too)
    local, shared = make(odd_envs, 0, what="print", at=0), make(odd_envs, 2, what="print", at=0)
    for envs in (local, shared):
        envs.reset_all()
    assert pids_of(shared) and play(local, range(40)) == play(shared, range(40))


@pytest.mark.parametrize("replaying", [False, True])
def test_an_exception_carries_the_same_report(make: Callable[..., SeededEnvs], odd_envs: str, replaying: bool) -> None:
    sane = make(odd_envs, 0, ODD_SEEDS, what="nothing", at=0)
    sane.reset_all()
    snapshot = sane.snapshot()
    snapshot["actions"] = [np.tile([0, 1], 6) for _ in ODD_SEEDS]
    failures = []
    for workers in (0, 2):
        envs = make(odd_envs, workers, ODD_SEEDS, what="raise", at=9)
        envs.reset_all()
        with pytest.raises(EnvironmentFailure) as caught:
            if replaying:
                envs.restore(snapshot)
            for step in range(12):
                envs.step(np.full(envs.size, step % 2))
        failures.append(caught.value)
        assert len(envs.logs[0]) == (12 if replaying else 9)
    local, shared = failures
    assert str(local) == str(shared) and local.report == shared.report
    assert str(shared).startswith(
        "environment 0 of seed 5, episode 0, step 9: step raised ValueError: the pole fell off"
    )
    assert shared.report["actions"] == [0, 1, 0, 1, 0, 1, 0, 1, 0] and shared.report["reset_seed"] % 4 == 0
    assert isinstance(local.__cause__, ValueError)
    assert 'raise ValueError("the pole fell off")' in str(shared.__cause__)  # where in the worker it was


def test_a_killed_worker_is_named(make: Callable[..., SeededEnvs]) -> None:
    envs = make("CartPole-v1", 2, (3, 4), num_envs=2)
    envs.reset_all()
    envs.step(random_actions(envs, 0))
    os.kill(pids_of(envs)[0], signal.SIGKILL)
    with pytest.raises(
        EnvironmentFailure, match=r"environment 0 of seed 4; environment 1 of seed 4: .*SIGKILL"
    ) as caught:
        for step in (1, 2):
            envs.step(random_actions(envs, step))
    report = caught.value.report
    assert report["exit_code"] == -9 and [part["env_index"] for part in report["environments"]] == [0, 1]
    assert [part["reset_seed"] for part in report["environments"]] == [envs.episode_seed(2), envs.episode_seed(3)]
    assert all(len(part["actions"]) >= 2 for part in report["environments"])


@pytest.mark.parametrize(("what", "message", "code"), [("exit", "exit code 3", 3), ("hang", "no answer for 0.5 s", -9)])
def test_a_worker_that_ends_or_hangs_is_named(
    make: Callable[..., SeededEnvs], odd_envs: str, what: str, message: str, code: int
) -> None:
    envs = make(odd_envs, 2, ODD_SEEDS, what=what, at=2)
    assert isinstance(envs.stepper, WorkerStepper)
    envs.stepper.workers[0].timeout = 0.5
    envs.reset_all()
    with pytest.raises(EnvironmentFailure, match=message) as caught:
        for _ in range(2):
            envs.step(np.zeros(envs.size, np.int64))
    assert caught.value.report["exit_code"] == code


def test_signals_to_the_group_or_the_worker_do_not_end_it(make: Callable[..., SeededEnvs]) -> None:
    program = """
        import os, signal, numpy as np
        from rl_training.envs.host.factory import EnvSource
        from rl_training.envs.host.vector import SeededEnvs
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: print("parent heard", flush=True))
        envs = SeededEnvs(EnvSource("CartPole-v1"), range(4), 1, workers=2)
        envs.reset_all()
        os.killpg(os.getpgid(0), signal.SIGINT)
        for pid in [worker.process.pid for worker in envs.stepper.workers]:
            os.kill(pid, signal.SIGINT)
            os.kill(pid, signal.SIGTERM)
        for _ in range(50):
            envs.step(np.zeros(4, np.int64))
            envs.advance()
        envs.close()
        print("finished")
    """
    output = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], env=child_environment(), start_new_session=True,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (output.returncode, output.stdout.split("\n")) == (0, ["parent heard", "finished", ""]), output.stderr


def child_environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def test_workers_end_with_close_and_with_a_killed_parent(make: Callable[..., SeededEnvs]) -> None:
    envs = make("CartPole-v1", 3)
    pids = pids_of(envs)
    started = time.monotonic()
    envs.close()
    assert len(pids) == 2 and all(gone(pid, 0.5) for pid in pids) and time.monotonic() - started < 3
    envs.close()

    program = """
        import time
        from rl_training.envs.host.factory import EnvSource
        from rl_training.envs.host.vector import SeededEnvs
        envs = SeededEnvs(EnvSource("CartPole-v1"), range(6), 1, workers=3)
        print(*(worker.process.pid for worker in envs.stepper.workers), flush=True)
        time.sleep(60)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=child_environment(), text=True) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        parent.kill()
    assert len(pids) == 2 and all(gone(pid) for pid in pids)


def test_what_workers_cannot_build_runs_in_this_process(make: Callable[..., SeededEnvs]) -> None:
    gym.register("OnlyHere-v0", CartPoleEnv)
    original = gym.registry["CartPole-v1"]
    try:
        unknown = make("OnlyHere-v0", 2)
        gym.register("CartPole-v1", CartPoleEnv, max_episode_steps=11)
        other = make("CartPole-v1", 2)
    finally:
        del gym.registry["OnlyHere-v0"]
        gym.registry["CartPole-v1"] = original
    lock = threading.Lock()
    factory = SeededEnvs(EnvSource("mine", factory=lambda: lock and CartPoleEnv()), SEEDS, 1, workers=2)
    array = make("CartPole-v1", 2, sutton_barto_reward=np.bool_(True))
    one = make("CartPole-v1", 1)
    reasons = ("OnlyHere", "differently", "factory", "JSON")
    for envs, reason in zip((unknown, other, factory, array), reasons, strict=True):
        assert isinstance(envs.stepper, LocalStepper) and envs.note is not None and reason in envs.note
        envs.reset_all()
        play(envs, range(3))
    assert isinstance(one.stepper, LocalStepper) and one.note is None
    factory.close()


SCRIPT = """
import gymnasium as gym
from rl_training.envs.host.factory import EnvSource
from rl_training.envs.host.vector import SeededEnvs

class Mine(gym.Wrapper):
    def reset(self, **options):
        obs, info = super().reset(**options)
        return obs + LIMIT, info

LIMIT = 7
source = EnvSource("mine", factory=lambda **kwargs: Mine(gym.make("CartPole-v1", **kwargs)))
envs = SeededEnvs(source, [0], 4, workers=2)
envs.reset_all()
print(type(envs.stepper).__name__, envs.note, bool((abs(envs.obs - LIMIT) < 0.1).all()))
envs.close()
"""


def test_a_factory_of_a_script_is_sent_to_workers(tmp_path: Path) -> None:
    """By value, with what it uses of the script: no guard is needed, and the script is not imported."""
    (tmp_path / "script.py").write_text(SCRIPT)
    answer = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env=child_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.stdout == "WorkerStepper None True\n", answer.stderr


def test_workers_start_without_torch() -> None:
    check = "import sys, rl_training.envs.host.worker; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], env=child_environment(), check=False).returncode == 0


def test_how_many_workers() -> None:
    assert [choose_workers(total, 8) for total in (1, 3, 4, 5, 16, 64)] == [0, 0, 2, 2, 8, 8]
    assert choose_workers(64, 1) == 0 and choose_workers(16, 2) == 2
