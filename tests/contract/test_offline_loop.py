"""The offline loop: steps are updates, the dataset is part of the run, and an environment is only for evaluation."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import hostile_data
import numpy as np
import pytest
import torch
from conftest import make_quick_config, one_of_a_kind

from rl_training.algorithms.iql import IQLSettings
from rl_training.algorithms.offline import absolute_path
from rl_training.algorithms.registry import algorithm_names, learner_class
from rl_training.checkpoint.read import load_checkpoint
from rl_training.cli.main import main
from rl_training.config.train_config import TrainConfig
from rl_training.core.checks import UserError
from rl_training.data.datasets.formats.writing import save_transitions
from rl_training.data.datasets.generate import record_random
from rl_training.data.datasets.prepare import PreparedDataset, prepare_dataset
from rl_training.data.datasets.transition_dataset import ResidentData, TransitionDataset
from rl_training.data.datasets.transitions import concatenated
from rl_training.envs.host.episode_bound import DEFAULT_BOUND
from rl_training.envs.host.factory import EnvSource
from rl_training.resources import find_packaged_asset
from rl_training.run.agent import load_agent
from rl_training.run.callbacks import Callback
from rl_training.run.capacity import check_dataset_memory
from rl_training.run.resume import resume_training
from rl_training.run.run import train
from rl_training.run.validate import parse_settings, with_task_defaults

OFFLINE = [name for name in algorithm_names() if learner_class(name).offline]


def config(tmp_path: Path, algo: str = "iql", algo_kwargs: dict[str, Any] | None = None, **changes: Any) -> Any:
    values = {"total_timesteps": 47, "checkpoint_interval": 13, "log_interval": 7, "eval_episodes": 0, "env_kwargs": {}}
    values |= changes
    return make_quick_config(algo, tmp_path, algo_kwargs, **values)


def learner_bits(result: Any) -> dict[str, bytes]:
    tensors = load_checkpoint(result.checkpoint_path).tensors("learner.safetensors")
    return {name: tensor.numpy().tobytes() for name, tensor in tensors.items() if not name.startswith("metric_")}


def rows(run_dir: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]


def prepared(settings: Any, source: EnvSource) -> PreparedDataset:
    return prepare_dataset(settings, source, None, DEFAULT_BOUND, load_agent)


class StopAt(Callback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step(self, session: Any) -> bool:
        return session.step < self.step


@pytest.mark.sweep
@pytest.mark.parametrize("algo", OFFLINE)
def test_a_run_from_a_recipe_trains_evaluates_and_exports(algo: str, tmp_path: Path) -> None:
    result = train(config(tmp_path, algo, eval_episodes=1), show_progress=False)
    assert result.metrics["global_step"] == result.metrics["gradient_steps"] == 47
    assert np.isfinite(result.metrics["eval_return_mean"])
    assert [row["step"] for row in rows(result.run_dir) if "train/actor_loss" in row] == [7, 14, 21, 28, 35, 42]
    agent = load_agent(result.checkpoint_path)
    assert agent.step == 47 and abs(agent.predict([1.0, 0.0, 0.0])[0]) <= 2
    about = json.loads((result.run_dir / "run.json").read_text())["dataset"]
    assert about["sha256"] == record_random(EnvSource("Pendulum-v1"), 64, seed=0).sha256()


@pytest.mark.parametrize("algo", one_of_a_kind("iql", among=OFFLINE))
@pytest.mark.parametrize("cut", [4, 13, 29])
def test_cut_and_resumed_ends_with_the_same_bits(algo: str, cut: int, tmp_path: Path) -> None:
    whole = train(config(tmp_path / "whole", algo), show_progress=False)
    stopped = train(config(tmp_path / "cut", algo), callbacks=[StopAt(cut)], show_progress=False)
    assert stopped.metrics["global_step"] < 47
    resumed = resume_training(stopped.run_dir, show_progress=False)
    assert learner_bits(resumed) == learner_bits(whole)
    clock = {"time/fps", "time/time_elapsed"}
    found = [
        [{k: v for k, v in row.items() if k not in clock} for row in rows(one.run_dir)] for one in (whole, resumed)
    ]
    assert found[0] == found[1]


def test_cadences_and_evaluations_do_not_change_what_is_learned(tmp_path: Path) -> None:
    """The actor's rate falls along a cosine, on a grid of its own."""
    plain = train(config(tmp_path / "a"), show_progress=False)
    busy = train(config(tmp_path / "b", log_interval=3, checkpoint_interval=4, eval_episodes=1, eval_interval=11),
                 show_progress=False)  # fmt: skip
    assert learner_bits(plain) == learner_bits(busy)


def test_seeds_together_are_each_alone(tmp_path: Path) -> None:
    together = train(config(tmp_path / "all", seeds=(3, 8)), show_progress=False)
    tensors = load_checkpoint(together.checkpoint_path).tensors("learner.safetensors")
    for index, seed in enumerate((3, 8)):
        alone = train(config(tmp_path / str(seed), seeds=(seed,)), show_progress=False)
        for name, tensor in load_checkpoint(alone.checkpoint_path).tensors("learner.safetensors").items():
            if name.startswith("params."):
                assert torch.equal(tensor[0], tensors[name][index]), name


def test_without_an_environment_it_trains_and_says_so(tmp_path: Path, capsys) -> None:
    path = save_transitions(record_random(EnvSource("Pendulum-v1"), 80, seed=0), tmp_path / "data.npz")
    settings = {"dataset_kind": "file", "dataset_path": str(path)}
    result = train(config(tmp_path, algo_kwargs=settings, env_id="Elsewhere-v3", eval_episodes=2, video=True))
    assert "eval_return_mean" not in result.metrics and result.metrics["gradient_steps"] == 47
    said = capsys.readouterr().err
    assert "no environment, so there are no evaluations: environment 'Elsewhere-v3'" in said and "no video" not in said
    assert load_agent(result.checkpoint_path).action.space.high.tolist() == [2.0]  # as the dataset tells
    resumed = resume_training(result.run_dir, total_timesteps=60, show_progress=False)
    assert resumed.metrics["global_step"] == 60


def test_a_data_set_that_changed_is_not_resumed_with(tmp_path: Path, capsys) -> None:
    path = tmp_path / "data.npz"
    save_transitions(record_random(EnvSource("Pendulum-v1"), 80, seed=0), path)
    settings = {"dataset_kind": "file", "dataset_path": str(path)}
    run_dir = train(config(tmp_path, algo_kwargs=settings), callbacks=[StopAt(20)], show_progress=False).run_dir
    path.unlink()
    save_transitions(record_random(EnvSource("Pendulum-v1"), 80, seed=1), path)
    assert main(["resume", str(run_dir), "--quiet"]) == 2
    said = capsys.readouterr().err
    assert "the dataset has changed (sha256 " in said and said.count("\n") == 1
    assert "; --force resumes with it anyway" in said
    assert main(["resume", str(run_dir), "--total-timesteps", "30", "--quiet", "--json", "--force"]) == 0
    assert "resume: inexact (the dataset has changed (sha256 " in capsys.readouterr().err
    record = json.loads((run_dir / "run.json").read_text())
    assert record["resume"] == "inexact" and "the dataset has changed" in record["resume_note"]
    assert record["dataset"]["sha256"] == record_random(EnvSource("Pendulum-v1"), 80, seed=1).sha256()
    assert main(["resume", str(run_dir), "--quiet", "--total-timesteps", "35"]) == 0  # from now on it is this one's
    path.unlink()
    with pytest.raises(UserError, match=r"data.npz: no such dataset"):
        resume_training(run_dir, total_timesteps=40, show_progress=False)


@pytest.mark.sweep
def test_a_run_finds_its_data_from_any_directory_and_after_a_move(tmp_path: Path, monkeypatch, capsys) -> None:
    home, other = tmp_path / "home", tmp_path / "other"
    home.mkdir(), other.mkdir()
    parts = [record_random(EnvSource("Pendulum-v1"), 40, seed=seed) for seed in (0, 1)]
    for number, part in enumerate(parts):
        save_transitions(part, home / f"{number}.npz")
    monkeypatch.chdir(home)
    for paths in (["0.npz", "1.npz"], "0.npz"):
        settings = {"dataset_kind": "file", "dataset_path": paths}
        stopped = train(config(tmp_path / "runs", algo_kwargs=settings), callbacks=[StopAt(20)], show_progress=False)
        monkeypatch.chdir(other)
        assert resume_training(stopped.run_dir, show_progress=False).metrics["global_step"] == 47
        monkeypatch.chdir(home)
    for name in ("0.npz", "1.npz"):
        (home / name).rename(other / name)
    monkeypatch.chdir(other)
    words = ["resume", str(stopped.run_dir), "--quiet", "--json", "--total-timesteps"]
    assert main([*words, "55", "--data", "1.npz"]) == 2
    assert "the dataset has changed" in capsys.readouterr().err
    assert main([*words, "55", "--data", "0.npz"]) == 0
    monkeypatch.chdir(home)
    assert main([*words, "60"]) == 0  # it is remembered
    recipe = train(config(tmp_path / "recipe"), show_progress=False).run_dir
    capsys.readouterr()
    assert main(["resume", str(recipe), "--data", "0.npz"]) == 2
    said = "error: --data is for a run whose dataset is a file or an agent's; this one's is not\n"
    assert capsys.readouterr().err == said


def test_names_that_mean_the_same_everywhere_stay_as_they_are(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "minari/set/data").mkdir(parents=True)
    (tmp_path / "minari/set/data/metadata.json").touch()
    (tmp_path / "here/set").mkdir(parents=True)  # of the same name, and no dataset
    (tmp_path / "here/agent.safetensors").touch()
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    monkeypatch.chdir(tmp_path / "here")
    asked = {"set": "set", "agents/pendulum.safetensors": "agents/pendulum.safetensors", "missing.npz": "missing.npz"}
    for name in ("agent.safetensors", "../minari/set"):
        asked[name] = str(tmp_path / "here" / name)
    assert {name: absolute_path(name) for name in asked} == asked
    monkeypatch.setenv("HOME", str(tmp_path / "here"))
    assert absolute_path("~/agent.safetensors") == str(tmp_path / "here/agent.safetensors")
    assert absolute_path("~nobody-here/data.npz") == "~nobody-here/data.npz"


def test_a_checkpoint_away_from_its_run_needs_no_environment(tmp_path: Path) -> None:
    path = save_transitions(record_random(EnvSource("Pendulum-v1"), 80, seed=0), tmp_path / "data.npz")
    settings = {"dataset_kind": "file", "dataset_path": str(path)}
    result = train(config(tmp_path, algo_kwargs=settings, env_id="Elsewhere-v3"), show_progress=False)
    lonely = shutil.copytree(result.checkpoint_path, tmp_path / "lonely" / result.checkpoint_path.name)
    moved = resume_training(lonely, total_timesteps=60, output_dir=tmp_path / "new", show_progress=False)
    assert moved.metrics["global_step"] == 60 and moved.run_dir.parent == tmp_path / "new"


def test_several_files_are_one_data_set(tmp_path: Path) -> None:
    parts = [record_random(EnvSource("Pendulum-v1"), size, seed=size) for size in (30, 50)]
    paths = [str(save_transitions(part, tmp_path / f"{len(part)}.npz")) for part in parts]
    settings = IQLSettings(dataset_kind="file", dataset_path=paths, reward_scale=1.0)
    data = prepared(settings, EnvSource("Pendulum-v1"))
    assert data.dataset.obs.tolist() == np.concatenate([part.obs for part in parts]).tolist()
    assert data.dataset.rewards.tolist() == np.concatenate([part.rewards for part in parts]).astype(np.float32).tolist()
    assert data.dataset.truncations is not None and bool(data.dataset.truncations[29])  # an end stays an end
    one_file = save_transitions(concatenated(parts, paths), tmp_path / "both.npz")
    again = prepared(IQLSettings(dataset_kind="file", dataset_path=one_file), EnvSource("Pendulum-v1"))
    assert again.sha256 == data.sha256
    other = save_transitions(record_random(EnvSource("MountainCarContinuous-v0"), 80, seed=0), tmp_path / "other.npz")
    with pytest.raises(
        UserError, match=r"other.npz: obs are float32 \(2,\) a row, those of .*30.npz are float32 \(3,\)"
    ):
        prepared(IQLSettings(dataset_kind="file", dataset_path=[*paths, str(other)]), EnvSource("Pendulum-v1"))
    elsewhere = [parts[0], dataclasses.replace(parts[1], env_id="Acrobot-v1")]
    with pytest.raises(UserError, match=r"b is of Acrobot-v1, a of Pendulum-v1: they are not one dataset"):
        concatenated(elsewhere, ["a", "b"])
    with pytest.raises(UserError, match="dataset_path must be at least one path"):
        IQLSettings(dataset_kind="file", dataset_path=())


@pytest.mark.parametrize(
    ("settings", "changes", "message"),
    [
        ({}, {"env_id": "Elsewhere-v3"}, "environment 'Elsewhere-v3'"),
        ({}, {"env_id": "CartPole-v1"}, r"iql needs Box actions; CartPole-v1 has Discrete\(2\)"),
        ({"dataset_kind": "file", "dataset_path": "no.npz"}, {}, "no.npz: no such dataset"),
    ],
)
def test_what_cannot_be_trained_is_refused_and_leaves_nothing(settings, changes, message, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        train(config(tmp_path / "runs", algo_kwargs=settings, **changes), show_progress=False)
    assert not (tmp_path / "runs").exists()


def test_a_data_set_of_another_environment_is_refused(tmp_path: Path) -> None:
    path = save_transitions(record_random(EnvSource("MountainCarContinuous-v0"), 80, seed=0), tmp_path / "data.npz")
    with pytest.raises(UserError, match=r"observations are of shape \(2,\), the environment's are \(3,\)"):
        train(config(tmp_path, algo_kwargs={"dataset_kind": "file", "dataset_path": str(path)}), show_progress=False)


def test_faults_are_mended_by_the_flags_that_the_refusals_name(tmp_path: Path, capsys) -> None:
    made = record_random(EnvSource("Pendulum-v1"), 80, seed=0)
    made.rewards[3], made.actions[7] = np.nan, 9.0
    path = save_transitions(made, tmp_path / "data.npz")
    words = ["train", "bc", "Pendulum-v1", "--total-timesteps", "5", "--eval-episodes", "0", "--quiet", "--json"]
    words += ["--set", "algo_kwargs.dataset_kind=file", "--set", f"algo_kwargs.dataset_path={path}"]
    words += ["--set", "algo_kwargs.dataset_agent=null", "--output-dir", str(tmp_path / "runs")]
    for flag in ("--drop-nonfinite", "--clip-actions"):
        assert main(words) == 2
        said = capsys.readouterr().err
        assert said.endswith(f" them with {flag}\n") or said.endswith(f" them out with {flag}\n")
        assert said.count("\n") == 1
        words.append(flag)
    assert main(words) == 0
    settings = load_checkpoint(Path(json.loads(capsys.readouterr().out)["checkpoint_path"])).state["config"]
    assert settings["algo_kwargs"]["drop_nonfinite"] is settings["algo_kwargs"]["clip_actions"] is True
    assert main(["train", "sac", "Pendulum-v1", "--clip-actions", "--output-dir", str(tmp_path / "sac")]) == 2
    said = "error: --clip-actions is only for algorithms that learn from a dataset, and sac does not\n"
    assert capsys.readouterr().err == said and not (tmp_path / "sac").exists()


@pytest.mark.parametrize(
    ("scale", "expected"),
    [("return_range", [number * 1000 / 3 for number in range(6)]), (2.0, [-1, 1, 3, 5, 7, 9])],
)
def test_rewards_are_scaled_by_the_range_of_returns(scale: Any, expected: list[float], tmp_path: Path) -> None:
    """Two trajectories, 0 + 1 + 2 + 3 = 6 and 4 + 5 = 9: their range is 3. Else 2 r - 1."""
    path = hostile_data.npz(rewards=np.float32([0, 1, 2, 3, 4, 5]), terminals=np.float32([0, 0, 0, 1, 0, 0]))(tmp_path)
    shift = {"reward_shift": -1.0} if scale == 2.0 else {}
    settings = IQLSettings(dataset_kind="file", dataset_path=path, reward_scale=scale, **shift)
    data = prepared(settings, EnvSource("Elsewhere-v3"))
    assert data.dataset.rewards.tolist() == pytest.approx(expected)
    assert not data.has_environment and data.spec.action.size == 1


@pytest.mark.sweep
def test_evaluations_have_d4rl_scores_where_there_is_a_reference(tmp_path: Path, capsys) -> None:
    pytest.importorskip("mujoco")
    values = {"env_id": "Hopper-v5", "total_timesteps": 5, "eval_episodes": 1}
    result = train(config(tmp_path, "bc", **values), show_progress=False)
    metrics = result.metrics
    expected = 100 * (metrics["eval_return_mean"] + 20.272305) / (3234.3 + 20.272305)
    assert metrics["eval_d4rl_score"] == pytest.approx(expected)
    assert main(["evaluate", str(result.run_dir), "--num-episodes", "2"]) == 0
    said = capsys.readouterr().out
    value = 100 * (float(said.split()[1]) + 20.272305) / (3234.3 + 20.272305)
    assert f"\nD4RL score {value:.1f}" in said
    assert "eval_d4rl_score" not in train(config(tmp_path, "bc", eval_episodes=1), show_progress=False).metrics


@pytest.mark.parametrize(
    ("algo", "env_id", "expected"),
    [
        ("bc", "Hopper-v5", {"normalize_observations": True}),
        ("bc", "Pendulum-v1", {"normalize_observations": False}),
        ("iql", "HalfCheetah-v5", {"expectile": 0.7, "beta": 3.0, "reward_scale": "return_range", "reward_shift": 0.0}),
        ("iql", "AntMaze_UMaze-v5", {"expectile": 0.9, "beta": 10.0, "reward_scale": 1.0, "reward_shift": -1.0}),
        ("iql", "antmaze-large-play-v2", {"expectile": 0.9, "normalize_observations": False}),
        ("iql", "module:AdroitHandDoor-v1", {"beta": 0.5, "expectile": 0.7, "reward_scale": 1.0}),
        ("cql", "Walker2d-v5", {"cql_alpha": 10.0, "actor_learning_rate": 3e-5, "normalize_observations": True}),
        ("cql", "AntMaze_Medium-v4", {"cql_alpha": 5.0, "lagrange_threshold": 5.0, "reward_shift": -2.0}),
        ("cql", "AdroitHandPen-v1", {"cql_alpha": 1.0, "actor_learning_rate": 1e-4}),
        ("td3_bc", "Hopper-v5", {"bc_alpha": 2.5, "reward_shift": 0.0, "normalize_observations": True}),
        ("td3_bc", "AntMaze_Large-v5", {"reward_shift": -1.0}),
    ],
)
def test_defaults_are_those_of_the_domain(algo: str, env_id: str, expected: dict[str, Any]) -> None:
    """The authors' code, and CORL's where they have none."""
    resolved, _, settings = with_task_defaults(TrainConfig(algo, env_id))
    assert {name: getattr(settings, name) for name in expected} == expected
    again = parse_settings(dataclasses.replace(resolved, env_id="Elsewhere-v0"))[1]
    assert again == settings  # it stands in the run's config, wherever that goes on


def test_what_the_user_says_goes_before_the_domain() -> None:
    asked = {"expectile": 0.6, "reward_shift": 0.0}
    settings: Any = with_task_defaults(TrainConfig("iql", "AntMaze_UMaze-v5", algo_kwargs=asked))[2]
    assert (settings.expectile, settings.reward_shift, settings.beta) == (0.6, 0.0, 10.0)


def test_a_data_set_too_large_for_the_gpu_is_refused(monkeypatch) -> None:
    column = np.zeros((1000, 1), np.float32)
    dataset = TransitionDataset(obs=column, actions=column, rewards=column, next_obs=column, dones=column)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (20_000, 20_000))  # it is 5 * 4000 bytes
    with pytest.raises(UserError, match=r"the dataset of 1000 transitions needs 0.0 GiB on cuda:0, 0.0 GiB are free"):
        check_dataset_memory(dataset, "cuda:0")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (23_000, 23_000))
    check_dataset_memory(dataset, "cuda:0")


def test_rows_stay_together_for_any_number_of_leading_axes() -> None:
    number = np.arange(50, dtype=np.float32)
    columns = {"obs": number[:, None], "actions": number[:, None], "next_obs": number[:, None] + 1}
    data = ResidentData(TransitionDataset(**columns, rewards=number, dones=number % 2))
    indices = torch.randint(50, (4, 3, 8))
    batch = data.gather(indices)
    assert batch["obs"].shape == (4, 3, 8, 1) and torch.equal(batch["rewards"], indices.float())
    assert torch.equal(batch["next_obs"][..., 0], indices + 1.0) and torch.equal(batch["dones"], indices % 2.0)


def test_who_extends_a_run_past_its_schedules_is_told(tmp_path: Path, capsys) -> None:
    """IQL's actor learns at a rate that falls to zero where the run was to end."""
    for algo, told in (("iql", True), ("td3_bc", False)):
        run_dir = train(config(tmp_path / algo, algo), show_progress=False).run_dir
        assert "fell to 0" not in capsys.readouterr().err
        resume_training(run_dir, total_timesteps=60)
        said = " ".join(capsys.readouterr().err.split())
        assert ("the learning rate of actor fell to 0 by step 47, the end of this run's schedules" in said) is told


def small_file(path: Path, seed: int = 0, **changes: Any) -> Path:
    return save_transitions(
        dataclasses.replace(record_random(EnvSource("Pendulum-v1"), 80, seed=seed), **changes), path
    )


NOWHERE = {"env_id": None, "observation_space": None, "action_space": None}  # nothing told but the numbers


def test_a_refused_resume_changes_nothing(tmp_path: Path, capsys) -> None:
    halves = {"actions": record_random(EnvSource("Pendulum-v1"), 80, seed=0).actions / 2, **NOWHERE}
    other = {name: np.zeros((80, 4), np.float32) for name in ("obs", "next_obs")}
    path, wide = small_file(tmp_path / "a.npz", **halves), small_file(tmp_path / "b.npz", **{**halves, **other})
    settings = {"dataset_kind": "file", "dataset_path": str(path)}
    run_dir = train(config(tmp_path, algo_kwargs=settings, env_id="Robot-v0"), show_progress=False).run_dir
    capsys.readouterr()
    before = {name: name.read_bytes() for name in run_dir.rglob("*") if name.is_file()}
    for words in (["--env", "Pendulum-v1"], ["--data", str(wide), "--force"]):
        assert main(["resume", str(run_dir), "--quiet", "--total-timesteps", "400", *words]) == 2
        assert "has changed since the checkpoint" in capsys.readouterr().err
        assert {name: name.read_bytes() for name in run_dir.rglob("*") if name.is_file()} == before
    assert resume_training(run_dir, total_timesteps=60, show_progress=False).metrics["global_step"] == 60


def test_a_refused_resume_elsewhere_leaves_nothing_there(tmp_path: Path) -> None:
    path = small_file(tmp_path / "data.npz")
    settings = {"dataset_kind": "file", "dataset_path": str(path)}
    run_dir = train(config(tmp_path / "runs", algo_kwargs=settings), show_progress=False).run_dir
    path.rename(tmp_path / "moved.npz")
    for changes in ({"output_dir": tmp_path / "other"}, {"run_suffix": "again"}):
        with pytest.raises(UserError, match=r"data.npz: no such dataset.*; name it where it is now with data=\.\.\."):
            resume_training(run_dir, 60, show_progress=False, **changes)
    assert list((tmp_path / "runs").iterdir()) == [run_dir] and not list((tmp_path / "other").glob("*"))
    before = run_dir / "metrics.jsonl", (run_dir / "metrics.jsonl").read_bytes(), (run_dir / "run.json").read_bytes()
    before[0].write_bytes(before[1][:-5])
    for elsewhere in (tmp_path / "other", None):
        with pytest.raises(UserError, match=r"metrics.jsonl: shorter than recorded in its checkpoint"):
            resume_training(run_dir, 60, elsewhere, data=[tmp_path / "moved.npz"], show_progress=False)
        assert (run_dir / "run.json").read_bytes() == before[2] and not list((tmp_path / "other").glob("*"))
    before[0].write_bytes(before[1])
    gone_on = resume_training(
        run_dir, 60, tmp_path / "other", data=[tmp_path / "moved.npz"], callbacks=[StopAt(55)], show_progress=False
    )
    assert list((tmp_path / "other").iterdir()) == [gone_on.run_dir] and gone_on.metrics["global_step"] == 55


def test_a_run_elsewhere_that_went_on_is_kept_whatever_happens(tmp_path: Path) -> None:
    class Refuse(Callback):
        def on_step(self, session: Any) -> None:
            if session.step == 55:
                raise UserError("as an environment that cannot be made any more")

    run_dir = train(config(tmp_path / "runs"), show_progress=False).run_dir
    with pytest.raises(UserError, match="as an environment"):
        resume_training(run_dir, 60, tmp_path / "other", callbacks=[Refuse()], show_progress=False)
    (kept,) = (tmp_path / "other").iterdir()
    assert resume_training(kept, show_progress=False).metrics["global_step"] == 60


def test_a_recipe_finds_its_agent_after_a_move(tmp_path: Path) -> None:
    agent = tmp_path / "agent.safetensors"
    shutil.copy(find_packaged_asset(Path("agents/pendulum.safetensors")), agent)
    settings = {"dataset_kind": "policy", "dataset_agent": str(agent), "dataset_size": 80}
    run_dir = train(config(tmp_path / "runs", algo_kwargs=settings), show_progress=False).run_dir
    moved = agent.rename(tmp_path / "moved.safetensors")
    with pytest.raises(UserError, match=r"agent.safetensors: no such agent.*; name it where it is now with data="):
        resume_training(run_dir, 60, show_progress=False)
    with pytest.raises(UserError, match=r"must be the one agent that generated this run's dataset, got 2 paths"):
        resume_training(run_dir, 60, data=[moved, moved], show_progress=False)
    for total, data in ((55, [moved]), (60, [])):  # from then on it is remembered
        assert resume_training(run_dir, total, data=data, show_progress=False).metrics["global_step"] == total


def test_a_file_named_twice_is_told(tmp_path: Path, capsys) -> None:
    path = small_file(tmp_path / "data.npz")
    settings = {"dataset_kind": "file", "dataset_path": [str(path), str(path)]}
    train(config(tmp_path / "runs", algo_kwargs=settings), show_progress=False)
    assert f"{path}: named more than once, so its rows count as often" in capsys.readouterr().err


def test_data_that_changed_before_the_first_checkpoint_is_noticed_too(tmp_path: Path) -> None:
    class Die(Callback):
        def on_step(self, session: Any) -> None:
            raise KeyError("as if killed")

    path = small_file(tmp_path / "data.npz")
    settings = {"dataset_kind": "file", "dataset_path": str(path)}
    with pytest.raises(KeyError):
        train(config(tmp_path / "runs", algo_kwargs=settings), callbacks=[Die()], show_progress=False)
    (run_dir,) = (tmp_path / "runs").iterdir()
    assert not list(run_dir.glob("checkpoints/step_*"))
    path.unlink()
    small_file(path, seed=1)
    with pytest.raises(UserError, match=r"the dataset has changed \(sha256 .*; force=True resumes"):
        resume_training(run_dir, show_progress=False)
    path.unlink()
    with pytest.raises(UserError, match=r"data.npz: no such dataset.*; name it where it is now with data=\.\.\."):
        resume_training(run_dir, show_progress=False)
    small_file(path)
    assert resume_training(run_dir, show_progress=False).metrics["global_step"] == 47


def test_what_is_wrong_without_an_environment_is_told_with_why_there_is_none(tmp_path: Path, capsys) -> None:
    path = small_file(tmp_path / "data.npz", **NOWHERE)  # actions up to 2
    settings = {"dataset_kind": "file", "dataset_path": str(path)}
    message = (
        r"actions must be in \[-1, 1\] where their bounds are unknown, got 1.978; if those are their bounds, clip "
        r"them with.*; there is no environment either: .*Did you mean: `Pendulum`"
    )
    with pytest.raises(UserError, match=message):
        train(config(tmp_path, algo_kwargs=settings, env_id="Pendulm-v1"), show_progress=False)
    train(config(tmp_path, algo_kwargs={**settings, "clip_actions": True}, env_id="Pendulm-v1"), show_progress=False)
    outside = int((np.abs(record_random(EnvSource("Pendulum-v1"), 80, seed=0).actions) > 1).sum())
    assert f"{path}: the actions of {outside} of 80 rows were clipped to Box(-1.0, 1.0" in capsys.readouterr().err


def test_a_note_names_its_own_file(tmp_path: Path) -> None:
    ends = np.arange(80) % 20 == 19
    good = small_file(tmp_path / "good.npz")
    odd = small_file(tmp_path / "odd.npz", terminated=ends, truncated=ends)
    settings = parse_settings(
        config(tmp_path, algo_kwargs={"dataset_kind": "file", "dataset_path": [str(good), str(odd)]})
    )[1]
    notices = prepared(settings, EnvSource("Pendulum-v1")).notices
    assert [note.partition(": ")[0] for note in notices] == [str(odd)] * len(notices)
    assert any("all 4 time limits are marked terminal as well" in note for note in notices)


def test_files_of_two_precisions_are_one_data_set_of_the_finer(tmp_path: Path) -> None:
    fine = record_random(EnvSource("Pendulum-v1"), 40, seed=0)
    coarse = dataclasses.replace(fine, rewards=fine.rewards.astype(np.float32))
    assert fine.rewards.dtype == np.float64
    for parts in ([coarse, fine], [fine, coarse]):
        both = concatenated(parts, ["a", "b"])
        assert both.rewards.dtype == np.float64
        np.testing.assert_array_equal(both.rewards, np.concatenate([part.rewards for part in parts]))
    with pytest.raises(UserError, match=r"b: obs are uint8 \(3,\) a row, those of a are float32 \(3,\)"):
        concatenated([fine, dataclasses.replace(fine, obs=np.zeros((40, 3), np.uint8))], ["a", "b"])


def test_a_return_range_of_shuffled_rows_is_refused(tmp_path: Path) -> None:
    data = record_random(EnvSource("Pendulum-v1"), 300, seed=0)
    order = np.random.default_rng(0).permutation(300)
    arrays = {"observations": data.obs, "actions": data.actions, "rewards": data.rewards,
              "next_observations": data.next_obs, "terminals": data.terminated}  # fmt: skip
    np.savez(tmp_path / "shuffled.npz", **{name: array[order] for name, array in arrays.items()})
    np.savez(tmp_path / "rounded.npz", **{**arrays, "next_observations": data.next_obs * np.float32(1 + 2e-7)})
    for name, wanted in (("rounded", None), ("shuffled", "reward_scale must be a number here: .* of 300 rows")):
        kwargs = {"dataset_kind": "file", "dataset_path": str(tmp_path / f"{name}.npz"), "reward_scale": "return_range"}
        settings = parse_settings(config(tmp_path, algo_kwargs=kwargs))[1]
        if wanted is None:
            assert prepared(settings, EnvSource("Pendulum-v1")).scale == pytest.approx(
                1000 / np.ptp([data.rewards[:200].sum(), data.rewards[200:].sum()])
            )
            continue
        with pytest.raises(UserError, match=wanted):
            prepared(settings, EnvSource("Pendulum-v1"))
        settings = dataclasses.replace(settings, reward_scale=1.0)
        assert any("they are shuffled" in note for note in prepared(settings, EnvSource("Pendulum-v1")).notices)
