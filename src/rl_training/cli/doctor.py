"""What this machine can do, and what to install for the rest."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
from contextlib import suppress
from typing import Any


def examine() -> list[dict[str, Any]]:
    checks: list[dict[str, Any]] = []

    def add(name: str, status: str, detail: str) -> None:
        checks.append({"name": name, "status": status, "detail": detail})

    add("python", "ok", f"{platform.python_version()} on {platform.platform()}")
    _torch(add)
    for package, extra in (
        ("gymnasium", None),
        ("mujoco", "mujoco"),
        ("dm-control", "dmc"),
        ("Box2D", "box2d"),
        ("ale-py", "atari"),
        ("h5py", "offline"),
        ("tensorboard", "tensorboard"),
    ):
        try:
            add(package, "ok", importlib.metadata.version(package.lower() if package != "Box2D" else "box2d"))
        except importlib.metadata.PackageNotFoundError:
            how = f"pip install 'rl-training[{extra}]'" if extra else "pip install gymnasium"
            add(package, "info" if extra else "problem", f"not installed; {how}")
    _rendering(add)
    free = shutil.disk_usage(os.getcwd()).free / 2**30
    add("disk", "ok" if free > 1 else "problem", f"{free:.1f} GiB free in the current directory")
    return checks


def _torch(add: Any) -> None:
    import torch

    from rl_training.engine.rounding import narrowed, numerics, portable_to
    from rl_training.run.plan import choose_device, compiler_present

    add("torch", "ok", f"{torch.__version__}, {torch.get_num_threads()} threads")
    device = choose_device("auto")
    name = f" ({torch.cuda.get_device_name(0)})" if device == "cuda" else ""
    add("device", "ok", f"auto means {device}{name}")
    found = numerics(device)
    libraries = ", ".join(f"{name} {value}" for name, value in found.items() if name != "mode")
    where = f"same bits on {portable_to(found) or 'this processor only'} (eager, one thread)"
    add("numerics", "ok" if narrowed(found) is None else "info", f"{found['mode']}: {libraries}; {where}")
    if compiler_present():
        add("compile", "ok", "a C++ compiler is there: long runs are compiled (compile: auto)")
    else:
        add("compile", "info", "no C++ compiler: runs stay eager; install g++ to train up to twice as fast")


def _rendering(add: Any) -> None:
    for env_id in ("CartPole-v1", "HalfCheetah-v5"):
        add("rendering", *_rendered(env_id))
    try:
        import imageio_ffmpeg

        add("video", "ok", f"ffmpeg {imageio_ffmpeg.get_ffmpeg_version()}")
    except Exception as error:
        add("video", "problem", f"no ffmpeg: {error}")


def _rendered(env_id: str) -> tuple[str, str]:
    """Status and detail of an environment drawn without a display, whatever its renderer raises."""
    from rl_training.core.checks import UserError
    from rl_training.envs.host.factory import EnvSource
    from rl_training.envs.host.pixels import free_renderer, said

    try:
        env = EnvSource(env_id).make(render_mode="rgb_array")
        try:
            env.reset(seed=0)
            frame: Any = env.render()
        finally:
            with suppress(Exception):
                env.close()
        return "ok", f"{env_id}: {frame.shape[1]}x{frame.shape[0]} without a display"
    except UserError as error:
        return "info", f"{env_id}: {error}"
    except Exception as error:
        free_renderer(error)
        return "info", f"{env_id}: {said(error)}"
