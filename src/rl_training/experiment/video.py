"""Write rendered frames as a VP9 video that every browser plays."""

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

ENCODER = (
    *("-an", "-c:v", "libvpx-vp9", "-deadline", "realtime", "-cpu-used", "8", "-row-mt", "1"),
    *("-crf", "33", "-b:v", "0", "-pix_fmt", "yuv420p"),
    # Subsampled colour needs even sizes; padding one pixel keeps the rest sharp where scaling would blur it.
    *("-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2"),
)


def write_video(frames: Iterable[Frame], path: Path, fps: int) -> Path:
    """Encode `frames` (uint8, height x width x 3) into the .webm file `path`, one frame in memory at a time."""
    if fps < 1:
        raise UserError(f"a video needs at least 1 frame per second, got fps={fps}")
    remaining = iter(frames)
    first = next(remaining, None)
    if first is None:
        raise UserError(f"no frames to write to {path.name}; does the environment render rgb_array frames?")
    shape = _checked(first, first.shape).shape
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.part")
    import imageio_ffmpeg  # 30 MB of ffmpeg: only those who film need it

    command = [imageio_ffmpeg.get_ffmpeg_exe(), "-y", "-v", "error"]
    command += ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{shape[1]}x{shape[0]}", "-r", str(fps), "-i", "-"]
    command += [*ENCODER, "-f", "webm", str(unfinished)]
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
        pass  # ffmpeg gave up; its exit status and message say why


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
