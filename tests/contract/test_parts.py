"""A run is a list of parts: one that is not saved makes a resumed run another run."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import make_quick_config

from rl_training.checkpoint import parts as parts_module
from rl_training.checkpoint.parts import Part
from rl_training.checkpoint.read import DamagedCheckpoint, load_checkpoint
from rl_training.core.checks import UserError
from rl_training.run import run as run_module
from rl_training.run import saver as saver_module
from rl_training.run.callbacks import Callback
from rl_training.run.resume import resume_training
from rl_training.run.run import train

PARTS = ("replay", "environments", "learner", "clock", "session")


class StopAt(Callback):
    def on_step(self, session: Any) -> bool:
        return session.step < 61


def config(folder: Path) -> Any:
    settings = {"train_frequency": 3, "normalize_observations": True, "epsilon_end": 0.5}
    return make_quick_config("dqn", folder, settings, total_timesteps=137, checkpoint_interval=50, eval_episodes=2)


def outcome(run_dir: Path, checkpoint: Path) -> dict[str, Any]:
    """Everything that two equal runs have in common: tensors, rows of the log, state of the parts."""
    found = load_checkpoint(checkpoint)
    tensors = {
        f"{file}/{name}": tensor.numpy().tobytes()
        for file in found.files
        if file.endswith(".safetensors") and not file.startswith("replay_")  # cut into other segments
        for name, tensor in found.tensors(file).items()
    }
    state = {name: values for name, values in found.state["parts"].items() if name != "session"}
    session = {k: v for k, v in found.state["parts"]["session"].items() if k not in ("elapsed", "offsets")}
    rows = len((run_dir / "metrics.jsonl").read_text().splitlines())
    return {**tensors, "state": state, "session": session, "rows": rows}


def resumed(stopped: Path, folder: Path) -> dict[str, Any]:
    result = resume_training(shutil.copytree(stopped, folder / "run"), show_progress=False)
    return outcome(result.run_dir, result.checkpoint_path)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    result = train(config(tmp_path_factory.mktemp("whole")), show_progress=False)
    return outcome(result.run_dir, result.checkpoint_path)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run, stopped half-way."""
    return train(config(tmp_path_factory.mktemp("stopped")), callbacks=StopAt(), show_progress=False).run_dir


def test_a_resumed_run_with_every_part_is_the_same_run(whole: dict[str, Any], stopped: Path, tmp_path: Path) -> None:
    assert resumed(stopped, tmp_path) == whole


@pytest.mark.parametrize("name", PARTS)
def test_a_part_that_is_not_saved_is_seen(
    name: str, whole: dict[str, Any], stopped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The part is neither checked nor loaded, as if a saver had left it out."""
    restore = parts_module.restore

    def without(checkpoint: Any, parts: Sequence[Part]) -> None:
        restore(checkpoint, [part for part in parts if part.name != name])
        if name == "environments":
            next(part for part in parts if part.name == name).envs.reset_all()  # type: ignore[attr-defined]

    monkeypatch.setattr(run_module, "restore", without)
    assert resumed(stopped, tmp_path) != whole


@pytest.mark.parametrize("name", PARTS)
def test_a_checkpoint_without_a_part_is_rejected(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save = saver_module.Saver.save

    def without(saver: Any, *arguments: Any) -> Any:
        saver.parts = [part for part in saver.parts if part.name != name]
        return save(saver, *arguments)

    monkeypatch.setattr(saver_module.Saver, "save", without)
    stopped = train(config(tmp_path), callbacks=StopAt(), show_progress=False)
    with pytest.raises(DamagedCheckpoint, match=f"its {name} is missing"):
        resume_training(stopped.run_dir, show_progress=False)


def test_a_checkpoint_of_the_older_layout_is_rejected_in_one_line(tmp_path: Path, monkeypatch: Any) -> None:
    from rl_training.checkpoint import read

    with monkeypatch.context() as older:
        older.setattr(read, "FORMAT", 1)
        stopped = train(config(tmp_path), callbacks=StopAt(), show_progress=False)
    with pytest.raises(UserError) as rejected:
        resume_training(stopped.run_dir, show_progress=False)
    assert "a checkpoint of format 1, this version reads 2" in str(rejected.value)
    assert "\n" not in str(rejected.value)
