"""Installs the built wheel and source distribution into fresh virtual environments and uses the package there.

python scripts/install_check.py [--python PYTHON ...] [--extras onnx,hub] [--newest] [--output FILE]

Each interpreter gets one environment per file, with the versions of constraints.txt, or with --newest the newest of all
but torch, whose newest build may be gigabytes of CUDA. There the package trains, resumes, evaluates and exports.
`make install-test` does it with this interpreter.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / folder) for folder in ("src", "benchmarks")]

from provenance import write_result  # noqa: E402

TEXTS = ("README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "SECURITY.md")
SOURCES = ("pyproject.toml", "MANIFEST.in", *TEXTS, "constraints.txt", "src")
ASK = (
    "import importlib.metadata as m, json, platform;"
    "print(json.dumps([platform.python_version(), {d.name: d.version for d in m.distributions()}]))"
)
WHAT = "wheel and sdist installed into fresh virtual environments"
SHOWN = 2000  # characters of a failed command's output


class Failed(Exception):
    """A command that ended with an error; the text is its output."""


def run(*words: str | Path, cwd: Path, **variables: str) -> str:
    """Run a command without the caller's Python settings; returns its output."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")} | variables
    command = [str(word) for word in words]
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise Failed(f"{Path(command[0]).name} {' '.join(command[1:4])}: {(done.stdout + done.stderr)[-SHOWN:]}")
    return done.stdout


def build(folder: Path) -> list[Path]:
    """The wheel and the source distribution, from a copy: a stale build folder would put deleted files into them."""
    tree, built = folder / "tree", folder / "dist"
    tree.mkdir()
    for name in SOURCES:
        source = ROOT / name
        ignore = shutil.ignore_patterns("*.egg-info", "__pycache__")
        shutil.copytree(source, tree / name, ignore=ignore) if source.is_dir() else shutil.copy(source, tree / name)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", built, tree, cwd=folder)
    return sorted(built.iterdir(), key=lambda path: path.suffix != ".whl")


def constraints(folder: Path, newest: bool) -> Path:
    """The file of versions for pip."""
    text = (ROOT / "constraints.txt").read_text()
    lines = text.splitlines() if not newest else [line for line in text.splitlines() if line.startswith("torch==")]
    path = folder / "constraints.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


def check(python: str, file: Path, extras: str, versions: Path, folder: Path) -> dict[str, Any]:
    """Install one file into a fresh environment and use it."""
    venv, runs, start = folder / "venv", folder / "runs", time.monotonic()
    found: dict[str, Any] = {"file": file.name, "extras": extras, "works": False}
    try:
        run(python, "-m", "venv", venv, cwd=folder)
        here = venv / "bin" / "python"
        what = f"{file}[{extras}]" if extras else str(file)
        run(here, "-m", "pip", "install", "-qq", "--disable-pip-version-check", "-c", versions, what, cwd=folder)
        run(here, "-m", "pip", "check", "--disable-pip-version-check", cwd=folder)
        found["python"], found["installed"] = json.loads(run(here, "-c", ASK, cwd=folder))
        found["install_s"] = round(time.monotonic() - start, 1)
        command = venv / "bin" / "rl-training"
        run(ROOT / "scripts" / "use_package.sh", here, venv, command, runs, cwd=folder)
        (trained,) = (runs / "plain").iterdir()
        run(command, "resume", trained, "--total-timesteps", "400", cwd=folder)
        run(command, "evaluate", trained, "--num-episodes", "2", cwd=folder)
        suffixes = [".npz", *([".onnx"] if {"onnx", "onnxruntime"} <= found["installed"].keys() else [])]
        for suffix in suffixes:
            run(command, "export", trained, "-o", f"policy{suffix}", cwd=folder)
            run(command, "verify", f"policy{suffix}", trained, cwd=folder)
        found |= {"works": True, "exports": suffixes}
    except Failed as error:
        found["error"] = str(error).replace(str(folder), "FOLDER")
    return {**found, "seconds": round(time.monotonic() - start, 1)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", nargs="+", default=[sys.executable], help="interpreters (default: this one)")
    parser.add_argument("--extras", default="", help="extras to install, such as onnx,hub")
    parser.add_argument("--newest", action="store_true", help="the newest versions of all dependencies but torch")
    parser.add_argument("--output", type=Path, help="a result file")
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        files, versions = build(folder), constraints(folder, args.newest)
        for python, file in itertools.product(args.python, files):
            with tempfile.TemporaryDirectory() as inner:
                row = check(python, file, args.extras, versions, Path(inner).resolve())
            rows.append({**row, "newest": args.newest})
            state = "works" if row["works"] else f"FAILED: {row['error']}"
            what = f"Python {row.get('python', python)}, {file.name}[{args.extras}]"
            print(f"{what}: {state} ({row['seconds']} s)", flush=True)
            if args.output is not None:  # after every row: a row takes minutes
                write_result(args.output, {"what": WHAT, "rows": rows})
    return 0 if all(row["works"] for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
