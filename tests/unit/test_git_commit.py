"""The commit that runs and results record."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from rl_training.files.run_directory import git_commit


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with two folders, a committed file in each."""
    for folder in ("code", "results"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "file").write_text("first\n")
    name = ["-c", "user.name=someone", "-c", "user.email=someone@example.org"]
    for words in (["init", "-q"], ["add", "."], [*name, "commit", "-qm", "first"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    return tmp_path


def test_a_change_anywhere_counts_from_every_folder(checkout: Path) -> None:
    clean = git_commit(checkout / "results")
    assert clean is not None and len(clean) == 40
    (checkout / "code" / "file").write_text("second\n")
    assert git_commit(checkout) == git_commit(checkout / "results") == f"{clean}+changes"
    assert git_commit(checkout / "results", exclude=["results"]) == f"{clean}+changes"


def test_excluded_folders_do_not_count(checkout: Path) -> None:
    clean = git_commit(checkout)
    (checkout / "results" / "file").write_text("second\n")
    assert git_commit(checkout, exclude=["results"]) == clean
    assert git_commit(checkout) == f"{clean}+changes"
