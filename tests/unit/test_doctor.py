"""`rl-training doctor` says what is missing in one line each, whatever a renderer raises."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import pytest
from harness import run_program

from rl_training.cli import doctor
from rl_training.envs.host.factory import EnvSource


def renderings(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> list[dict[str, Any]]:
    """What doctor answers about rendering where every environment's renderer raises this."""

    class Unseen(gym.Env[Any, Any]):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return 0, {}

        def render(self) -> Any:
            raise error

        def close(self) -> None:
            raise RuntimeError("half made")

    monkeypatch.setattr(EnvSource, "make", lambda self, render_mode=None: Unseen())
    checks: list[dict[str, Any]] = []
    doctor._check_rendering(
        lambda name, status, detail: checks.append({"name": name, "status": status, "detail": detail})
    )
    return [check for check in checks if check["name"] == "rendering"]


class Mute(Exception):
    """As PyOpenGL's errors where there is no GL library."""

    def __str__(self) -> str:
        raise TypeError("no glGetError")


@pytest.mark.parametrize(
    "error", [Mute(), ValueError("two\nlines"), AttributeError("'NoneType' has no attribute 'eglQueryString'")]
)
def test_doctor_reports_any_rendering_error_in_one_line(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    found = renderings(monkeypatch, error)
    assert [check["status"] for check in found] == ["info", "info"]
    for check in found:
        assert type(error).__name__ in check["detail"] and "\n" not in check["detail"]
        assert ("libegl1" in check["detail"]) == ("eglQuery" in check["detail"])


def test_doctor_names_pyopengl_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "OpenGL", None)
    for missing in (
        ModuleNotFoundError("No module named 'OpenGL'", name="OpenGL"),
        RuntimeError("No OpenGL backend could be imported."),
    ):
        for check in renderings(monkeypatch, missing):
            assert "pip install PyOpenGL" in check["detail"] and "libegl1" not in check["detail"]


def test_doctor_prints_no_traceback_without_pyopengl(tmp_path: Path) -> None:
    """With the real MuJoCo, whose half-made viewer fails again when it is freed."""
    pytest.importorskip("mujoco")
    script = tmp_path / "check.py"
    script.write_text(
        "import os, sys\n"
        "os.environ['MUJOCO_GL'] = 'egl'\n"
        "sys.modules['OpenGL'] = None\n"
        "from rl_training.cli.doctor import render_status\n"
        "print(*render_status('HalfCheetah-v5'))\n"
    )
    answer = run_program(str(script), cwd=tmp_path)
    assert answer.returncode == 0 and answer.stderr == ""
    (line,) = answer.stdout.splitlines()
    assert line.startswith("info HalfCheetah-v5: ") and line.endswith("(pip install PyOpenGL)")
