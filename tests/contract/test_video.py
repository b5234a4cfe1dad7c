"""A written video decodes back to the frames that went in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from harness import decode
from numpy.typing import NDArray

from rl_training.core.checks import UserError
from rl_training.report.video import write_video
from rl_training.run.workflows import record_checkpoint


def grey_ramp(count: int, height: int, width: int) -> Iterator[NDArray[np.uint8]]:
    for index in range(count):
        yield np.full((height, width, 3), 20 * index, dtype=np.uint8)


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


@pytest.mark.parametrize(
    ("name", "codec", "size"), [("a.webm", "vp9", (34, 52)), ("a.mp4", "h264", (34, 52)), ("a.GIF", "gif", (33, 51))]
)
def test_the_ending_of_the_name_is_the_format(tmp_path: Path, name: str, codec: str, size: tuple[int, int]) -> None:
    meta, frames = decode(write_video(grey_ramp(10, 33, 51), tmp_path / name, fps=25))
    assert str(meta["codec"]).startswith(codec) and meta["fps"] == 25.0
    assert frames.shape == (10, *size, 3)
    assert frames[:, :33, :51].mean(axis=(1, 2, 3)) == pytest.approx(20.0 * np.arange(10), abs=6)
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_a_fast_gif_keeps_its_length(tmp_path: Path) -> None:
    """Delays are hundredths of a second, and viewers slow down those below two."""
    meta, frames = decode(write_video(grey_ramp(12, 16, 16), tmp_path / "a.gif", fps=60))
    assert meta["fps"] == 50.0 and len(frames) == 10


@pytest.mark.parametrize("name", ["film", "film.avi", "film.webm.txt"])
def test_another_format_is_rejected_before_anything_is_played(tmp_path: Path, name: str) -> None:
    def played() -> Iterator[NDArray[np.uint8]]:
        raise AssertionError("played")
        yield

    for film in (lambda path: write_video(played(), path, fps=30), lambda path: record_checkpoint("no/such/run", path)):
        with pytest.raises(UserError, match=rf"{name}: a video's name must end in \.webm, \.mp4 or \.gif$"):
            film(tmp_path / name)
    assert not list(tmp_path.iterdir())
