"""The provenance in every result file: the commit, the versions and the command.

For a checkout without history, set RESULT_COMMIT to the commit.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from rl_training.files.run_directory import git_commit, versions

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ("benchmarks/results", "docs/speed.md")  # changed results do not change the code
# At the start of the program: a commit during the measurement is not what is measured.
COMMIT = os.environ.get("RESULT_COMMIT") or git_commit(ROOT, exclude=RESULTS)
PEERS = ("stable-baselines3", "sb3-contrib", "sbx-rl", "tianshou", "d3rlpy", "torch", "jax", "gymnasium", "numpy")
ASK = """import importlib.metadata as m, json
print(json.dumps({d.name.lower().replace("_", "-"): d.version for d in m.distributions()}))"""


def provenance(*peer_pythons: str | None) -> dict[str, Any]:
    found = {"commit": COMMIT, "versions": {**versions(), **_gpu()}, "command": _command()}
    if COMMIT is None:
        print("the commit is unknown: set RESULT_COMMIT before keeping this result", file=sys.stderr)
    if peers := [_peer_versions(python) for python in peer_pythons if python is not None]:
        found["peer_versions"] = {name: version for one in reversed(peers) for name, version in one.items()}
    return found


@cache
def _peer_versions(python: str) -> dict[str, str]:
    answer = subprocess.run([python, "-c", ASK], capture_output=True, text=True, check=True)
    installed = json.loads(answer.stdout)
    return {name: installed[name] for name in PEERS if name in installed}


def write_result(path: Path, result: dict[str, Any], *peer_pythons: str | None, **more: Any) -> None:
    """Write the result as a JSON file with its provenance, to which `more` is added; the first peer counts."""
    whole = {**result, "provenance": {**provenance(*peer_pythons), **more}}
    path.write_text(json.dumps(whole, indent=1) + "\n")


def _command() -> str:
    """The command as typed at the root of a checkout; paths outside of it are shortened to their last name."""
    return shlex.join(["python", _shortened(os.path.abspath(sys.argv[0])), *map(_shortened, sys.argv[1:])])


def _shortened(argument: str) -> str:
    if not Path(argument).is_absolute():
        return argument
    path = Path(os.path.abspath(argument))
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name


def _gpu() -> dict[str, str]:
    torch = sys.modules.get("torch")
    return {"gpu": torch.cuda.get_device_name(0)} if torch is not None and torch.cuda.is_available() else {}
