"""Device, threads and workers of a run follow from its config and the machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from rl_training.algorithms.cql import CQLSettings
from rl_training.algorithms.drq import DrQSettings
from rl_training.algorithms.iql import IQLSettings
from rl_training.algorithms.sac import SACSettings
from rl_training.config.train_config import TrainConfig
from rl_training.core.checks import UserError
from rl_training.core.machine import free_memory
from rl_training.core.specs import EnvSpec, continuous, vector
from rl_training.run import capacity as storage
from rl_training.run import plan as choices
from rl_training.run.capacity import check_learner_memory, replay_capacity
from rl_training.run.validate import parse_settings

SHAPE = EnvSpec(vector(17), continuous(6))


def threads(**changes) -> int:
    config = TrainConfig("sac", "HalfCheetah-v5", total_timesteps=1000, device="cpu", **changes)
    return choices.choose_plan(config, parse_settings(config)[1], SHAPE).threads


@pytest.mark.parametrize(
    ("asked", "found"), [(None, 8), ("3", 3), ("99", 8), ("0", 8), ("-1", 8), ("many", 8), ("4,2", 8), ("", 8)]
)
def test_a_large_update_uses_the_cores_or_fewer_if_the_user_says_so(monkeypatch, asked, found) -> None:
    monkeypatch.setattr(choices, "cores", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if asked is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", asked)
    large = {"hidden_sizes": [256, 256], "batch_size": 256}
    assert threads(algo_kwargs=large) == found
    assert threads(algo_kwargs=large, threads=5) == 5
    assert threads(algo_kwargs={"hidden_sizes": [8], "batch_size": 32}) == 1


def test_mujoco_is_stepped_in_threads_unless_workers_are_given(monkeypatch) -> None:
    pytest.importorskip("mujoco")
    monkeypatch.setattr(choices, "cores", lambda: 8)

    def stepping(env_id: str, from_factory: bool = False, **changes) -> tuple[int, int]:
        config = TrainConfig("sac", env_id, total_timesteps=1000, device="cpu", num_envs=6, **changes)
        found = choices.choose_plan(config, parse_settings(config)[1], SHAPE, from_factory)
        return found.workers, found.env_threads

    assert stepping("HalfCheetah-v5") == (0, 3) and stepping("HalfCheetah-v5", seeds=(1, 2, 3)) == (0, 8)
    assert [stepping("HalfCheetah-v5", workers=count) for count in (0, 2)] == [(0, 0), (2, 0)]
    assert stepping("HalfCheetah-v5", from_factory=True) == (0, 0)
    wrapped = {"wrappers": {"action_repeat": 2}}
    assert stepping("Pendulum-v1") == stepping("HalfCheetah-v5", env_kwargs=wrapped) == (3, 0)
    monkeypatch.setattr(choices, "cores", lambda: 1)
    assert stepping("HalfCheetah-v5") == (0, 1) and stepping("Pendulum-v1") == (0, 0)


@pytest.fixture
def with_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choices, "compile_obstacle", lambda device: None)


@pytest.mark.usefixtures("with_a_compiler")
def test_compiling_is_worth_it_for_the_updates_there_will_be() -> None:
    def compiled(steps: int, **settings: int) -> bool:
        config = TrainConfig("iql", "Hopper-v5", total_timesteps=steps, device="cpu", algo_kwargs=settings)
        return choices.choose_plan(config, parse_settings(config)[1], SHAPE).compiled

    assert compiled(1_000_000) and not compiled(128)
    assert not compiled(128, offline_steps=1_000_000), "the run ends before"
    assert compiled(1_000_000, offline_steps=100)


@pytest.mark.usefixtures("with_a_compiler")
def test_a_run_that_stays_eager_shows_what_compiling_would_gain() -> None:
    def plan(steps: int, **changes: str) -> choices.ExecutionPlan:
        config = TrainConfig("dqn", "CartPole-v1", total_timesteps=steps, device="cpu", **changes)
        return choices.choose_plan(config, parse_settings(config)[1], SHAPE)

    assert plan(30_000_000).compiled and plan(30_000_000).note is None
    short = plan(10_000)
    assert not short.compiled and short.note is not None
    assert "takes about 30 s the first time and would save about" in short.note
    assert plan(1_200).note is None, "nothing worth a line"
    assert plan(10_000, compile="off").note is None


def test_a_run_is_not_compiled_where_the_compiler_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def note(device: str = "cpu") -> str:
        config = TrainConfig("dqn", "CartPole-v1", total_timesteps=30_000_000, compile="on", device="cpu")
        compiled, found = choices._choose_compile(config, parse_settings(config)[1], device, 0.0)
        assert compiled == (found is None)
        return found or ""

    monkeypatch.setattr(choices.shutil, "which", lambda name: name in ("g++", "gcc"))
    monkeypatch.setattr(choices, "spaced_place", lambda: None)
    monkeypatch.delenv("CXX", raising=False)
    assert note() == ""
    monkeypatch.setattr(choices, "spaced_place", lambda: "/my folder")
    reason = "/my folder has spaces, which torch does not quote for the C++ compiler"
    assert note() == f"compile: {reason}, training continues without"
    assert note("cuda:0") == "", "Triton quotes them"
    monkeypatch.setattr(choices.shutil, "which", lambda name: name in ("gcc", "clang++"))
    assert note().startswith("compile: no C++ compiler found (install g++)"), "Inductor calls g++ alone"
    assert note("cuda:0") == ""
    for compiler in ("", "ccache g++"):  # torch takes the variable as it is
        monkeypatch.setenv("CXX", compiler)
        assert note().startswith(f"compile: no C++ compiler found (CXX names no program: {compiler!r})")


def test_rows_that_an_algorithm_makes_of_a_batch_count(monkeypatch) -> None:
    assert CQLSettings(batch_size=8, num_cql_samples=5).network_rows == 8 * 16
    assert DrQSettings(batch_size=8, loss_augmentations=3, target_augmentations=2).network_rows == 24
    config = TrainConfig("cql", "Pendulum-v1", total_timesteps=10)
    monkeypatch.setattr(storage, "free_memory", lambda: 10**8)
    with pytest.raises(UserError, match=r"batches of 768256 rows, 1 seed, need .* GiB; 0.1 GiB are free"):
        check_learner_memory(1000, config, CQLSettings(num_cql_samples=1000), SHAPE, "cpu")
    check_learner_memory(1000, config, CQLSettings(num_cql_samples=10), SHAPE, "cpu")


def test_environments_that_cannot_fit_are_rejected_before_they_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "free_memory", lambda: 10**9)
    config = TrainConfig("sac", "Pendulum-v1", total_timesteps=10, num_envs=10**6, seeds=(1, 2))
    with pytest.raises(UserError, match=r"num_envs 1000000, 2 seeds, need at least 1.9 GiB; 0.9 GiB are free"):
        storage.check_data_memory(config, SACSettings(), SHAPE, "cpu")


def test_a_replay_is_as_large_as_what_can_arrive() -> None:
    config = TrainConfig("iql", "Pendulum-v1", total_timesteps=1000, num_envs=3)
    assert replay_capacity(config, SACSettings()) == 1002
    assert replay_capacity(config, IQLSettings(offline_steps=900)) == 102
    assert replay_capacity(config, IQLSettings(offline_steps=1000)) == 3
    assert replay_capacity(config, SACSettings(buffer_capacity=500)) == 498


@pytest.mark.parametrize(
    ("cgroup", "files", "expected"),
    [
        ("0::/", {"memory.max": "max"}, 4000 * 1024),
        ("0::/", {"memory.max": "3000000", "memory.current": "1000000"}, 2000000),
        ("0::/", {"memory.max": "3000000", "memory.current": "1000000", "memory.stat": "a 1\ninactive_file 500\n"},
         2000500),
        ("0::/a/b", {"a/memory.max": "900", "a/memory.current": "1000", "memory.max": "max"}, 0),
        ("1:cpu:/x\n4:cpu,memory:/x", {"memory/memory.limit_in_bytes": "2000", "memory/memory.usage_in_bytes": "500"},
         1500),
    ],
)  # fmt: skip
def test_a_container_may_have_less_than_the_machine(cgroup, files, expected, tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9 kB\nMemAvailable:    4000 kB\n")
    (tmp_path / "proc/self/cgroup").write_text(cgroup)
    for name, text in files.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    assert free_memory(tmp_path) == expected
    assert free_memory(tmp_path / "nowhere") == 1 << 62


def test_a_study_limits_the_cores_of_its_runs(monkeypatch) -> None:
    found = choices.cores()
    for limit, wanted in (("1", 1), ("10000", found), ("", found), ("many", found)):
        monkeypatch.setenv("RL_TRAINING_CORES", limit)
        assert choices.cores() == wanted
