"""Reading checkpoints: each file once, and never bytes that were not verified."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
import torch

from rl_training.checkpoint import read
from rl_training.checkpoint.parts import restore
from rl_training.checkpoint.read import DamagedCheckpoint, load_checkpoint
from rl_training.checkpoint.write import save_checkpoint

FILES = ("a.safetensors", "b.safetensors")


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    files = {"a": {"x": torch.arange(1000.0)}, "b": {"x": torch.arange(7)}}
    with ThreadPoolExecutor(1) as pool:
        return save_checkpoint(tmp_path, 5, {"parts": {}}, files, pool=pool).path


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each file has been read."""
    found: Counter[str] = Counter()
    read_bytes = read.read_bytes

    def counted(path: Path, **options: Any) -> bytes:
        found[path.name] += 1
        return read_bytes(path, **options)

    monkeypatch.setattr(read, "read_bytes", counted)
    return found


def test_each_file_is_read_once(saved: Path, reads: Counter[str]) -> None:
    checkpoint = load_checkpoint(saved)
    assert [checkpoint.tensors(name)["x"].numel() for name in FILES] == [1000, 7]
    assert reads == dict.fromkeys(("manifest.json", "state.json", *FILES), 1)
    assert checkpoint.kept.keys() == set(FILES)
    restore(checkpoint, [])
    assert not checkpoint.kept  # a run holds its newest checkpoint
    assert checkpoint.tensors(FILES[0])["x"].numel() == 1000 and reads[FILES[0]] == 2


def test_a_file_changed_after_its_digest_was_verified(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The verified bytes are loaded; of files beyond the limit, which are read again, the change is seen."""
    monkeypatch.setattr(read, "MAX_KEPT_BYTES", (saved / FILES[1]).stat().st_size)
    checkpoint = load_checkpoint(saved)
    assert checkpoint.kept.keys() == {FILES[1]}
    for name in FILES:
        data = (saved / name).read_bytes()
        (saved / name).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert checkpoint.tensors(FILES[1])["x"].tolist() == list(range(7))
    with pytest.raises(DamagedCheckpoint, match=r"a.safetensors sha256"):
        checkpoint.tensors(FILES[0])


def test_files_are_verified_at_once(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    together, read_bytes = Barrier(2, timeout=60), read.read_bytes

    def both(path: Path, **options: Any) -> bytes:
        if path.name in FILES:
            together.wait()
        return read_bytes(path, **options)

    monkeypatch.setattr(read, "read_bytes", both)
    assert load_checkpoint(saved, only=FILES).kept.keys() == set(FILES)


def test_the_first_damaged_file_is_named(saved: Path) -> None:
    for name in FILES:
        (saved / name).write_bytes(b"")
    for _ in range(20):
        with pytest.raises(DamagedCheckpoint, match=r"a.safetensors sha256"):
            load_checkpoint(saved)
