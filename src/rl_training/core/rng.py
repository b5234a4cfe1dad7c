"""Random numbers as a function of (seed, stream, step).

Only the step is saved, evaluation cannot disturb training, and seed 3 of 8 draws the same numbers as seed 3 alone.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

# A stream's number is part of every run's results: append, never reorder.
STREAMS = (
    "init", "explore", "replay", "noise", "episode", "eval_episode", "data", "conformance", "video", "eval_explore",
    "hindsight", "minibatch",
)  # fmt: skip
STREAM_IDS = {name: number for number, name in enumerate(STREAMS)}


class _GeneratorCache(threading.local):
    """The generators of each thread: setting one to a step takes a seventh of the time of making one."""

    def __init__(self) -> None:
        self.generators: dict[tuple[int, str], tuple[np.random.Generator, dict[str, Any], Any]] = {}


_cache = _GeneratorCache()


def stream(seed: int, name: str, step: int = 0) -> np.random.Generator:
    """The generator of one stream at one step: the same numbers no matter what was drawn before.

    Draw from it at once: the next call for this seed and stream sets the same generator to another step.
    """
    found = _cache.generators.get((seed, name))
    if found is None:
        generator = np.random.Generator(np.random.Philox(key=[seed, STREAM_IDS[name]]))
        state: dict[str, Any] = dict(generator.bit_generator.state)
        found = _cache.generators[(seed, name)] = (generator, state, state["state"]["counter"])
    generator, state, counter = found
    counter[3] = step  # the other words stay 0
    generator.bit_generator.state = state
    return generator


def episode_seed(seed: int, name: str, env_index: int, episode: int) -> int:
    """The seed of one episode's reset: 31 bits, since some environments store it as int32."""
    words = np.random.SeedSequence([seed, STREAM_IDS[name], env_index, episode]).generate_state(1)
    return int(words[0] >> 1)
