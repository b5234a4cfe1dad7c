"""Randomness as a function of (seed, stream, step).

Nothing is ever saved but the step, evaluation cannot disturb training, and seed 3 of 8 draws what seed 3 alone draws.
"""

from __future__ import annotations

import numpy as np

# A stream's number is part of every run's results: append, never reorder.
STREAMS = ("init", "explore", "replay", "noise", "episode", "eval_episode", "data", "conformance", "video")
STREAM_IDS = {name: number for number, name in enumerate(STREAMS)}


def stream(seed: int, name: str, step: int = 0) -> np.random.Generator:
    """The generator of one stream at one step: always the same numbers, whatever was drawn before."""
    return np.random.Generator(np.random.Philox(key=[seed, STREAM_IDS[name]], counter=[0, 0, 0, step]))


def episode_seed(seed: int, name: str, env_index: int, episode: int) -> int:
    """The seed of one episode's reset: 31 bits, since some environments hand it to an int32."""
    words = np.random.SeedSequence([seed, STREAM_IDS[name], env_index, episode]).generate_state(1)
    return int(words[0] >> 1)
