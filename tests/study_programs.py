"""`rl-training sweep` and `tune` as programs for tests: started in a folder, watched and found in the process list."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from harness import ROOT

from rl_training.config.yaml_loading import dump_yaml


def start(
    study: dict[str, Any], cwd: Path, *options: str, verb: str = "sweep", stand_in: bool = False
) -> subprocess.Popen[bytes]:
    """Start a study in a folder, whose log.txt gets what it prints."""
    (cwd / "study.yaml").write_text(dump_yaml(study))
    words = [str(ROOT / "tests" / "study_driver.py")] if stand_in else ["-m", "rl_training"]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "NO_COLOR": "1"}
    with (cwd / "log.txt").open("ab") as log:
        command = [sys.executable, *words, verb, "study.yaml", *options]
        return subprocess.Popen(command, cwd=cwd, env=env, stdout=log, stderr=log, start_new_session=True)


def wait_until(condition: Any, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.02)


def runs_of(folder: Path) -> list[int]:
    """The processes that train runs of a study."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_text()
        except OSError:
            continue
        if str(folder) in text and ("\0train\0" in text or "\0resume\0" in text):
            found.append(int(path.parent.name))
    return found
