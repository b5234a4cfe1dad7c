"""Our writer of safetensors against the library's: the same bytes."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import torch

from rl_training.core.checks import UserError
from rl_training.files import atomic as files
from rl_training.files.tensor_files import TYPE_NAMES, pack_tensors


@pytest.mark.parametrize("metadata", [None, {"about": '{"text": "caf\\u00e9 \\n é"}'}])
def test_the_same_bytes_as_the_library(metadata: dict[str, str] | None) -> None:
    rng = torch.Generator().manual_seed(0)
    tensors = {"": torch.zeros(0), "number": torch.tensor(3), "transposed": torch.rand(3, 4, generator=rng).T}
    for number, dtype in enumerate([*TYPE_NAMES, *TYPE_NAMES]):
        shape = (number % 3, number + 1)[number % 2 :]
        tensors[f"é{number * 7 % 12} \"{number}'"] = (torch.rand(shape, generator=rng) * 100).to(dtype)
    expected = safetensors.numpy.save(
        {name: np.asarray(tensor.numpy(), order="C") for name, tensor in tensors.items()}, metadata
    )
    assert pack_tensors(tensors, metadata) == expected
    assert pack_tensors({}, metadata) == safetensors.numpy.save({}, metadata)


def test_a_disk_that_takes_few_bytes_at_a_time(tmp_path: Path, monkeypatch) -> None:
    """writev may stop anywhere: in a part, between two, and takes no more parts than the system's limit."""
    parts = [bytes([number % 251]) * (number % 5) for number in range(60)]

    def writev(descriptor: int, buffers: list[memoryview]) -> int:
        assert 0 < len(buffers) <= 7
        return os.write(descriptor, b"".join(buffers)[:8])

    monkeypatch.setattr(files, "MAX_PARTS", 7)
    monkeypatch.setattr(os, "writev", writev)
    files.sync_file(files.start_writing(tmp_path / "file", [memoryview(part) for part in parts]))
    assert (tmp_path / "file").read_bytes() == b"".join(parts)


def test_several_files_are_replaced_together_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = tmp_path / "a" / "first", tmp_path / "second"
    files.replace_files({first: b"1", second: b"2"})
    files.replace_files({first: b"3", second: b"4"})
    assert (first.read_bytes(), second.read_bytes()) == (b"3", b"4")

    def full(path: Path, data: bytes) -> None:
        if path.name.endswith("second"):
            raise OSError(errno.ENOSPC, "No space left on device")
        write_synced(path, data)

    write_synced = files.write_synced
    monkeypatch.setattr(files, "write_synced", full)
    with pytest.raises(OSError, match="No space left"):
        files.replace_files({first: b"5", second: b"6"})
    monkeypatch.undo()
    with pytest.raises(IsADirectoryError):
        files.replace_files({second: b"7", tmp_path / "a": b"8"})
    assert sorted(one.name for one in tmp_path.rglob("*")) == ["a", "first", "second"]
    assert (first.read_bytes(), second.read_bytes()) == (b"3", b"4")


@pytest.mark.parametrize("path", [".", "/", ""])
def test_a_path_without_a_name_is_no_file(path: str) -> None:
    with pytest.raises(IsADirectoryError):
        files.replace_files({Path(path): b""})


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0
    with pytest.raises(UserError, match=f"{re.escape(str(tmp_path))}: cannot be read \\(Is a directory\\)"):
        files.read_bytes(tmp_path)
    assert not before or len(os.listdir("/proc/self/fd")) == before
