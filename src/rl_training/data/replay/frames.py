"""Replay of images that stores every frame once: stacks are built when they are sampled."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rl_training.core.specs import EnvSpec
from rl_training.data.replay.buffer import (
    Array,
    ReplayBuffer,
    RowLayout,
    field_layout,
    host_array,
    replay_bytes,
    row_bytes,
)

MIN_FINAL_FRAMES = 1024
FINAL_FRAME_SHARE = 8  # where no time limit is known: space for one truncated episode in so many transitions
FRAME_FIELDS = ("obs", "next_obs")
NO_FINAL, LOST_FINAL = -1, -2  # the episode continues or is terminal; or its final frame was overwritten


class FrameReplay(ReplayBuffer):
    """A ring of transitions beside a ring of frames. Rows, sizes and counts are those of `ReplayBuffer`.

    Transition number n of an environment has its newest frame in place n of the frame ring, its older ones in the
    places of the transitions before it, and the newest of `next_obs` in the place of the transition after it. The frame
    ring is longer by one stack, so that it holds the frames of the oldest transition and the successor of the newest.

    Where a time limit truncated an episode, the frame after the last transition is the first of the next episode, but
    the value of the final frame is bootstrapped: final frames have a ring of their own. Where it overflows (episodes
    are truncated far more often than the known time limit implies, or very often where none is known), an old row
    repeats its own frame instead. After a termination any frame will do, since nothing is bootstrapped from it.
    """

    def __init__(self, spec: EnvSpec, **options: Any) -> None:
        super().__init__(spec, **options)
        num_envs, seeds = self.num_envs, self.seeds
        self.stack, self.frame_shape = spec.observation.frames, spec.observation.frame_shape
        self.vector_bytes = spec.observation.vector_bytes
        self._stack_axis = -1 - len(self.frame_shape)
        self.before = (self.stack - 1) * num_envs  # frames from before the oldest transition
        self.frame_places = self.capacity + self.before + num_envs
        self.final_places = final_frames(spec, self.capacity, num_envs)
        self.pictures = self._zeros((seeds, self.frame_places + self.final_places, *self.frame_shape), torch.uint8)
        self.frames, self.final_frames = self.pictures.split([self.frame_places, self.final_places], 1)
        self.final_counts = np.zeros(seeds, np.int64)  # final frames ever stored
        self.final_counts_tensor = torch.zeros((seeds, 1), dtype=torch.int64, device=self.device)
        self._all_pictures = self.pictures.view(-1, *self.frame_shape)
        self._picture_offsets = torch.arange(seeds, device=self.device).view(-1, 1, 1) * self.pictures.shape[1]
        self._steps_back = torch.arange(self.stack - 1, -1, -1, device=self.device)
        self._ages = np.zeros((seeds, num_envs), np.uint8)  # of the transitions that come next

    @staticmethod
    def layout(spec: EnvSpec) -> RowLayout:
        fields = {name: row for name, row in field_layout(spec).items() if name not in FRAME_FIELDS}
        if spec.observation.vector_bytes:
            fields |= {name: ((spec.observation.vector_bytes,), "uint8") for name in FRAME_FIELDS}
        # `age`: frames of the same episode before a row's own, as far as a stack reaches. `final`: which final frame
        # follows it, or one of NO_FINAL and LOST_FINAL.
        return {**fields, "age": ((), "uint8"), "final": ((), "int64")}

    @property
    def nbytes(self) -> int:
        return super().nbytes + self.pictures.nbytes

    # --- adding ----------------------------------------------------------------------------------------------------
    def add(self, **fields: Tensor | Array) -> None:
        obs, next_obs = (host_array(fields.pop(name)) for name in FRAME_FIELDS)
        if self.vector_bytes:
            fields |= {"obs": obs[..., : self.vector_bytes], "next_obs": next_obs[..., : self.vector_bytes]}
        obs, next_obs = obs[:, :, -self.frame_shape[0] :], next_obs[:, :, -self.frame_shape[0] :]  # the newest frames
        terminated, truncated = (host_array(fields[name]) for name in ("terminated", "truncated"))
        place = self.added % self.frame_places
        # Also where it is last step's `next_obs`: that may be a final frame where a new episode starts.
        self._put_frames(place, obs)
        self._put_frames((place + self.num_envs) % self.frame_places, next_obs)
        final = self._store_final_frames(truncated & ~terminated, next_obs)
        super().add(**fields, age=self._ages, final=final)
        self._ages = self._next_ages(self._ages, terminated | truncated)

    def _put_frames(self, place: int, frames: Array) -> None:
        source = torch.from_numpy(np.ascontiguousarray(frames))
        self.frames[:, place : place + self.num_envs].copy_(source, non_blocking=True)

    def _store_final_frames(self, cut_off: Array, next_obs: Array) -> Array:
        numbers = np.full(cut_off.shape, NO_FINAL, np.int64)
        if cut_off.any():
            for seed, env in np.argwhere(cut_off):
                numbers[seed, env] = self.final_counts[seed]
                place = int(self.final_counts[seed]) % self.final_places
                self.final_frames[seed, place].copy_(torch.from_numpy(np.ascontiguousarray(next_obs[seed, env])))
                self.final_counts[seed] += 1
            self._publish_final_counts()
        return numbers

    def _publish_final_counts(self) -> None:
        self.final_counts_tensor.copy_(torch.from_numpy(self.final_counts).unsqueeze(-1))

    # --- sampling --------------------------------------------------------------------------------------------------
    def _observations(self, first: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
        places, after = self._stack_places(first), self._place_after(last).unsqueeze(-1)
        if self.n_step == 1:  # the two stacks share all frames but their ends
            frames, next_start = self._pictures_at(torch.cat([places, after], -1)), 1
        else:
            following = self._stack_places(last)[..., 1:]
            frames, next_start = self._pictures_at(torch.cat([places, following, after], -1)), self.stack
        obs, next_obs = (self._joined(frames, start) for start in (0, next_start))
        if self.vector_bytes:
            return torch.cat([self._take("obs", first), obs], -1), torch.cat(
                [self._take("next_obs", last), next_obs], -1
            )
        return obs, next_obs

    def _joined(self, frames: Tensor, start: int) -> Tensor:
        """The stack that begins at frame `start`: (..., frames, channels, ...) -> (..., stack * channels, ...)."""
        stack = frames.narrow(self._stack_axis, start, self.stack)
        return stack.flatten(self._stack_axis, self._stack_axis + 1)

    def _numbers(self, rows: Tensor) -> Tensor:
        """The number of the transition in each row, counted from the first ever added."""
        newest = self.added_tensor - 1
        return newest - (newest - rows) % self.capacity

    def _stack_places(self, rows: Tensor) -> Tensor:
        """(..., seeds, batch) rows to the places of their frames, oldest first: (..., seeds, batch, stack)."""
        ages = self._take("age", rows).unsqueeze(-1).long()
        back = torch.minimum(self._steps_back, ages)  # before its episode a stack repeats the first frame
        return (self._numbers(rows).unsqueeze(-1) - back * self.num_envs) % self.frame_places

    def _place_after(self, rows: Tensor) -> Tensor:
        final, numbers = self._take("final", rows), self._numbers(rows)
        following = torch.where(final == NO_FINAL, numbers + self.num_envs, numbers) % self.frame_places
        kept = (final >= 0) & (final >= self.final_counts_tensor - self.final_places)
        return torch.where(kept, self.frame_places + final % self.final_places, following)

    def _pictures_at(self, places: Tensor) -> Tensor:
        chosen = self._all_pictures.index_select(0, (places + self._picture_offsets).reshape(-1))
        return chosen.view(*places.shape, *self.frame_shape)

    # --- state -----------------------------------------------------------------------------------------------------
    def read(self, start: int, stop: int) -> dict[str, Tensor]:
        """A complete segment: with the frames before and after its transitions, and its final frames."""
        rows = super().read(start, stop)
        counts = torch.from_numpy(self.final_counts.copy())
        gone = (rows["final"] >= 0) & (rows["final"] < counts.unsqueeze(-1) - self.final_places)
        rows["final"] = rows["final"].masked_fill(gone, LOST_FINAL)  # in a larger ring they would count as stored
        places = torch.arange(start - self.before, stop + self.num_envs, device=self.device) % self.frame_places
        rows["frames"] = self.frames.index_select(1, places).cpu()
        rows["final_frames"] = self.final_frames[self._final_places_of(rows["final"])].cpu()
        rows["final_counts"] = counts
        return rows

    def segment_layout(self, count: int, rows: Mapping[str, Tensor]) -> dict[str, tuple[tuple[int, ...], torch.dtype]]:
        fields = super().segment_layout(count, rows)
        frames = self.before + count + self.num_envs
        finals = int((rows["final"] >= 0).sum()) if "final" in rows else 0
        return {
            **fields,
            "frames": ((self.seeds, frames, *self.frame_shape), torch.uint8),
            "final_frames": ((finals, *self.frame_shape), torch.uint8),
            "final_counts": ((self.seeds,), torch.int64),
        }

    def write(self, start: int, rows: Mapping[str, Tensor], skip: int = 0) -> None:
        super().write(start, rows, skip)
        stop = start + rows["rewards"].shape[1]
        places = torch.arange(start + skip - self.before, stop + self.num_envs, device=self.device) % self.frame_places
        self.frames.index_copy_(1, places, rows["frames"][:, skip:].to(self.device))
        self.final_frames[self._final_places_of(rows["final"])] = rows["final_frames"].to(self.device)
        self.final_counts = rows["final_counts"].numpy().copy()
        self._publish_final_counts()

    def _final_places_of(self, final: Tensor) -> tuple[Tensor, Tensor]:
        seeds, rows = (final >= 0).nonzero(as_tuple=True)
        return seeds.to(self.device), (final[seeds, rows] % self.final_places).to(self.device)

    def finish_writing(self, added: int) -> None:
        super().finish_writing(added)
        self._ages[:] = 0
        if added:
            rows = torch.arange(added - self.num_envs, added, device=self.device) % self.capacity
            fields = ("age", "terminated", "truncated")
            age, terminated, truncated = (self.storage[name].index_select(1, rows).cpu().numpy() for name in fields)
            self._ages = self._next_ages(age, terminated | truncated)

    def cut_off(self, envs: Sequence[int]) -> list[tuple[int, int, int]]:
        last = super().cut_off(envs)
        for seed, env, row in last:
            frame = self.frames[seed, (self.added + env) % self.frame_places]
            self.final_frames[seed, int(self.final_counts[seed]) % self.final_places] = frame
            self.storage["final"][seed, row] = int(self.final_counts[seed])
            self.final_counts[seed] += 1
            self._ages[seed, env] = 0
        self._publish_final_counts()
        return last

    def _next_ages(self, ages: Array, ended: Array) -> Array:
        return np.where(ended, 0, np.minimum(ages + 1, self.stack - 1)).astype(np.uint8)


def final_frames(spec: EnvSpec, capacity: int, num_envs: int) -> int:
    """The number of final frames of truncated episodes for a ring of `capacity` transitions."""
    if spec.episode_limit is None:
        needed = capacity // FINAL_FRAME_SHARE
    else:
        needed = -(-capacity // num_envs // spec.episode_limit) * num_envs + num_envs
    return max(needed, min(capacity, MIN_FINAL_FRAMES))


def replay_class(spec: EnvSpec) -> type[ReplayBuffer]:
    """The class of the replay for these observations."""
    return FrameReplay if spec.observation.stored_as_frames else ReplayBuffer


def bytes_needed(spec: EnvSpec, *, capacity: int, num_envs: int, seeds: int) -> int:
    """The bytes of that replay, without its counters and priorities."""
    if replay_class(spec) is ReplayBuffer:
        return replay_bytes(spec, seeds, capacity)
    pictures = capacity + spec.observation.frames * num_envs + final_frames(spec, capacity, num_envs)
    frame = math.prod(spec.observation.frame_shape)
    return seeds * (capacity * row_bytes(FrameReplay.layout(spec)) + pictures * frame)
