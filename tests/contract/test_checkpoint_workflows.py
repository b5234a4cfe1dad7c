"""Checkpoints over the whole registry: equal after a cut, verified, refused when damaged, portable."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import make_quick_config, one_of_a_kind
from hostile import seal
from resume_harness import replay_of

from rl_training.algorithms.on_policy import OnPolicyLearner
from rl_training.algorithms.registry import algorithm_names, learner_class
from rl_training.checkpoint.read import list_checkpoints, load_checkpoint
from rl_training.core.checks import UserError
from rl_training.data.replay import part as replay_part
from rl_training.run.agent import load_agent
from rl_training.run.callbacks import Callback
from rl_training.run.resume import resume_training
from rl_training.run.run import train
from rl_training.run.workflows import evaluate_checkpoint, predict_checkpoint

CLOCK = {"time/fps", "time/time_elapsed"}


class StopAt(Callback):
    def __init__(self, step: int) -> None:
        self.step = step

    def on_step(self, session) -> bool | None:
        return False if session.step >= self.step else None


def state_of(result) -> tuple[dict[str, torch.Tensor], list[dict], list[str]]:
    """Everything a run ends with: all tensors (replay rows in order), metric rows without the clock, evaluations."""
    checkpoint = load_checkpoint(result.checkpoint_path)
    tensors = checkpoint.tensors("learner.safetensors")
    cls = learner_class(checkpoint.state["config"]["algo"])
    assert cls.offline == ("envs.safetensors" not in checkpoint.files)
    assert bool(checkpoint.names("replay_")) == (not cls.offline and not issubclass(cls, OnPolicyLearner))
    if not cls.offline:
        tensors |= {**checkpoint.tensors("envs.safetensors"), **replay_of(checkpoint)}
    for file in checkpoint.names("rollout"):
        tensors |= {f"rollout.{name}": tensor for name, tensor in checkpoint.tensors(file).items()}
    rows = [json.loads(line) for line in (result.run_dir / "metrics.jsonl").read_text().splitlines()]
    rows = [{key: value for key, value in row.items() if key not in CLOCK} for row in rows]
    return tensors, rows, (result.run_dir / "evaluations.jsonl").read_text().splitlines()


def assert_same(first, second) -> None:
    a, b = state_of(first), state_of(second)
    assert a[0].keys() == b[0].keys()
    different = [name for name in a[0] if not torch.equal(a[0][name], b[0][name])]
    assert different == []
    assert a[1] == b[1]
    assert a[2] == b[2]


@pytest.mark.sweep  # after kill -9, and compared in more: test_exact_resume.py
@pytest.mark.parametrize("algo", algorithm_names())
def test_stopped_by_a_callback_and_resumed_equals_uncut(algo: str, quick_config, tmp_path: Path) -> None:
    changes = {"seeds": (3, 5), "num_envs": 1, "checkpoint_interval": 41}
    whole = train(quick_config(algo, tmp_path / "whole", **changes), show_progress=False)
    for cut in (7, 33, 97):  # before learning starts; mid-episode; after the ring wrapped
        config = quick_config(algo, tmp_path / f"cut {cut}", **changes)
        part = train(config, callbacks=[StopAt(cut)], show_progress=False)
        assert part.metrics["global_step"] == cut
        assert_same(whole, resume_training(part.run_dir, show_progress=False))


QUIET = {"eval_episodes": 0, "log_interval": 1000, "checkpoint_interval": 1000}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> Callable[[str], dict[str, torch.Tensor]]:
    made: dict[str, dict[str, torch.Tensor]] = {}

    def tensors(algo: str) -> dict[str, torch.Tensor]:
        if algo not in made:
            config = make_quick_config(algo, tmp_path_factory.mktemp("quiet"), **QUIET)
            made[algo] = trained_state(train(config, show_progress=False))
        return made[algo]

    return tensors


def trained_state(result) -> dict[str, torch.Tensor]:
    """All that training goes on from. Sums for the next row of metrics start again at each row: they are left out."""
    return {name: tensor for name, tensor in state_of(result)[0].items() if not name.startswith("metric_")}


@pytest.mark.parametrize("algo", one_of_a_kind("cql"))
@pytest.mark.parametrize(
    "change",
    [
        {"eval_episodes": 2, "eval_interval": 13, "log_interval": 7, "checkpoint_interval": 11, "keep_checkpoints": 1,
         "video": True, "report": True},
        {"eval_episodes": 1, "eval_interval": 5, "log_interval": 1, "checkpoint_interval": 3},
    ],
    ids=["now and then", "all the time"],
)  # fmt: skip
def test_looking_on_does_not_change_training(algo: str, change, undisturbed, quick_config, tmp_path: Path) -> None:
    busy = trained_state(train(quick_config(algo, tmp_path, **{**QUIET, **change}), show_progress=False))
    expected = undisturbed(algo)
    assert busy.keys() == expected.keys()
    assert [name for name in busy if not torch.equal(busy[name], expected[name])] == []


@pytest.fixture(params=one_of_a_kind())
def finished(request, finished_run):
    return finished_run(request.param)


def test_agent_file_acts_like_the_checkpoint(finished, tmp_path: Path) -> None:
    agent = load_agent(finished.checkpoint_path)
    path = agent.save(tmp_path / "new" / "folder" / "policy.anything")
    size = agent.observation.space.shape
    batch = np.random.default_rng(0).normal(size=(6, *size)).astype(np.float32)
    batch = np.abs(50 * batch).astype(np.uint8) if agent.observation.is_image else batch
    expected = np.asarray(predict_checkpoint(finished.checkpoint_path, batch))
    assert np.array_equal(np.asarray(predict_checkpoint(path, batch)), expected)
    # One row alone takes another kernel than six, which rounds differently.
    assert np.allclose(np.asarray(predict_checkpoint(path, batch[2].tolist())), expected[2], atol=1e-6)
    assert evaluate_checkpoint(path, 2) == evaluate_checkpoint(finished.run_dir, 2)


def test_every_flipped_byte_of_an_agent_file_is_noticed(finished, tmp_path: Path) -> None:
    data = (finished.run_dir / "agents").glob("*_final.safetensors").__next__().read_bytes()
    path = tmp_path / "agent.safetensors"
    for position in np.random.default_rng(0).choice(len(data), 60, replace=False).tolist() + list(range(40)):
        path.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        with pytest.raises(UserError):
            load_agent(path)


def test_a_damaged_checkpoint_falls_back_to_the_older_one(finished, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(finished.run_dir, run)
    newest, older = run / "checkpoints" / "step_000000000120", run / "checkpoints" / "step_000000000100"
    assert newest.is_dir() and older.is_dir()
    file = newest / "learner.safetensors"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 4
    file.unlink()
    file.write_bytes(bytes(data))
    with pytest.raises(UserError, match=r"step_0+120 damaged \(learner.safetensors sha256\)"):
        load_checkpoint(newest)
    resumed = resume_training(run, show_progress=False)
    assert resumed.metrics["global_step"] == 120
    fixed, original = load_checkpoint(newest), load_checkpoint(finished.checkpoint_path)
    a, b = fixed.tensors("learner.safetensors"), original.tensors("learner.safetensors")
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_the_copy_of_a_checkpoint_is_verified(finished, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only the files that it was copied from."""

    def damaged(source: Path, target: Path) -> None:
        copytree(source, target)
        for file in target.glob("learner.safetensors"):
            file.write_bytes(file.read_bytes()[:-1] + b"\x7f")

    copytree = shutil.copytree
    monkeypatch.setattr(shutil, "copytree", damaged)
    with pytest.raises(UserError, match=r"step_0+120 damaged \(learner.safetensors sha256\)"):
        resume_training(finished.run_dir, total_timesteps=140, output_dir=tmp_path, show_progress=False)
    assert not list(tmp_path.iterdir())


def test_foreign_files_are_refused_without_being_read_as_code(tmp_path: Path) -> None:
    import pickle

    path = tmp_path / "model.zip"
    path.write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(UserError, match="not a rl_training agent or checkpoint"):
        load_agent(path)
    with pytest.raises(UserError, match="no checkpoint found"):
        load_agent(tmp_path)
    with pytest.raises(UserError, match="no such file"):
        load_agent(tmp_path / "nothing")


def test_evaluating_zero_episodes_is_refused(finished_run) -> None:
    with pytest.raises(ValueError, match="num_episodes must be >= 1"):
        evaluate_checkpoint(finished_run("tqc").run_dir, 0)


@pytest.mark.sweep
def test_a_checkpoint_away_from_its_run(quick_config, tmp_path: Path) -> None:
    """A copied checkpoint stands alone: it goes on in a new run, and ends as the whole one did."""
    whole = train(quick_config("sac", tmp_path / "whole"), show_progress=False)
    part = train(quick_config("sac", tmp_path / "cut"), callbacks=[StopAt(57)], show_progress=False)
    copy = Path(shutil.copytree(part.checkpoint_path, tmp_path / "elsewhere" / "mine"))
    shutil.rmtree(tmp_path / "cut")
    with pytest.raises(UserError) as refused:
        resume_training(copy, show_progress=False)
    assert str(refused.value) == f"{copy}: a checkpoint away from its run; output_dir=... resumes it in a new run"
    stopped = resume_training(copy, output_dir=tmp_path / "new", callbacks=[StopAt(58), Die()], show_progress=False)
    resumed = resume_training(stopped.run_dir, show_progress=False)
    assert resumed.run_dir == stopped.run_dir
    (a, rows, _), (b, later_rows, _) = state_of(whole), state_of(resumed)
    assert [name for name in a if not torch.equal(a[name], b[name])] == []
    assert later_rows == rows[-len(later_rows) :] and later_rows[0]["step"] > 57


class Die(Callback):
    """Before a new checkpoint is written: the next resume finds the copied one."""

    def on_end(self, session) -> None:
        for path in list_checkpoints(session.run_dir / "checkpoints")[1:]:
            shutil.rmtree(path)


def test_the_last_step_may_go_past_the_total(quick_config, tmp_path: Path) -> None:
    config = quick_config("dqn", tmp_path, total_timesteps=61, num_envs=4)
    result = train(config, show_progress=False)
    assert result.metrics["global_step"] == 64
    for total in (None, 61, 64):
        again = resume_training(result.run_dir, total_timesteps=total, show_progress=False)
        assert again.metrics["already_finished"] and again.checkpoint_path == result.checkpoint_path
    with pytest.raises(UserError, match=r"total_timesteps must be >= 64, the checkpoint's step, got 60"):
        resume_training(result.run_dir, total_timesteps=60, show_progress=False)
    assert resume_training(result.run_dir, total_timesteps=65, show_progress=False).metrics["global_step"] == 68


def test_a_checkpoint_that_lost_its_environments_is_damaged(finished_run, tmp_path: Path) -> None:
    """Only a run that is about to go online for the first time has none."""
    run_dir = Path(shutil.copytree(finished_run("tqc").run_dir, tmp_path / "run"))
    checkpoint = list_checkpoints(run_dir / "checkpoints")[-1]
    (checkpoint / "envs.safetensors").unlink()
    seal(checkpoint, step=120)
    with pytest.raises(UserError, match=r"damaged \(no envs.safetensors\)"):
        resume_training(checkpoint, total_timesteps=140)


@pytest.mark.sweep
def test_a_large_replay_is_saved_in_pieces(quick_config, tmp_path: Path, monkeypatch) -> None:
    """What is read back at a time stays small, and it is the same replay."""
    config = quick_config("sac", tmp_path / "a", checkpoint_interval=1000, num_envs=2)
    whole = train(config, show_progress=False)
    monkeypatch.setattr(replay_part, "MAX_SEGMENT_BYTES", 600)
    pieces = train(dataclasses.replace(config, output_dir=tmp_path / "b"), show_progress=False)
    one, several = (load_checkpoint(result.checkpoint_path) for result in (whole, pieces))
    assert len(one.names("replay_")) == 1 and len(several.names("replay_")) > 3
    rows = [several.tensors(name) for name in several.names("replay_")]
    for field, tensor in one.tensors(one.names("replay_")[0]).items():
        assert torch.equal(torch.cat([part[field] for part in rows], 1), tensor)
    assert all(sum(tensor.nbytes for tensor in part.values()) <= 600 for part in rows)
    ends = [resume_training(result.run_dir, total_timesteps=180, show_progress=False) for result in (whole, pieces)]
    a, b = (load_checkpoint(end.checkpoint_path).tensors("learner.safetensors") for end in ends)
    assert all(torch.equal(a[name], b[name]) for name in a)
