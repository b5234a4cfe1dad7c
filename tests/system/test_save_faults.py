"""A save may die at any system call, on any disk: the checkpoint before it loads, or the new one does, whole."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import make_quick_config
from fault_harness import (
    BROKEN,
    REFUSED,
    SAVED,
    Call,
    Contents,
    Fault,
    Run,
    calls_of,
    can_trace,
    child,
    contents,
    fault_points,
    leftovers,
    same,
    traced_child,
)

from rl_training.checkpoint import write as checkpoint_writing
from rl_training.checkpoint.read import list_checkpoints, load_checkpoint, newest_checkpoint
from rl_training.cli.main import main
from rl_training.core.checks import UserError
from rl_training.data.replay.part import segment_rows
from rl_training.files import atomic as files
from rl_training.run import saver as saving
from rl_training.run.agent import load_agent
from rl_training.run.resume import resume_training
from rl_training.run.run import train
from rl_training.run.session import TrainingFailure

traced = pytest.mark.skipif(not can_trace(), reason="needs strace and permission to trace")
SAVES = {"first": 10, "second": 20, "rotating": 30, "after a rotation": 40}  # two are kept


class Scene:
    """The directory before a save, and what each checkpoint must hold."""

    def __init__(self, tmp_path: Path, step: int) -> None:
        self.run, self.step, self.count = Run(tmp_path), step, 0
        self.tmp_path, self.before = tmp_path, tmp_path / "before" / "checkpoints"
        self.before.parent.mkdir()
        self.expected: dict[int, Contents] = {}
        for earlier in range(10, step, 10):
            self.expected[earlier] = contents(self.run.save_to(self.before, earlier))
        self.run.go_to(step)
        self.expected[step] = contents(self.run.save_to(self.fresh(), step))

    def fresh(self) -> Path:
        """A copy of the directory, in a run of its own."""
        self.count += 1
        root = self.tmp_path / f"copy{self.count}" / "checkpoints"
        shutil.copytree(self.before.parent, root.parent, copy_function=os.link)  # a save writes into no old file
        return root

    def strike(self, root: Path, fault: Fault, effect: str) -> int:
        """Save under strace; if the disk refuses, save again in the same process."""

        def work() -> int:
            saver = self.run.saver(root)
            if self.run.save(saver, self.step) is not None:
                saver.finish_rotation()
                return SAVED
            assert len(self.run.notes) == 1 and "the previous one is kept" in self.run.notes[0]
            self.check(root)
            if self.run.save(saver, self.step + 10) is None or saver.failures:
                return BROKEN
            saver.close()
            return BROKEN if leftovers(root) else REFUSED

        def inject(pid: int) -> list[str]:
            path = fault.path.format(run=root.parent, pid=pid)
            return ["-P", path, "-e", f"inject={fault.name}:{effect}:when={fault.number}"]

        return traced_child(work, self.tmp_path / "log", inject)

    def check(self, root: Path) -> None:
        """What is there loads, is the newest or the one before, and holds exactly what was saved."""
        try:
            checkpoint, skipped = newest_checkpoint(root)
        except UserError as error:
            assert self.step == 10 and "no checkpoint found" in str(error)
            return
        assert skipped == [] and checkpoint.step in (self.step - 10, self.step)
        assert same(contents(checkpoint), self.expected[checkpoint.step])

    def recover(self, root: Path) -> None:
        """The next save works and clears away what the dead one left."""
        assert child(lambda: SAVED if self.run.save_to(root, self.step + 10) else BROKEN) == SAVED
        self.run.saver(root).close()
        assert newest_checkpoint(root)[0].step == self.step + 10 and leftovers(root) == []


@pytest.fixture
def scene(save: str, tmp_path: Path) -> Scene:
    return Scene(tmp_path, SAVES[save])


def saves(*kept: str) -> list[Any]:
    """Every kind of save, those not kept only in the sweep."""
    return [pytest.param(name, marks=() if name in kept else pytest.mark.sweep) for name in SAVES]


def points_of(scene: Scene) -> list[Fault]:
    root = scene.fresh()
    assert traced_child(lambda: SAVED if scene.run.save_to(root, scene.step) else BROKEN, scene.tmp_path / "log") == 0
    return fault_points(calls_of(scene.tmp_path / "log"), root.parent)


@traced
@pytest.mark.parametrize("save", saves("rotating"))
def test_killed_at_every_call_that_changes_a_file(scene: Scene) -> None:
    points = points_of(scene)
    assert {"openat", "writev", "fsync"} <= {point.name for point in points} and len(points) >= 20
    for point in points:
        root = scene.fresh()
        assert scene.strike(root, point, "signal=KILL") == -9, point
        scene.check(root)
        scene.recover(root)


@traced
@pytest.mark.parametrize(
    ("save", "error"),
    [
        pytest.param(*one.values, error, marks=one.marks)
        for error, kept in (("ENOSPC", ("first",)), ("EIO", ()))
        for one in saves(*kept)
    ],
)
def test_refused_at_every_call_that_changes_a_file(scene: Scene, error: str) -> None:
    outcomes = []
    for point in points_of(scene):
        root = scene.fresh()
        outcomes.append(scene.strike(root, point, f"error={error}"))
        # What a rotation cannot remove, or a link that must be copied instead, is no reason to refuse the save.
        assert outcomes[-1] in (SAVED, REFUSED), point
        if outcomes[-1] == SAVED:
            scene.check(root)
            scene.recover(root)
    assert outcomes.count(REFUSED) >= 15


@traced
def test_everything_is_on_the_disk_before_it_counts(tmp_path: Path) -> None:
    scene = Scene(tmp_path, 30)
    points_of(scene)
    root = tmp_path / f"copy{scene.count}" / "checkpoints"
    calls = [call for call in calls_of(tmp_path / "log") if call.changes]
    temporary = next(call.paths[0] for call in calls if call.name.startswith("mkdir"))
    final = str(root / "step_000000000030")

    def one(name: str, *paths: str) -> Call:
        (found,) = [call for call in calls if call.name.startswith(name) and call.paths == list(paths)]
        return found

    commit = one("rename", temporary, final)
    written = {call.paths[0] for call in calls if call.name.startswith("open")}
    assert {Path(path).name for path in written} == {
        "learner.safetensors", "envs.safetensors", "state.json", "manifest.json",
        "replay_000000000020_000000000030.safetensors",  # only what is new is written; the rest is linked
    }  # fmt: skip
    links = [call for call in calls if call.name.startswith("link")]
    assert [Path(call.paths[-1]).name for call in links] == [
        "replay_000000000000_000000000010.safetensors", "replay_000000000010_000000000020.safetensors",
    ]  # fmt: skip
    manifest = f"{temporary}/manifest.json"
    (begun,) = [call.begun for call in calls if call.name.startswith("open") and call.paths == [manifest]]
    for path in written:
        last_write = max(call.done for call in calls if call.name == "writev" and call.paths == [path])
        synced = one("fsync", path)
        assert last_write < synced.begun and synced.done < commit.begun
        assert path == manifest or synced.done < begun, "the manifest must come last"
    directory = one("fsync", temporary)
    assert max(one("fsync", manifest).done, *(call.done for call in links)) < directory.begun
    assert directory.done < commit.begun
    rotated = one("rename", str(root / "step_000000000010"), f"{root}/.del-step_000000000010-{calls[0].thread}")
    parent = one("fsync", str(root))
    assert commit.done < parent.begun and parent.done < rotated.begun
    assert all(call.begun > rotated.done for call in calls if call.name.startswith(("unlink", "rmdir")))
    name = Path(links[-1].paths[-1]).name
    assert os.path.samefile(root / "step_000000000020" / name, Path(final) / name)  # both that are kept have it


def test_links_do_not_grow_with_the_replay(tmp_path: Path, monkeypatch) -> None:
    """A save begins with what the last rotation left: it links and unlinks only what has changed since."""
    run, root, calls = Run(tmp_path), tmp_path / "checkpoints", Counter[str]()

    def counted(name: str, inner: Callable[..., None]) -> Callable[..., None]:
        return lambda *args, **kwargs: (calls.update([name]), inner(*args, **kwargs))[1]

    for name in ("link", "unlink"):
        monkeypatch.setattr(os, name, counted(name, getattr(os, name)))
    saver = run.saver(root)
    for step in range(1, 13):
        calls.clear()
        assert run.save(saver, step) is not None
        saver.finish_rotation()
    assert calls == {"link": 2, "unlink": 4}  # the segments written meanwhile; networks, episodes, state and manifest
    for path in list_checkpoints(root):
        assert [segment_rows(name) for name in load_checkpoint(path).names("replay_")] == [
            (row, row + 1) for row in range(int(path.name[-2:]))
        ]
    saver.close()
    assert leftovers(root) == []


def test_a_save_takes_over_only_the_very_same_files(tmp_path: Path) -> None:
    """After a resume a segment of the same rows may be another: by name alone the old one would be taken for it."""
    run, root = Run(tmp_path), tmp_path / "checkpoints"
    saver = run.saver(root)
    for step in (10, 20, 30):
        run.save(saver, step)
    saver.finish_rotation()
    (spare,) = root.glob(".del-*")
    (name,) = (path.name for path in spare.iterdir())
    (spare / name).unlink()
    (spare / name).write_text("another")
    (spare / "more.json").write_text("")
    checkpoint = run.save(saver, 40)
    assert same(contents(load_checkpoint(checkpoint.path)), contents(checkpoint))
    assert sorted(path.name for path in checkpoint.path.iterdir()) == sorted([*checkpoint.files, "manifest.json"])


def test_a_deleted_checkpoint_does_not_stop_the_next_save(tmp_path: Path) -> None:
    run, root = Run(tmp_path), tmp_path / "checkpoints"
    saver = run.saver(root)
    for step in (10, 20):
        run.save(saver, step)
    shutil.rmtree(root)
    assert run.save(saver, 30) is not None and run.notes == []
    assert load_checkpoint(root / "step_000000000030").names("replay_") == [
        "replay_000000000000_000000000030.safetensors"
    ]


@pytest.mark.parametrize("can_exchange", [True, False])
def test_the_same_step_saved_again_is_there_at_every_moment(can_exchange: bool, tmp_path: Path, monkeypatch) -> None:
    """The last evaluation of a run, when it is repeated after a signal, belongs to the checkpoint that is there."""
    run, root, seen, rename = Run(tmp_path, keep=1), tmp_path / "checkpoints", list[list[Path]](), os.rename
    run.save_to(root, 10)

    def look(*paths: Any) -> None:
        seen.append(list_checkpoints(root))
        rename(*paths)

    monkeypatch.setattr(os, "rename", look)
    if not can_exchange:
        monkeypatch.setattr(checkpoint_writing, "exchange", lambda *_: False)
    again = run.save_to(root, 10)
    assert again is not None and newest_checkpoint(root)[0].files == again.files
    assert seen and (not can_exchange or all(found == [root / "step_000000000010"] for found in seen))


def test_a_replay_that_is_not_what_was_saved_is_written_anew(tmp_path: Path) -> None:
    """An inexact resume ends the open episode in the replay: the next resume must find that end too."""
    run, root = Run(tmp_path), tmp_path / "checkpoints"
    run.save_to(root, 10)
    run.replay.cut_off([0])
    saver = run.saver(root)
    run.replay_part.changed_since = saver.newest
    for step in (20, 30):
        run.save(saver, step)
    saver.finish_rotation()
    found = load_checkpoint(root / "step_000000000030")
    assert [name[7:-12] for name in found.names("replay_")] == [
        "000000000000_000000000020",
        "000000000020_000000000030",
    ]
    assert found.tensors(found.names("replay_")[0])["truncated"][0].nonzero().tolist() == [[9]]


def test_a_run_that_cannot_be_copied_is_one_line_and_leaves_nothing(tmp_path: Path, monkeypatch) -> None:
    config = make_quick_config("dqn", tmp_path / "here", total_timesteps=40, eval_episodes=0)
    run_dir = train(config, show_progress=False).run_dir

    def refuse(*words: Any, **more: Any) -> None:
        raise shutil.Error([("from", "to", "[Errno 28] No space left on device")])

    monkeypatch.setattr(shutil, "copytree", refuse)
    with pytest.raises(UserError, match=r"cannot be copied to .*there.* \(\[Errno 28\] No space left on device\)"):
        resume_training(run_dir, total_timesteps=60, output_dir=tmp_path / "there", show_progress=False)
    assert list((tmp_path / "there").iterdir()) == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 400 KiB with the kernel's own answers."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "none", str(disk)], capture_output=True).returncode:
        pytest.skip("mounting is not permitted")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk: Path, leave: int) -> Path:
    (disk / "ballast").write_bytes(bytes(shutil.disk_usage(disk).free - leave))
    return disk / "ballast"


def test_a_full_disk_keeps_the_old_checkpoint_and_three_refusals_end_the_run(small_disk: Path, tmp_path: Path) -> None:
    run, root = Run(tmp_path), small_disk / "checkpoints"
    saver = run.saver(root)
    expected = contents(run.save(saver, 10))
    ballast = fill(small_disk, leave=8192)
    for step in (20, 30):
        assert run.save(saver, step) is None
        assert run.notes[-1] == (
            f"checkpoint at step {step} could not be written: No space left on device; the previous one is kept"
        )
        assert same(contents(newest_checkpoint(root)[0]), expected) and leftovers(root) == []
    ballast.unlink()
    assert run.save(saver, 40) is not None and saver.failures == 0
    fill(small_disk, leave=8192)
    assert [run.save(saver, step) for step in (50, 60)] == [None, None]
    with pytest.raises(OSError, match=r"3 checkpoints in a row could not be written \(No space left on device\)"):
        run.save(saver, 70)
    assert newest_checkpoint(root)[0].step == 40


def test_a_run_on_a_full_disk_ends_in_one_line_and_resumes_when_there_is_room(small_disk: Path) -> None:
    config = make_quick_config(
        "dqn", small_disk, {"hidden_sizes": (64,)}, eval_episodes=0, checkpoint_interval=10, log_interval=1000
    )
    ballast = fill(small_disk, leave=80_000)
    with pytest.raises(TrainingFailure) as failure:
        train(config, show_progress=False)
    (run_dir,) = (path for path in small_disk.iterdir() if path.is_dir())
    assert str(failure.value).startswith(str(run_dir)) and "No space left on device" in str(failure.value)
    assert "\n" not in str(failure.value)
    ballast.unlink()
    assert newest_checkpoint(run_dir / "checkpoints")[1] == []
    assert resume_training(run_dir, show_progress=False).metrics["global_step"] == 120


def test_an_output_directory_that_cannot_be_written_is_one_line(tmp_path: Path, capsys) -> None:
    file = tmp_path / "file"
    file.write_text("")
    words = ["train", "dqn", "CartPole-v1", "--total-timesteps", "50", "--quiet", "--output-dir"]
    assert main([*words, str(file)]) == 2
    assert capsys.readouterr().err == f"error: output_dir {file}: cannot be written (Not a directory)\n"


def test_a_read_only_disk_is_one_line(small_disk: Path, capsys) -> None:
    run = train(make_quick_config("dqn", small_disk, eval_episodes=0, total_timesteps=30), show_progress=False)
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    words = ["train", "dqn", "CartPole-v1", "--total-timesteps", "50", "--quiet", "--output-dir"]
    assert main([*words, str(small_disk)]) == 2
    assert capsys.readouterr().err == f"error: output_dir {small_disk}: cannot be written (Read-only file system)\n"
    assert main(["resume", str(run.run_dir), "--total-timesteps", "60", "--quiet"]) == 2
    assert capsys.readouterr().err == f"error: {run.run_dir / '.lock'}: cannot be written (Read-only file system)\n"


def best_of(result: Any) -> list[float | None]:
    """The best returns that a run's last checkpoint holds."""
    return load_checkpoint(result.checkpoint_path).state["parts"]["session"]["best"]


def test_a_best_agent_that_the_disk_refuses_is_written_later(tmp_path: Path, monkeypatch, capsys) -> None:
    config = make_quick_config("dqn", tmp_path / "runs", eval_interval=20, checkpoint_interval=25, eval_episodes=2)
    expected = train(config, run_suffix="whole", show_progress=False)
    refused: list[str] = []

    def replace_file(path: Path, data: bytes) -> None:
        if len(refused) < 2 and path.name.endswith("best.safetensors"):
            refused.append(path.name)
            raise OSError(errno.ENOSPC, "No space left on device")
        files.replace_file(path, data)

    monkeypatch.setattr(saving, "replace_file", replace_file)
    result = train(config, run_suffix="refused", show_progress=False)
    line = "best agent of seed 0 could not be written: No space left on device; it is tried again\n"
    assert capsys.readouterr().err.count(line) == len(refused) == 2
    name = "agents/seed_0_best.safetensors"
    assert (result.run_dir / name).read_bytes() == (expected.run_dir / name).read_bytes()
    assert best_of(result) == best_of(expected)


def test_a_best_agent_that_is_not_on_the_disk_does_not_count(tmp_path: Path, monkeypatch) -> None:
    def replace_file(path: Path, data: bytes) -> None:
        raise OSError(errno.EIO, "Input/output error")

    config = make_quick_config("dqn", tmp_path, eval_interval=20, checkpoint_interval=25, eval_episodes=2)
    monkeypatch.setattr(saving, "replace_file", replace_file)
    result = train(config, show_progress=False)
    assert best_of(result) == [None]
    assert load_agent(result.run_dir / "agents" / "seed_0_final.safetensors").step == 120


def test_a_disk_that_cannot_hold_the_checkpoints_is_told_at_the_start(tmp_path: Path, monkeypatch, capsys) -> None:
    config = make_quick_config("dqn", tmp_path, eval_episodes=0, total_timesteps=30)
    train(config, show_progress=False)
    assert "checkpoints of this run" not in capsys.readouterr().err
    usage = shutil.disk_usage(tmp_path)._replace(free=5000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    run_dir = train(config, show_progress=False).run_dir
    assert re.fullmatch(
        r"the checkpoints of this run need up to [0-9.e-]+ GiB, 4.7e-06 GiB are free in .*\n", capsys.readouterr().err
    )
    # What is on the disk already needs no room.
    resume_training(run_dir, total_timesteps=35, show_progress=False)
    needed = float(re.search(r"up to (\S+) GiB", capsys.readouterr().err)[1])
    assert needed * 2**30 < 30_000
