"""What a resume rejects, and that it leaves nothing open or allocated behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from conftest import make_quick_config
from hostile import merged, seal

from rl_training.config.train_config import TrainConfig
from rl_training.core.checks import UserError
from rl_training.data.datasets.conversion import load_data
from rl_training.envs.host.vector import SeededEnvs
from rl_training.run import run as run_module
from rl_training.run.callbacks import Callback
from rl_training.run.resume import resume_training
from rl_training.run.run import train


class StopAt(Callback):
    def on_step(self, session: Any) -> bool:
        return session.step < 60


def stopped(algo: str, folder: Path, **changes: Any) -> Path:
    return train(make_quick_config(algo, folder, **changes), callbacks=StopAt(), show_progress=False).run_dir


def change_state(run_dir: Path, **changes: Any) -> None:
    checkpoint = sorted((run_dir / "checkpoints").glob("step_*"))[-1]
    file = checkpoint / "state.json"
    file.write_text(json.dumps(merged(json.loads(file.read_text()), changes)))
    seal(checkpoint, step=int(checkpoint.name[5:]))


def test_environments_are_closed_when_the_dataset_does_not_fit(tmp_path: Path, monkeypatch: Any) -> None:
    closed, close = [], SeededEnvs.close

    def counted(envs: SeededEnvs) -> None:
        closed.append(envs)
        close(envs)

    def too_large(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(SeededEnvs, "close", counted)
    monkeypatch.setattr(run_module, "ResidentData", too_large)
    config = make_quick_config("iql", tmp_path, {"offline_steps": 20})
    with pytest.raises(Exception, match="out of memory"):
        train(config, show_progress=False)
    assert [envs.stream for envs in closed].count("episode") == 1


def test_a_log_of_another_name_is_not_copied(tmp_path: Path) -> None:
    (tmp_path / "secret.jsonl").write_text("{}\n")
    run_dir = stopped("dqn", tmp_path / "run")
    change_state(run_dir, parts={"session": {"offsets": {str(tmp_path / "secret"): 3}}})
    with pytest.raises(UserError, match="offsets must be >= 0 for metrics and evaluations"):
        resume_training(run_dir, output_dir=tmp_path / "copy", show_progress=False)
    assert not (tmp_path / "copy").exists() or list((tmp_path / "copy").iterdir()) == []


def test_a_torn_capacity_is_rejected_in_one_line(tmp_path: Path) -> None:
    run_dir = stopped("dqn", tmp_path, num_envs=2)
    change_state(run_dir, parts={"replay": {"capacity": 3}})
    with pytest.raises(UserError, match=r"capacity must be a multiple of num_envs \(2\), got 3"):
        load_data(run_dir)


def test_other_spaces_are_rejected_before_a_replay_is_made(tmp_path: Path, monkeypatch: Any) -> None:
    run_dir = stopped("sac", tmp_path)

    def never(*_: Any) -> None:
        raise AssertionError("a replay was made")

    monkeypatch.setattr(run_module, "make_replay", never)
    change = r"observation_space has changed since the checkpoint"
    with pytest.raises(UserError, match=change):
        resume_training(run_dir, env_id="MountainCarContinuous-v0", show_progress=False)


@pytest.mark.parametrize("ids", [("torch/CartPole-v1", "CartPole-v1"), ("CartPole-v1", "torch/CartPole-v1")])
def test_host_and_device_environments_do_not_continue_each_other(ids: tuple[str, str], tmp_path: Path) -> None:
    settings = {"learning_starts": 20, "batch_size": 8, "hidden_sizes": [8]}
    config = TrainConfig(
        "dqn", ids[0], total_timesteps=120, output_dir=tmp_path, eval_episodes=0, device="cpu", algo_kwargs=settings,
        video=False, report=False,
    )  # fmt: skip
    run_dir = train(config, callbacks=StopAt(), show_progress=False).run_dir
    with pytest.raises(UserError, match=f"a run of {ids[0]} cannot be resumed in {ids[1]}") as rejected:
        resume_training(run_dir, env_id=ids[1], show_progress=False)
    assert rejected.value.exit_code == 2
    assert resume_training(run_dir, show_progress=False).metrics["global_step"] == 120


def test_a_run_of_the_older_layout_that_never_saved_is_rejected_in_one_line(tmp_path: Path) -> None:
    run_dir = stopped("dqn", tmp_path)
    record = json.loads((run_dir / "run.json").read_text())
    record["engine"] = record.pop("execution_plan")
    (run_dir / "run.json").write_text(json.dumps(record))
    with pytest.raises(UserError, match="a run of an older layout"):
        resume_training(run_dir, show_progress=False)
