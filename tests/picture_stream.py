"""Random pictures in episodes of random length, for the replay of frames."""

from __future__ import annotations

import numpy as np

from rl_training.core.specs import EnvSpec, discrete, image


def shape_of(stack: int = 3, channels: int = 2, limit: int | None = None) -> EnvSpec:
    return EnvSpec(image(stack * channels, 3, 4, frames=stack), discrete(5), limit)


class Stream:
    """Vector steps of environments with random pictures and episodes of random length, ending one way or the other."""

    def __init__(self, spec: EnvSpec, seeds: int, num_envs: int, random_seed: int = 0, longest: int = 7) -> None:
        self.rng = np.random.default_rng(random_seed)
        self.spec, self.size, self.longest = spec, (seeds, num_envs), longest
        self.obs = np.zeros((*self.size, *spec.observation.shape), np.uint8)
        self.left = np.zeros(self.size, int)
        for place in np.ndindex(*self.size):
            self.begin(place)

    def frame(self) -> np.ndarray:
        channels = self.spec.observation.shape[0] // self.spec.observation.frames
        return self.rng.integers(0, 256, (channels, *self.spec.observation.shape[1:]), dtype=np.uint8)

    def begin(self, place: tuple[int, ...]) -> None:
        self.obs[place] = np.concatenate([self.frame()] * self.spec.observation.frames)
        self.left[place] = self.rng.integers(1, self.longest + 1)

    def step(self) -> dict[str, np.ndarray]:
        next_obs = np.zeros_like(self.obs)
        for place in np.ndindex(*self.size):
            frame = self.frame()
            next_obs[place] = np.concatenate([self.obs[place][len(frame) :], frame])
        self.left -= 1
        kind = self.rng.integers(3, size=self.size)  # both flags may be set at once
        ended = self.left == 0
        fields = {
            "obs": self.obs.copy(),
            "actions": self.rng.integers(5, size=self.size),
            "rewards": self.rng.standard_normal(self.size).astype(np.float32),
            "next_obs": next_obs,
            "terminated": ended & (kind != 1),
            "truncated": ended & (kind != 0),
        }
        self.obs = next_obs.copy()
        for place in np.argwhere(ended):
            self.begin(tuple(place))
        return fields
