"""Loads what it is told to under an audit hook: prints each outcome, and whatever loading did beyond reading files."""

from __future__ import annotations

import json
import os
import pickle
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

warnings.simplefilter("ignore")

from rl_training.data.datasets.formats.loaders import load_transitions  # noqa: E402
from rl_training.run.agent import find_checkpoint, load_agent  # noqa: E402
from rl_training.run.loading import load_config  # noqa: E402


def load_whole(path: str) -> Any:
    """A policy needs only some of a checkpoint's files; a resume reads them all."""
    if Path(path).is_dir():
        find_checkpoint(Path(path))
    return load_agent(path)


LOADERS: dict[str, Callable[[str], Any]] = {
    "agent": load_whole,
    "config": load_config,
    "dataset": load_transitions,
    "unpickle": lambda path: pickle.loads(Path(path).read_bytes()),  # what the hook must see
}
READING = {"open", "os.listdir", "os.scandir", "pathlib.Path.glob", "glob.glob", "os.fwalk"}
HARMLESS = {"object.__getattr__", "object.__setattr__", "sys._getframe", "builtins.id", "code.__new__", "array.__new__"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def main(job: Path, warm: list[tuple[str, str]]) -> None:
    for kind, path in warm:  # imports what loading needs
        LOADERS[kind](path)
        with suppress(ValueError):
            LOADERS[kind](path + ".nothing")
    seen: list[str] = []
    watching = False

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if watching and event not in HARMLESS and not (event in READING and not writes(event, arguments)):
            seen.append(f"{event} {arguments!r}"[:200])

    sys.addaudithook(hook)
    results = {}
    for name, (kind, path) in json.loads(job.read_text()).items():
        seen.clear()
        watching = True
        try:
            LOADERS[kind](path)
            outcome = "loaded"
        except BaseException as error:
            outcome = f"{type(error).__name__}: {error}"
        watching = False
        results[name] = {"outcome": outcome, "events": list(seen)}
    print(json.dumps(results))


def writes(event: str, arguments: tuple[Any, ...]) -> bool:
    return event == "open" and bool(arguments[2] & WRITING)


if __name__ == "__main__":
    main(Path(sys.argv[1]), json.loads(sys.argv[2]))
