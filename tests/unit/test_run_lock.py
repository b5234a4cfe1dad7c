"""The lock of a run directory: it names its holder, and taking it never leaves its file empty."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rl_training.core.checks import UserError
from rl_training.files.run_directory import RunLock, is_locked


def test_the_file_names_the_last_holder_alone(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("process 123456789012 on a machine with a much longer name than this one has " * 5)
    with RunLock(tmp_path):
        text = (tmp_path / ".lock").read_text()
        assert text.startswith(f"process {os.getpid()} on ") and text.count("process") == 1
        assert is_locked(tmp_path)
        with pytest.raises(UserError, match=rf"in use by process {os.getpid()} on [^\n]+$"):
            RunLock(tmp_path).acquire()
    assert is_locked(tmp_path) is False
    assert (tmp_path / ".lock").read_text() == text


def test_a_holder_that_is_being_written_is_named_without_the_rest_of_an_older_one(tmp_path: Path) -> None:
    with RunLock(tmp_path):
        (tmp_path / ".lock").write_text("process 1 on here\n56789 on elsewhere\n")
        with pytest.raises(UserError, match=r"in use by process 1 on here$"):
            RunLock(tmp_path).acquire()


def test_the_file_is_not_emptied_before_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Emptying a file takes milliseconds on ext4."""
    (tmp_path / ".lock").write_text("x" * 1000)
    inode, sizes = (tmp_path / ".lock").stat().st_ino, []
    gethostname = "rl_training.files.run_directory.socket.gethostname"
    monkeypatch.setattr(gethostname, lambda: sizes.append((tmp_path / ".lock").stat().st_size) or "here")
    with RunLock(tmp_path):
        assert (tmp_path / ".lock").stat().st_ino == inode and sizes == [1000]
