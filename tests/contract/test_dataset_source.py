"""Which data an offline run learns from: naming a file or an agent is enough, whatever the config says before it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

from rl_training import BC, IQL
from rl_training.algorithms.iql import IQLSettings
from rl_training.checkpoint.read import load_checkpoint
from rl_training.cli import load_config, main
from rl_training.core.checks import UserError
from rl_training.data.datasets.conversion import load_data
from rl_training.data.datasets.formats.writing import save_transitions
from rl_training.data.datasets.generate import record_random
from rl_training.envs.host.factory import EnvSource
from rl_training.run.loading import default_config
from rl_training.run.validate import parse_settings, with_task_defaults

SMALL = ["--total-timesteps", "4", "--set", "batch_size=8", "--set", "hidden_sizes=[8]", "--set", "threads=1",
         "--set", "video=false", "--set", "report=false", "--set", "compile=off", "--quiet", "--json"]  # fmt: skip


def recorded(env_id: str, folder: Path) -> str:
    return str(save_transitions(record_random(EnvSource(env_id), 64, seed=0), folder / "data.npz"))


def source_of(*sets: str, algo: str = "iql", env_id: str = "Pendulum-v1") -> tuple[Any, ...]:
    settings: Any = parse_settings(default_config(algo, env_id, sets))[1]
    return settings.dataset_kind, settings.dataset_path and settings.dataset_path.name, settings.dataset_agent


def test_a_dataset_path_alone_trains_from_the_file(tmp_path: Path, capsys) -> None:
    """Walker2d has no packaged config, Pendulum has one with a recipe: from both the file is taken."""
    pytest.importorskip("mujoco")
    for algo, env_id in (("td3_bc", "Walker2d-v5"), ("iql", "Pendulum-v1")):
        (tmp_path / algo).mkdir()
        path = recorded(env_id, tmp_path / algo)
        words = [algo, env_id, "--set", f"algo_kwargs.dataset_path={path}", "--eval-episodes", "0", *SMALL]
        assert main(["train", *words, "--output-dir", str(tmp_path / "runs")]) == 0
        state = load_checkpoint(Path(json.loads(capsys.readouterr().out)["checkpoint_path"])).state
        assert (state["dataset"]["sha256"], state["dataset"]["transitions"]) == (load_data(path).sha256(), 64)
        kept = {name: state["config"]["algo_kwargs"][name] for name in ("dataset_kind", "dataset_agent")}
        assert kept == {"dataset_kind": "file", "dataset_agent": None}


def test_a_dataset_path_alone_in_python(tmp_path: Path) -> None:
    path, small = recorded("Pendulum-v1", tmp_path), {"batch_size": 8, "hidden_sizes": (8,), "eval_episodes": 0}
    agent = IQL("Pendulum-v1", dataset_path=path, total_timesteps=3, output_dir=tmp_path, video=False, **small)
    agent.learn(show_progress=False)
    assert agent.config.algo_kwargs["dataset_kind"] == "file"
    assert IQL("Pendulum-v1", algo_kwargs={"dataset_path": path}).config.algo_kwargs["dataset_path"] == path
    made = IQL("Pendulum-v1", dataset_size=20, total_timesteps=2, output_dir=tmp_path, video=False, **small)
    loaded = IQL.load(made.learn(show_progress=False).save(tmp_path / "agent"), dataset_path=path)  # its was a recipe
    assert IQLSettings(**loaded.config.algo_kwargs).dataset_kind == "file"
    assert IQLSettings(dataset_agent="a").dataset_kind == "policy"
    assert IQLSettings().dataset_kind == "random"


@pytest.mark.parametrize("algo", ["bc", "iql", "cql", "td3_bc"])
def test_the_command_line_replaces_the_data_of_the_packaged_config(algo: str) -> None:
    packaged = Path("agents/pendulum.safetensors")
    assert source_of(algo=algo) == ("policy", None, packaged)
    assert source_of("algo_kwargs.dataset_path=x.npz", algo=algo) == ("file", "x.npz", None)
    assert source_of("dataset_agent=mine", algo=algo) == ("policy", None, Path("mine"))
    assert source_of("dataset_kind=random", algo=algo) == ("random", None, None)
    assert source_of("dataset_agent=null", algo=algo) == ("random", None, None)
    assert source_of("dataset_agent=mine", algo=algo, env_id="Hopper-v5") == ("policy", None, Path("mine"))
    assert source_of("dataset_path=null", algo=algo, env_id="Hopper-v5") == ("random", None, None)
    assert source_of("dataset_kind=policy", algo=algo) == ("policy", None, packaged)


def test_a_file_takes_the_recipe_along_and_an_agent_keeps_it() -> None:
    config = default_config("iql", "Pendulum-v1", ["dataset_path=x.npz"])
    assert not {"dataset_size", "dataset_noise", "dataset_agent"} & set(config.algo_kwargs)
    assert config.algo_kwargs["learning_rate"] == 1e-3  # nothing else gives way
    config = default_config("iql", "Pendulum-v1", ["dataset_agent=mine"])
    assert (config.algo_kwargs["dataset_size"], config.algo_kwargs["dataset_noise"]) == (10000, 0.3)


def test_the_resolved_config_of_one_source_takes_another(tmp_path: Path) -> None:
    from rl_training.config.yaml_loading import dump_yaml

    resolved = with_task_defaults(default_config("iql", "Pendulum-v1"))[0]
    (tmp_path / "config.yaml").write_text(dump_yaml(resolved.to_dict()))
    settings: Any = parse_settings(load_config(tmp_path / "config.yaml", ["dataset_path=x.npz"]))[1]
    assert (settings.dataset_kind, settings.dataset_agent) == ("file", None)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("dataset_kind=random", "dataset_path=x.npz"), "dataset_kind must be file when dataset_path is given"),
        (("dataset_kind=file", "dataset_agent=a"), "dataset_path must be given when dataset_kind is file"),
        (("dataset_path=x.npz", "dataset_agent=a"), "dataset_agent must be left out where dataset_path is given"),
        (("dataset_kind=file",), "dataset_path must be given when dataset_kind is file"),
    ],
)
def test_a_contradiction_in_one_place_is_rejected(given: tuple[str, ...], message: str, tmp_path: Path, capsys) -> None:
    words = [word for one in given for word in ("--set", one)]
    assert main(["train", "iql", "Pendulum-v1", *words]) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1
    file = tmp_path / "config.yaml"
    lines = "".join(f"  {one.replace('=', ': ')}\n" for one in given)
    file.write_text(f"algo: iql\nenv_id: Pendulum-v1\nalgo_kwargs:\n{lines}")
    with pytest.raises(UserError, match=message):
        load_config(file)


def test_a_data_file_needs_no_environment(tmp_path: Path, capsys) -> None:
    path = recorded("Pendulum-v1", tmp_path)
    file = tmp_path / "config.yaml"
    file.write_text(f"algo: bc\nalgo_kwargs:\n  dataset_path: {path}\n")
    words = [*SMALL[:-2], "--output-dir", str(tmp_path / "runs")]
    for start in (["--config", str(file)], ["bc", "--set", f"dataset_path={path}"]):
        assert main(["train", *start, *words, "--json"]) == 0
        answer = capsys.readouterr()
        assert "no environment, so there are no evaluations: there is no environment: env_id is none" in answer.err
        run_dir = json.loads(answer.out)["run_dir"]
        assert "eval_return_mean" not in json.loads(answer.out)["metrics"]
    assert main(["resume", run_dir, "--total-timesteps", "6", "--quiet"]) == 0
    capsys.readouterr()
    assert main(["evaluate", run_dir, "--num-episodes", "1", "--env", "Pendulum-v1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["eval_episodes"] == 1
    assert main(["evaluate", run_dir]) == 2
    assert "there is no environment: env_id is none" in capsys.readouterr().err
    for start in (["bc"], ["sac", "--set", f"dataset_path={path}"]):
        assert main(["train", *start]) == 2


class OneStep(gym.Env[Any, Any]):
    """A contextual bandit: every episode is one step."""

    observation_space = spaces.Box(-1, 1, (1,), np.float32)
    action_space = spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return self.np_random.uniform(-1, 1, 1).astype(np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), float(-(action[0] ** 2)), True, False, {}


@pytest.mark.parametrize("suffix", [".npz", ".hdf5", ""])
def test_a_recorded_data_set_of_one_step_episodes_is_learned_from(suffix: str, tmp_path: Path) -> None:
    if suffix != ".npz":
        pytest.importorskip("h5py")
    made = record_random(EnvSource("<bandit>", factory=OneStep), 40, seed=0)
    assert made.terminated.all()
    path = save_transitions(made, tmp_path / f"bandit{suffix}")
    assert load_data(path).sha256() == made.sha256()
    agent = BC(OneStep, dataset_path=path, batch_size=8, total_timesteps=3, output_dir=tmp_path / "runs",
               hidden_sizes=(8,), eval_episodes=1, video=False, report=False)  # fmt: skip
    assert agent.learn(show_progress=False).result.metrics["global_step"] == 3
