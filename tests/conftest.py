"""What every test shares: one thread, no screen, and a config that trains any registry entry in about a second."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import rl_training  # noqa: F401  before numpy and torch: it chooses how they round

os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # before anything imports pygame
os.environ.setdefault("OMP_NUM_THREADS", "1")  # of runs that choose, and of programs: the tests have every core busy
# One folder for every version of the source: torch's own keys have the program.
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(Path("~/.cache/rl_training-tests").expanduser()))

# Applied where the algorithm has a setting of that name: a new algorithm needs no edit here.
SMALL_SETTINGS: dict[str, Any] = {
    "actor_hidden_sizes": (16,),
    "batch_size": 8,
    "buffer_capacity": 64,  # below the 120 steps, so that the ring wraps
    "critic_hidden_sizes": (16,),
    "dataset_kind": "random",
    "dataset_size": 64,
    "epochs": 2,
    "features_dim": 8,
    "gradient_updates_per_step": 1,
    "hidden_sizes": (16, 16),
    "learning_starts": 20,
    "num_atoms": 11,
    "num_cql_samples": 2,
    "num_quantiles": 7,
    "recurrent_size": 8,
    "rollout_steps": 20,
    "sequence_length": 5,
    "target_update_interval": 10,
    "train_frequency": 1,
}
SWEEP_ONLY = Path(__file__).parent / "sweep_only.txt"
ONE_OF_A_KIND = ("rainbow_dqn", "tqc", "iql", "drq", "ppo")


def settings_of(algo: str, *wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Of several mappings, a later one first, the settings that the algorithm has."""
    from rl_training.algorithms.registry import learner_class

    names = {field.name for field in dataclasses.fields(learner_class(algo).settings_type) if field.init}
    merged = {name: value for mapping in wanted for name, value in mapping.items()}
    return {name: value for name, value in merged.items() if name in names}


@pytest.hookimpl(tryfirst=True)  # before pytest deselects by marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the tests of `sweep_only.txt` to the sweep: they take seconds, and cheaper ones show much of the same."""
    listed = set(SWEEP_ONLY.read_text(encoding="utf-8").splitlines())
    for item in items:
        if item.nodeid in listed:
            item.add_marker(pytest.mark.sweep)
    # Of files that are skipped here nothing is known, and parameters may depend on the machine.
    files, functions = {_file(item.nodeid) for item in items}, {_function(item.nodeid) for item in items}
    unknown = sorted(one for one in listed if _file(one) in files and _function(one) not in functions)
    if unknown and [config.rootpath / path for path in config.args] == [config.rootpath / "tests"]:
        raise pytest.UsageError(f"tests/sweep_only.txt names tests that do not exist: {', '.join(unknown)}")


def _file(nodeid: str) -> str:
    return nodeid.partition("::")[0]


def _function(nodeid: str) -> str:
    return nodeid.partition("[")[0]



def one_of_a_kind(*kept: str, among: Iterable[str] = ()) -> list[Any]:
    """Every algorithm, but most of them only in the sweep: for proofs that do not depend on the algorithm."""
    from rl_training.algorithms.registry import algorithm_names

    names, default = list(among) or list(algorithm_names()), kept or ONE_OF_A_KIND
    assert set(kept) <= set(names) and set(default) & set(names), f"{default} are kept, of {names}"
    return [pytest.param(name, marks=() if name in default else pytest.mark.sweep) for name in names]


PIXELS = {"pixels": {"resize_shape": [15, 16], "frame_stack": 2, "channel_first": True}}  # DrQ's smallest


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Two busy threads on a shared machine are slower than one, and a run sets the process's number of threads."""
    import torch

    torch.set_num_threads(1)
    yield
    torch.set_num_threads(1)


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, however the tests were started: a shell's background job ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def small_env(cls: Any) -> tuple[str, dict[str, Any]]:
    """Where an algorithm of this kind trains in about a second: an id and `env_kwargs`."""
    from image_envs import CONTINUOUS_DOT, DISCRETE_DOT  # importing it registers them

    if cls.observations == ("image",):
        env_id = DISCRETE_DOT if ("discrete" in cls.actions) else CONTINUOUS_DOT
        return env_id, {"render_mode": "rgb_array", "wrappers": PIXELS}
    if "discrete" in cls.actions:
        return "CartPole-v1", {}
    return "Pendulum-v1", {"max_episode_steps": 50}  # a quarter of the steps of every evaluation


def make_quick_config(algo: str, tmp_path: Path, algo_kwargs: dict[str, Any] | None = None, **changes: Any) -> Any:
    from rl_training.algorithms.registry import learner_class
    from rl_training.config.train_config import TrainConfig

    cls = learner_class(algo)
    settings = settings_of(algo, SMALL_SETTINGS)
    env_id, env_kwargs = small_env(cls)
    if "env_id" in changes:  # of which nothing is known
        env_kwargs.pop("max_episode_steps", None)
    values: dict[str, Any] = {
        "algo": algo,
        "env_id": env_id,
        "env_kwargs": env_kwargs,
        "total_timesteps": 120,
        "output_dir": tmp_path,
        "device": "cpu",
        "eval_episodes": 1,
        "eval_interval": 60,
        "log_interval": 20,
        "checkpoint_interval": 50,
        "compile": "off",
        "threads": 1,
        "video": False,
        "report": False,
    }
    return TrainConfig(**{**values, **changes, "algo_kwargs": {**settings, **(algo_kwargs or {})}})


@pytest.fixture
def quick_config() -> Callable[..., Any]:
    """`quick_config(algo, tmp_path, algo_kwargs={...}, **changes) -> TrainConfig`."""
    return make_quick_config


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Any]]:
    """`finished_run(algo)`: the result of a quick run that all tests share. Look at it, or change a copy."""
    from rl_training.run.run import train

    made: dict[str, tuple[Any, dict[str, bytes]]] = {}

    def run(algo: str) -> Any:
        if algo not in made:
            result = train(make_quick_config(algo, tmp_path_factory.mktemp("finished")), show_progress=False)
            made[algo] = result, files_in(result.run_dir)
        return made[algo][0]

    yield run
    for algo, (result, before) in made.items():
        assert files_in(result.run_dir) == before, f"a test has changed the shared run of {algo}"


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="session")
def forks() -> Iterator[Any]:
    """A warm process that forks for every command line: its imports are made once."""
    from resume_harness import Forks

    server = Forks()
    yield server
    server.close()


@pytest.fixture(scope="session")
def whole_run(forks: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """`whole_run(algo, family)`: the uninterrupted run that cut ones are compared with, made once."""
    from resume_harness import PACKAGES, make_config

    made: dict[tuple[str, str], Path] = {}

    def run(algo: str, family: str = "classic") -> Path:
        pytest.importorskip(PACKAGES.get(family, "gymnasium"))
        if (algo, family) not in made:
            made[algo, family] = forks.train(make_config(algo, family), tmp_path_factory.mktemp("whole"))
        return made[algo, family]

    return run
