"""A reader's way from the command line to a loss is short."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import rl_training
from rl_training.algorithms.sac import SAC
from rl_training.cli.main import main

MAX_FRAMES = 12
PACKAGE = str(Path(rl_training.__file__).parent)


@pytest.mark.parametrize("seeds", [pytest.param("0", marks=pytest.mark.sweep), "0,1"])
def test_few_frames_lie_between_the_command_line_and_a_loss(
    seeds: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loss, stacks = SAC.critic_loss, list[list[str]]()

    def looked_at(*arguments: Any) -> Any:
        frame, stack = sys._getframe(), ["critic_loss"]
        while frame.f_back is not None:
            frame = frame.f_back
            if frame.f_code.co_filename.startswith(PACKAGE):
                stack.append(frame.f_code.co_name)
        stacks.append(stack)
        return loss(*arguments)

    monkeypatch.setattr(SAC, "critic_loss", looked_at)
    words = [
        "--total-timesteps",
        "130",
        "--eval-episodes",
        "0",
        "--quiet",
        "--output-dir",
        str(tmp_path),
        "--seeds",
        seeds,
    ]
    assert main(["train", "sac", "Pendulum-v1", *words, "--set", "video=false", "--set", "report=false"]) == 0
    longest = max(stacks, key=len)
    assert longest[-1] == "main" and len(longest) <= MAX_FRAMES, longest
