"""A written video decodes back to the frames that went in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import imageio_ffmpeg
import numpy as np
import pytest
from numpy.typing import NDArray

from rl_training.core.checks import UserError
from rl_training.experiment.video import write_video


def grey_ramp(count: int, height: int, width: int) -> Iterator[NDArray[np.uint8]]:
    for index in range(count):
        yield np.full((height, width, 3), 20 * index, dtype=np.uint8)


def decode(path: Path) -> tuple[dict[str, object], NDArray[np.uint8]]:
    reader = imageio_ffmpeg.read_frames(str(path))
    meta = next(reader)
    width, height = meta["source_size"]
    frames = [np.frombuffer(frame, dtype=np.uint8).reshape(height, width, 3) for frame in reader]
    return meta, np.stack(frames)


def test_video_holds_every_frame(tmp_path: Path) -> None:
    path = write_video(grey_ramp(10, 48, 64), tmp_path / "deep" / "video.webm", fps=25)
    meta, frames = decode(path)
    assert frames.shape == (10, 48, 64, 3)
    assert (meta["codec"], meta["fps"]) == ("vp9", 25.0)
    brightness = frames.mean(axis=(1, 2, 3))
    assert brightness == pytest.approx(20.0 * np.arange(10), abs=6)
    assert [file.name for file in path.parent.iterdir()] == ["video.webm"]


def test_odd_sizes_are_padded(tmp_path: Path) -> None:
    _, frames = decode(write_video(grey_ramp(3, 33, 51), tmp_path / "video.webm", fps=10))
    assert frames.shape == (3, 34, 52, 3)


def test_no_frames(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no frames"):
        write_video([], tmp_path / "video.webm", fps=30)
    assert not list(tmp_path.iterdir())


def test_a_size_change_is_refused_and_leaves_the_old_video(tmp_path: Path) -> None:
    path = write_video(grey_ramp(2, 16, 16), tmp_path / "video.webm", fps=30)
    before = path.read_bytes()
    with pytest.raises(UserError, match="one size"):
        write_video([*grey_ramp(2, 16, 16), *grey_ramp(1, 18, 16)], path, fps=30)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_wrong_pixels_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="uint8"):
        write_video([np.zeros((16, 16, 3))], tmp_path / "video.webm", fps=30)  # type: ignore[list-item]


def test_encoder_failure_is_reported(tmp_path: Path) -> None:
    (tmp_path / ".video.webm.part").mkdir()
    with pytest.raises((UserError, OSError)):
        write_video(grey_ramp(2, 16, 16), tmp_path / "video.webm", fps=30)
