"""Model files of Stable-Baselines3 with other members, weights or values than it wrote."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import torch
from harness import ROOT

GOLDEN = ROOT / "tests" / "data" / "sb3"


def rezipped(name: str, tmp_path: Path, **files: bytes | None) -> Path:
    """A model file with other members; None removes one."""
    with zipfile.ZipFile(GOLDEN / f"{name}.zip") as archive:
        members = {one: archive.read(one) for one in archive.namelist()}
    members |= {key.replace("__", "."): value for key, value in files.items()}  # type: ignore[dict-item]
    path = tmp_path / "model.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for key, value in members.items():
            if value is not None:
                archive.writestr(key, value)
    return path


def values(name: str, **changes: Any) -> bytes:
    """The JSON of a model file with other values; None removes one."""
    with zipfile.ZipFile(GOLDEN / f"{name}.zip") as archive:
        found = json.loads(archive.read("data")) | changes
    return json.dumps({key: value for key, value in found.items() if value is not None}).encode()


def weights(name: str, **changes: Any) -> bytes:
    """The weights of a model file with others among them; `__` stands for a dot, None removes one."""
    with zipfile.ZipFile(GOLDEN / f"{name}.zip") as archive:
        found = torch.load(io.BytesIO(archive.read("policy.pth")), weights_only=True)
    found |= {key.replace("__", "."): value for key, value in changes.items()}
    return saved({key: value for key, value in found.items() if value is not None})


def saved(value: Any) -> bytes:
    """What torch.save writes."""
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()
