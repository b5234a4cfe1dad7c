"""Randomness as a function of (seed, stream, step).

Nothing is ever saved but the step, evaluation cannot disturb training, and seed 3 of 8 draws what seed 3 alone draws.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

# A stream's number is part of every run's results: append, never reorder.
STREAMS = ("init", "explore", "replay", "noise", "episode", "eval_episode", "data", "conformance", "video")
STREAM_IDS = {name: number for number, name in enumerate(STREAMS)}


class _Made(threading.local):
    """Each thread's generators: setting one to a step takes a seventh of the time of making one."""

    def __init__(self) -> None:
        self.generators: dict[tuple[int, str], tuple[np.random.Generator, dict[str, Any]]] = {}


_made = _Made()


def stream(seed: int, name: str, step: int = 0) -> np.random.Generator:
    """The generator of one stream at one step: always the same numbers, whatever was drawn before.

    Draw from it at once: the next call for this seed and stream sets the same generator to another step.
    """
    found = _made.generators.get((seed, name))
    if found is None:
        generator = np.random.Generator(np.random.Philox(key=[seed, STREAM_IDS[name]]))
        found = _made.generators[(seed, name)] = (generator, dict(generator.bit_generator.state))
    generator, state = found
    state["state"]["counter"][:] = (0, 0, 0, step)
    generator.bit_generator.state = state
    return generator


def episode_seed(seed: int, name: str, env_index: int, episode: int) -> int:
    """The seed of one episode's reset: 31 bits, since some environments hand it to an int32."""
    words = np.random.SeedSequence([seed, STREAM_IDS[name], env_index, episode]).generate_state(1)
    return int(words[0] >> 1)
