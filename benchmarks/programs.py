"""Programs that are started and end, timed from the command to their end, in turns with those of peers."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from turns import HERE, environment, spread

SAC = ["train", "sac", "HalfCheetah-v5", "--quiet", "--device", "cpu", "--eval-episodes", "0", "--total-timesteps",
       "1000000", "--set", "learning_starts=10"]  # fmt: skip
SAME = ["HalfCheetah-v5", "learning_starts=10"]
OUTPUT = "OUTPUT"  # a fresh folder


@dataclass(frozen=True)
class Program:
    """The arguments of an interpreter, and those for peers by environment and name."""

    ours: list[str]
    peers: dict[tuple[str, str], list[str]] = field(default_factory=dict)
    warm: bool = False  # run once before the first round: what it compiles is loaded afterwards


def first_update(compile_: str) -> list[str]:
    return [str(HERE / "first_update.py"), *SAC, "--set", f"compile={compile_}", "--output-dir", OUTPUT]


def peer_first_update(library: str) -> list[str]:
    return [str(HERE / "sb3_first_update.py"), library, "SAC", *SAME]


SB3, SBX = ("peers", "stable_baselines3"), ("peers", "sbx")
PROGRAMS = {
    "import": Program(
        ["-c", "import rl_training"],
        {SB3: ["-c", "import stable_baselines3"], SBX: ["-c", "import sbx"],
         ("d3rlpy", "d3rlpy"): ["-c", "import d3rlpy"], ("tianshou", "tianshou"): ["-c", "import tianshou"]},
    ),
    "import of SAC": Program(
        ["-c", "from rl_training import SAC"],
        {SB3: ["-c", "from stable_baselines3 import SAC"], SBX: ["-c", "from sbx import SAC"],
         ("d3rlpy", "d3rlpy"): ["-c", "from d3rlpy.algos import SAC"],
         ("tianshou", "tianshou"): ["-c", "from tianshou.algorithm import SAC"]},
    ),
    "--help": Program(["-m", "rl_training", "--help"], {("d3rlpy", "d3rlpy"): ["-m", "d3rlpy.cli", "--help"]}),
    "first update, eager": Program(first_update("off"), {SB3: peer_first_update("stable_baselines3")}),
    "first update, compiled before": Program(first_update("on"), {SBX: peer_first_update("sbx")}, warm=True),
}  # fmt: skip


def seconds(python: str, arguments: list[str]) -> float:
    """Seconds from the start of a program to its end."""
    with tempfile.TemporaryDirectory() as folder:
        words = [folder if word == OUTPUT else word for word in arguments]
        started = time.perf_counter()
        done = subprocess.run([python, *words], capture_output=True, text=True, env=environment(), check=False)
        taken = time.perf_counter() - started
    if done.returncode:
        raise OSError(f"{Path(python).name} {' '.join(arguments[:2])}: {done.stderr.strip().splitlines()[-1:]}")
    return taken


def compare_programs(name: str, program: Program, pythons: dict[str, str], rounds: int) -> list[dict[str, Any]]:
    """One row for each peer whose environment is there, or one without a peer."""
    peers = {key: words for key, words in program.peers.items() if os.path.exists(pythons.get(key[0], ""))}
    sides = [(sys.executable, program.ours), *((pythons[key[0]], words) for key, words in peers.items())]
    if program.warm:
        seconds(*sides[0])
    taken = [[seconds(*side) for side in sides] for _ in range(rounds)]
    ours = [row[0] for row in taken]
    one = {
        "task": name,
        "unit": "programs",
        "ours_s": statistics.median(ours),
        "ours_all_s": [round(x, 3) for x in ours],
    }
    if not peers:
        return [one]
    return [
        {**one, "peer": key[1], "peer_s": statistics.median(row[number] for row in taken),
         **spread([row[number] / row[0] for row in taken])}
        for number, key in enumerate(peers, 1)
    ]  # fmt: skip
