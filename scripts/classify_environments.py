"""Classifies every environment that can be made here by how exactly it resumes; writes docs/environment-classes.md.

python scripts/classify_environments.py                      (`make environments`)
python scripts/classify_environments.py --only BipedalWalker --seeds 20 --output /dev/stdout
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

os.environ.setdefault("SDL_VIDEODRIVER", "dummy")

import gymnasium as gym

from rl_training.core.checks import UserError
from rl_training.envs.host import classification
from rl_training.envs.host.atari import EMULATOR_KWARGS, register_games
from rl_training.envs.host.conformance import check_environment
from rl_training.envs.host.control_suite import register_suite
from rl_training.envs.host.factory import EnvSource
from rl_training.files.run_directory import git_commit, versions

PAGE = Path(__file__).resolve().parents[1] / "docs" / "environment-classes.md"
FAMILIES = ("Classic control", "Toy text", "Box2D", "MuJoCo", "Atari", "DeepMind Control", "Other")
MODULES = {"classic_control": 0, "toy_text": 1, "box2d": 2, "mujoco": 3}
PLAIN_GAMES = ("ALE/Breakout-v5", "ALE/MsPacman-v5", "ALE/Pong-v5")  # also without wrappers (slow to reset)
PIXELS = {"wrappers": {"pixels": {}}}
HEAD = """\
<!-- Written by scripts/classify_environments.py: run `make environments`. -->
# Environment classes: how exactly a run is resumed

How environments are chosen, checked and wrapped: [environments.md](environments.md).

Before training, two copies of an environment play the same episodes, one of them after episodes of other lengths, and
their results are compared bit for bit (`envs/host/classification.py`). The check counts episodes and steps, never
seconds, so an environment always gets the same class: at most {vectors:,} steps in all, {images} where observations are
images or have {big:,} numbers or more. With `wrappers.pixels` the environment below the wrapper is compared in the same
way, and then at most {rendered} rendered frames.

| class | what it means | a resumed run |
|---|---|---|
| native | its exact state is saved in checkpoints and restored | exact |
| replay | its open episode is replayed from its seed | exact |
| rebuilt | it carries state from one episode to the next, so a new copy is made for every episode | exact |
| inexact | two fresh copies with the same seed and actions differ | marked `resume: inexact` |

A run records its class in `run.json` (`environment.restore`) and uses it again on resume.
"""


@dataclass(frozen=True)
class Row:
    family: int
    name: str
    restore: str | None  # the class; None: it cannot be used
    rebuild_ms: float | None
    note: str
    seconds: float = 0.0


def family(spec: Any) -> int:
    if spec.namespace == "dm_control":
        return 5
    entry = str(spec.entry_point)
    if entry.startswith("ale_py"):
        return 4
    module = re.match(r"gymnasium\.envs\.(\w+)", entry)
    # Environments that were moved out of Gymnasium are registered as functions that raise an error.
    return 3 if callable(spec.entry_point) else MODULES.get(module[1], 6) if module else 6


def classify(name: str, kwargs: dict[str, Any], group: int, note: str = "", seed: int = 0) -> Row:
    started = time.perf_counter()
    try:
        found = check_environment(EnvSource(name, kwargs), seed)
        if found.spec.observation.channels_last is not None:
            return classify(name, PIXELS, group, "with `wrappers.pixels`", seed)
    except UserError as error:
        return Row(group, name, None, None, reason(error, name))
    return Row(group, name, found.restore, found.rebuild_ms, note, time.perf_counter() - started)


def reason(error: UserError, name: str) -> str:
    text = str(error).removeprefix(f"environment {name!r}").removeprefix(f"environment {name} ").lstrip(": ")
    text = re.sub(r"rejected env_kwargs \{.*?\}: ", "", text)
    return text.replace("|", "\\|")


def rows(only: str, seeds: int) -> Iterable[Row]:
    register_games("ALE/")
    register_suite("dm_control/")
    specs = [spec for spec in gym.registry.values() if only in spec.id]
    games = {spec.kwargs["game"]: spec.id for spec in specs if spec.namespace == "ALE"}
    classes: dict[str, str | None] = {}
    older: dict[str, list[str]] = {}  # games of the older ids, by class
    for spec in sorted(specs, key=lambda spec: (family(spec), spec.namespace is None, spec.id.lower())):
        group = family(spec)
        if group != 4:
            for seed in range(seeds):
                yield classify(spec.id, {}, group, seed=seed)
        elif spec.namespace == "ALE":
            row = classify(spec.id, {"wrappers": {"atari": {}}}, group, "with `wrappers.atari`")
            classes[spec.kwargs["game"]] = row.restore
            yield row
            if spec.id in PLAIN_GAMES:
                yield classify(spec.id, {"obs_type": "ram"}, group, "with `obs_type: ram`")
        elif same_with_wrapper(spec, gym.registry.get(games.get(spec.kwargs["game"], ""))):
            older.setdefault(classes[spec.kwargs["game"]] or "", []).append(spec.kwargs["game"])
        else:
            yield classify(spec.id, {"wrappers": {"atari": {}}}, group, "with `wrappers.atari`")
    for restore, named in older.items():
        note = f"{len(named)} older ids of {len(set(named))} of these games, with `wrappers.atari` the same as theirs"
        yield Row(4, "…-v0, …-v4, …NoFrameskip-v0, …NoFrameskip-v4", restore or None, None, note)


def same_with_wrapper(spec: Any, modern: Any) -> bool:
    """Whether both are the same environment with wrappers.atari, which overrides the emulator's settings."""
    if modern is None or spec.entry_point != modern.entry_point:
        return False
    settings = [{**one.kwargs, **EMULATOR_KWARGS} for one in (spec, modern)]
    return settings[0] == settings[1] and spec.max_episode_steps == modern.max_episode_steps


def steps_of(schedule: classification.Schedule) -> int:
    between = sum(schedule.between[k % len(schedule.between)] for k in range(1, schedule.rounds))
    return sum(schedule.warm_up) + between + 2 * schedule.rounds * schedule.steps


def page(found: list[Row], command: str) -> str:
    counts = {name: steps_of(getattr(classification, name.upper())) for name in ("vectors", "images", "rendered")}
    lines = [HEAD.format(**counts, big=classification.LARGE_OBSERVATION)]
    lines.append(f"Commit {git_commit()}, command `{command}`:")
    used = {name: number for name, number in {**versions(), **more_versions()}.items() if name != "platform"}
    lines.append(", ".join(f"{name} {number}" for name, number in used.items()) + ".")
    usable = Counter(row.restore for row in found if row.restore)
    lines.append(f"\n{', '.join(f'{count} {name}' for name, count in sorted(usable.items()))}.\n")
    for group, title in enumerate(FAMILIES):
        own = [row for row in found if row.family == group and row.restore]
        if own:
            lines += [f"\n## {title}\n", "| environment | class | ms to rebuild | note |", "|---|---|---|---|"]
            lines += [f"| {row.name} | {row.restore} | {row.rebuild_ms or ''} | {row.note} |" for row in own]
    unusable = [row for row in found if not row.restore]
    if unusable:
        lines += ["\n## Cannot be used, or not made here\n", "| environment | reason |", "|---|---|"]
        lines += [f"| {row.name} | {row.note} |" for row in unusable]
    return "\n".join(lines) + "\n"


def more_versions() -> dict[str, str]:
    found = {}
    for package in ("dm-control", "shimmy", "box2d", "box2d-py", "pygame", "pygame-ce"):
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--only", default="", help="ids that contain this")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds of the check, one row each")
    parser.add_argument("--output", type=Path, default=PAGE)
    args = parser.parse_args()
    found = []
    for row in rows(args.only, args.seeds):
        found.append(row)
        print(f"{row.seconds:6.2f} s  {row.name}: {row.restore or row.note}", file=sys.stderr, flush=True)
    command = " ".join(["python", "scripts/classify_environments.py", *sys.argv[1:]])
    args.output.write_text(page(found, command), encoding="utf-8")


if __name__ == "__main__":
    main()
