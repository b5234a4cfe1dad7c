"""The same as `first_update.py` for stable-baselines3 or a library with its interface, run with its interpreter:

sb3_first_update.py LIBRARY CLASS ENV [setting=value …]
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any


def main() -> None:
    library, algo, env_id, *words = sys.argv[1:]
    values = {key: json.loads(value) for key, _, value in (word.partition("=") for word in words)}
    cls = getattr(importlib.import_module(library), algo)
    train = cls.train

    def train_once(self: Any, *arguments: Any, **named: Any) -> None:
        train(self, *arguments, **named)
        os._exit(0)

    cls.train = train_once
    cls("MlpPolicy", env_id, seed=0, device="cpu", **values).learn(1_000_000)


if __name__ == "__main__":
    main()
