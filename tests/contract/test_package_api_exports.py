"""Every name that callers rely on follows from the registry: exports, managed classes, trainers."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import json
import os
import pickle
import pydoc
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import rl_training
from rl_training import api
from rl_training.algorithms import registry
from rl_training.algorithms.registry import ALGORITHMS, SHARED_TRAINERS, algorithm_names, learner_class
from rl_training.api import algorithms as managed_classes
from rl_training.run.algorithm_spec import get_algorithm_spec, list_algorithm_specs

PACKAGE = Path(rl_training.__file__).parent


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_every_algorithm_is_reachable_under_every_name(algo: str) -> None:
    cls = learner_class(algo)
    assert cls.name == algo
    managed = getattr(rl_training, cls.__name__)
    assert managed is getattr(api, cls.__name__) is getattr(managed_classes, cls.__name__) is api.managed_class(algo)
    assert managed.algo_name == algo
    learners = importlib.import_module("rl_training.algorithms")
    assert getattr(learners, cls.__name__) is cls
    own = vars(importlib.import_module(cls.__module__)).get(f"{algo}_loss")
    assert getattr(learners, f"{algo}_loss", None) is own
    spec = get_algorithm_spec(algo)
    assert (spec.name, spec.learner) == (algo, cls)
    assert callable(spec.train_fn) and callable(spec.evaluate_fn) and callable(spec.predict_fn)


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_a_managed_class_is_as_if_written_in_its_module(algo: str) -> None:
    cls = api.managed_class(algo)
    assert repr(cls) == f"<class 'rl_training.api.algorithms.{cls.__name__}'>"
    assert pickle.loads(pickle.dumps(cls)) is cls
    assert cls.__doc__ is not None and cls.__doc__.startswith(f"{learner_class(algo).title}.\n")
    assert cls.__doc__ in pydoc.plain(pydoc.render_doc(cls)).replace("\n |  ", "\n").replace("\n |", "\n")
    assert issubclass(cls, rl_training.ManagedAlgorithm)


def test_threads_get_the_same_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(managed_classes, "_classes", {})
    with ThreadPoolExecutor(8) as pool:
        assert len(set(pool.map(lambda _: api.managed_class("sac"), range(64)))) == 1


@pytest.mark.parametrize("algo", ALGORITHMS)
def test_every_algorithm_has_a_trainer_module(algo: str) -> None:
    name = f"rl_training.runtime.{algo}_trainer"
    module = importlib.import_module(name)
    train = getattr(module, f"train_{algo}")
    assert importlib.util.find_spec(name) is module.__spec__ and algo in (module.__doc__ or "")
    assert (train.__module__, train.__qualname__) == (name, f"train_{algo}")
    assert pickle.loads(pickle.dumps(train)) is train


def test_a_trainer_of_no_algorithm_is_not_found() -> None:
    for name in ("ssac_trainer", "sac_trainers", "_trainer", "nothing"):
        with pytest.raises(ModuleNotFoundError, match=rf"No module named 'rl_training\.runtime\.{name}'"):
            importlib.import_module(f"rl_training.runtime.{name}")


def test_shared_trainers_are_of_registered_algorithms() -> None:
    for algo, others in SHARED_TRAINERS.items():
        assert {algo, *others} <= set(ALGORITHMS)
        assert all(issubclass(learner_class(other), learner_class(algo)) for other in others)


def test_the_listing_is_the_registry() -> None:
    assert [spec.name for spec in list_algorithm_specs()] == list(algorithm_names())
    assert set(ALGORITHMS) <= set(algorithm_names())


def test_unknown_names_are_rejected_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"algo must be one of .*, got 'sacc'; did you mean sac\?"):
        get_algorithm_spec("sacc")
    for module in (rl_training, api, managed_classes, importlib.import_module("rl_training.algorithms")):
        with pytest.raises(AttributeError, match=rf"module '{module.__name__}' has no attribute 'Nothing'"):
            module.Nothing  # noqa: B018


@pytest.mark.parametrize("name", ["", ".api", ".api.algorithms", ".algorithms", ".data"])
def test_exports_are_what_all_and_dir_list(name: str) -> None:
    module = importlib.import_module(f"rl_training{name}")
    for exported in module.__all__:
        assert getattr(module, exported) is not None
    assert set(module.__all__) <= set(dir(module))
    starred: dict[str, object] = {}
    exec(f"from {module.__name__} import *", starred)
    assert set(module.__all__) <= set(starred)


def test_the_loss_functions_are_exported() -> None:
    exported = importlib.import_module("rl_training.algorithms").__all__
    assert {f"{algo}_loss" for algo in ("dqn", "sac", "tqc", "redq", "iql", "cql", "drq", "drqv2")} <= set(exported)


def test_the_config_is_exported() -> None:
    from rl_training.config.train_config import TrainConfig

    assert rl_training.TrainConfig is TrainConfig


def test_an_algorithm_of_an_installed_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """Registered by an entry point, it has a managed class and a trainer like any other."""
    learner = type("Mine", (learner_class("td3"),), {"name": "mine", "title": "My own", "__module__": __name__})
    monkeypatch.setattr(sys.modules[__name__], "Mine", learner, raising=False)
    point = importlib.metadata.EntryPoint("mine", f"{__name__}:Mine", registry.ENTRY_POINT_GROUP)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [point])
    assert algorithm_names()[-1] == "mine"
    cls = api.managed_class("mine")
    assert cls("Pendulum-v1").config.algo == "mine" and pickle.loads(pickle.dumps(cls)) is cls
    module = importlib.import_module("rl_training.runtime.mine_trainer")
    assert module.train_mine.__doc__ == "Train a new run of `mine`."
    monkeypatch.delitem(sys.modules, "rl_training.runtime.mine_trainer")


NEW_ALGORITHM = """
from rl_training.algorithms.td3 import TD3

class Newest(TD3):
    name = "newest"
    title = "The newest algorithm"

def newest_loss(values):
    return values
"""
USE_IT = """
import json, pickle, sys
import rl_training
assert rl_training.Newest is rl_training.api.Newest and pickle.loads(pickle.dumps(rl_training.Newest))
from rl_training.algorithms import Newest, newest_loss
from rl_training.runtime.newest_trainer import train_newest
from rl_training.cli import main
agent = rl_training.Newest("Pendulum-v1", total_timesteps=20, eval_episodes=0, output_dir=sys.argv[1])
agent.learn(show_progress=False)
sys.exit(main(["list", "--json"]))
"""


@pytest.mark.sweep
def test_a_new_algorithm_is_one_line_in_the_registry(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "rl_training", ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "rl_training/algorithms/newest.py").write_text(NEW_ALGORITHM)
    lines = (tmp_path / "rl_training/algorithms/registry.py").read_text().splitlines(keepends=True)
    last = max(number for number, line in enumerate(lines) if line.startswith('    "td3_bc":'))
    lines.insert(last + 1, '    "newest": "rl_training.algorithms.newest:Newest",\n')
    (tmp_path / "rl_training/algorithms/registry.py").write_text("".join(lines))
    answer = subprocess.run(
        [sys.executable, "-c", USE_IT, str(tmp_path / "runs")], env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    listed = json.loads(answer.stdout)["algorithms"]
    assert [one["title"] for one in listed if one["name"] == "newest"] == ["The newest algorithm"]
