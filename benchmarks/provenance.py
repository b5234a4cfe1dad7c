"""What every result file says about how it was made: the commit, the versions and the command.

Where the checkout is a copy without its history, RESULT_COMMIT names the commit.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from rl_training.files.run_directory import git_commit, versions

ROOT = Path(__file__).resolve().parent.parent
RESULTS = "benchmarks/results"  # results written one after the other do not make the code another
# At the start of the program: a commit that is made while it measures is not what it measures.
COMMIT = os.environ.get("RESULT_COMMIT") or git_commit(ROOT, exclude=RESULTS)
PEERS = ("stable-baselines3", "sb3-contrib", "sbx-rl", "tianshou", "d3rlpy", "torch", "jax", "gymnasium", "numpy")
ASK = "import importlib.metadata as m, json; print(json.dumps({d.name: d.version for d in m.distributions()}))"


def provenance(peer_python: str | None = None) -> dict[str, Any]:
    found = {"commit": COMMIT, "versions": {**versions(), **_gpu()}, "command": _command()}
    if COMMIT is None:
        print("no commit is known: set RESULT_COMMIT before this result is kept", file=sys.stderr)
    if peer_python is not None:
        answer = subprocess.run([peer_python, "-c", ASK], capture_output=True, text=True, check=True)
        there = json.loads(answer.stdout)
        found["peer_versions"] = {name: there[name] for name in PEERS if name in there}
    return found


def write_result(path: Path, result: dict[str, Any], peer_python: str | None = None, **more: Any) -> None:
    """The result as a JSON file with its provenance, to which `more` belongs too."""
    whole = {**result, "provenance": {**provenance(peer_python), **more}}
    path.write_text(json.dumps(whole, indent=1) + "\n")


def _command() -> str:
    """As it could be typed at the root of a checkout; of places elsewhere on this machine the last name."""
    return shlex.join(["python", _shortened(os.path.abspath(sys.argv[0])), *map(_shortened, sys.argv[1:])])


def _shortened(word: str) -> str:
    if not Path(word).is_absolute():
        return word
    path = Path(os.path.abspath(word))
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name


def _gpu() -> dict[str, str]:
    torch = sys.modules.get("torch")
    return {"gpu": torch.cuda.get_device_name(0)} if torch is not None and torch.cuda.is_available() else {}
