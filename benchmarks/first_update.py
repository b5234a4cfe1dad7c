"""Ends after the first update of a run that its command starts: `first_update.py train sac HalfCheetah-v5 …`.

For `programs.py`, which measures the seconds from the command to that update.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from rl_training.algorithms.base import Learner
from rl_training.cli import main

train = Learner.train


def train_once(self: Learner, *arguments: Any) -> None:
    train(self, *arguments)
    if self.device.type == "cuda":
        import torch

        torch.cuda.synchronize()
    os._exit(0)  # without the end of the run, which is not measured


if __name__ == "__main__":
    Learner.train = train_once  # type: ignore[method-assign, assignment]
    sys.exit(main())
