"""Writing rendered frames as a video: .webm (VP9), .mp4 (H.264) or .gif."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from rl_training.core.checks import UserError

Frame = NDArray[np.uint8]

# Subsampled colour needs even sizes; one pixel of padding avoids the blur of scaling.
EVEN = ("-pix_fmt", "yuv420p", "-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2")
ENCODERS = {
    ".webm": (
        *("-c:v", "libvpx-vp9", "-deadline", "realtime", "-cpu-used", "8", "-row-mt", "1", "-crf", "33", "-b:v", "0"),
        *(*EVEN, "-f", "webm"),
    ),
    ".mp4": ("-c:v", "libx264", "-preset", "fast", "-crf", "23", "-movflags", "+faststart", *EVEN, "-f", "mp4"),
    # A palette for each frame, since one for all would need every frame in memory. At most 50 fps: viewers slow down
    # delays below two hundredths of a second.
    ".gif": (
        *("-vf", "fps=min(source_fps\\,50),split[a][b];[a]palettegen=stats_mode=single[p];[b][p]paletteuse=new=1"),
        *("-f", "gif"),
    ),
}


def check_video_path(path: Path) -> Path:
    """Return the path, or reject one whose suffix is of no supported format."""
    if path.suffix.lower() not in ENCODERS:
        *others, last = ENCODERS
        raise UserError(f"{path}: a video's name must end in {', '.join(others)} or {last}")
    return path


def write_video(frames: Iterable[Frame], path: Path, fps: int) -> Path:
    """Encode `frames` (uint8, height x width x 3) in the format of `path`'s suffix, one frame in memory at a time."""
    encode = ENCODERS[check_video_path(path).suffix.lower()]
    if fps < 1:
        raise UserError(f"a video needs at least 1 frame per second, got fps={fps}")
    remaining = iter(frames)
    first = next(remaining, None)
    if first is None:
        raise UserError(f"no frames to write to {path.name}; does the environment render rgb_array frames?")
    shape = _checked(first, first.shape).shape
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.part")
    import imageio_ffmpeg  # 30 MB of ffmpeg: imported only where a video is written

    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-y", "-v", "error"]
    command += ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{shape[1]}x{shape[0]}", "-r", str(fps), "-i", "-"]
    command += ["-an", *encode, str(unfinished)]
    try:
        # Messages go to a file: a full stderr pipe would block the encoder while we block on its stdin.
        with tempfile.TemporaryFile() as messages:
            encoder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=messages)
            try:
                _feed(encoder, first, remaining)
            except BaseException:
                encoder.kill()
                encoder.wait()
                raise
            if encoder.wait() != 0:
                raise UserError(f"{path}: ffmpeg could not write it: {_last_line(messages)}")
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return path


def _feed(encoder: subprocess.Popen[bytes], first: Frame, remaining: Iterable[Frame]) -> None:
    assert encoder.stdin is not None
    try:
        encoder.stdin.write(first.tobytes())
        for frame in remaining:
            encoder.stdin.write(_checked(frame, first.shape).tobytes())
        encoder.stdin.close()
    except BrokenPipeError:
        pass  # ffmpeg failed; its exit status and message are reported


def _checked(frame: Frame, shape: tuple[int, ...]) -> Frame:
    if frame.dtype != np.uint8 or frame.ndim != 3 or frame.shape[2] != 3 or 0 in frame.shape:
        raise UserError(f"video frames must be uint8 height x width x 3, got {frame.dtype} {frame.shape}")
    if frame.shape != shape:
        raise UserError(f"video frames must keep one size, got {frame.shape} after {shape}")
    return frame


def _last_line(messages: IO[bytes]) -> str:
    messages.seek(0)
    lines = messages.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "no message"
