"""`rl-training doctor`: checks what works on this machine, and what to install."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from rl_training.cli.arguments import Args, add_command, print_answer

MARKS = {"ok": "ok  ", "info": "-   ", "problem": "!!  "}


def add_doctor(subparsers: Any) -> None:
    add_command(subparsers, "doctor", run_doctor, "check what works on this machine")


def run_doctor(args: Args) -> int:
    checks = examine()
    lines = [f"{MARKS[check['status']]} {check['name']:12s} {check['detail']}" for check in checks]
    print_answer(args, checks, "\n".join(lines))
    return 1 if any(check["status"] == "problem" for check in checks) else 0


def examine() -> list[dict[str, Any]]:
    """All checks, each with a name, a status (ok, info or problem) and a line of detail."""
    import importlib.metadata

    checks: list[dict[str, Any]] = []

    def add(name: str, status: str, detail: str) -> None:
        checks.append({"name": name, "status": status, "detail": detail})

    add("python", "ok", f"{platform.python_version()} on {platform.platform()}")
    _check_torch(add)
    for package, extra in (
        ("gymnasium", None),
        ("mujoco", "mujoco"),
        ("dm-control", "dmc"),
        ("Box2D", "box2d"),
        ("ale-py", "atari"),
        ("h5py", "offline"),
        ("tensorboard", "tensorboard"),
        ("wandb", "wandb"),
        ("mlflow-skinny", "mlflow"),
        ("pandas", "pandas"),
    ):
        try:
            add(package, "ok", importlib.metadata.version(package.lower()))
        except importlib.metadata.PackageNotFoundError:
            how = f"pip install 'rl-training[{extra}]'" if extra else "pip install gymnasium"
            add(package, "info" if extra else "problem", f"not installed; {how}")
    _check_rendering(add)
    free = shutil.disk_usage(os.getcwd()).free / 2**30
    add("disk", "ok" if free > 1 else "problem", f"{free:.1f} GiB free in the current directory")
    return checks


def _check_torch(add: Callable[[str, str, str], None]) -> None:
    import torch

    from rl_training.engine.rounding import numerics, numerics_warning, portable_to
    from rl_training.run.plan import choose_device, compile_obstacle

    add("torch", "ok", f"{torch.__version__}, {torch.get_num_threads()} threads")
    device = choose_device("auto")
    name = f" ({torch.cuda.get_device_name(0)})" if device == "cuda" else ""
    add("device", "ok", f"auto means {device}{name}")
    found = numerics(device)
    libraries = ", ".join(f"{name} {value}" for name, value in found.items() if name != "mode")
    where = f"same bits on {portable_to(found) or 'this processor only'} (eager, one thread)"
    add("numerics", "ok" if numerics_warning(found) is None else "info", f"{found['mode']}: {libraries}; {where}")
    obstacle = compile_obstacle(device)
    if obstacle is None:
        add("compile", "ok", "a C++ compiler is installed: long runs are compiled (compile: auto)")
    else:
        add("compile", "info", f"{obstacle}: runs stay eager, which takes up to twice as long")


def _check_rendering(add: Callable[[str, str, str], None]) -> None:
    for env_id in ("CartPole-v1", "HalfCheetah-v5"):
        add("rendering", *render_status(env_id))
    try:
        import imageio_ffmpeg

        add("video", "ok", f"ffmpeg {imageio_ffmpeg.get_ffmpeg_version()}")
    except Exception as error:
        add("video", "problem", f"no ffmpeg: {error}")


def render_status(env_id: str) -> tuple[str, str]:
    """The status and detail of rendering an environment without a display, for any error of its renderer."""
    from rl_training.core.checks import UserError
    from rl_training.envs.host.factory import EnvSource
    from rl_training.envs.host.pixels import describe_error, free_renderer

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
        return "info", f"{env_id}: {describe_error(error)}"
