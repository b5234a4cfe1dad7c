"""Frames stored once against a buffer that stores whole stacks: the same batches, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from picture_stream import Stream, shape_of

from rl_training.core.specs import EnvSpec, continuous, discrete, image, vector
from rl_training.data.replay.buffer import ReplayBuffer
from rl_training.data.replay.frames import FrameReplay, bytes_needed, replay_class

GAMMA = 0.9


def assert_same_batches(frames: FrameReplay, stacks: ReplayBuffer) -> None:
    """Every row there is, one by one; behind a termination the next observation does not count."""
    assert (frames.size, frames.capacity, frames.head, frames.oldest()) == (
        stacks.size, stacks.capacity, stacks.head, stacks.oldest(),
    )  # fmt: skip
    rows = torch.arange(frames.size).expand(frames.seeds, -1)
    mine, theirs = frames.gather(rows), stacks.gather(rows)
    assert set(mine) == set(theirs)
    for name in theirs:
        if name == "next_obs":
            counts = theirs["dones"] == 0
            assert torch.equal(mine[name][counts], theirs[name][counts])
        else:
            assert mine[name].dtype == theirs[name].dtype and torch.equal(mine[name], theirs[name]), name


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.parametrize(
    ("seeds", "num_envs", "stack", "channels", "capacity"),
    [(1, 1, 4, 1, 20), (2, 3, 3, 3, 31), (3, 2, 1, 2, 16), (2, 1, 2, 1, 1), (1, 2, 5, 1, 6)],
)
def test_batches_are_those_of_a_buffer_of_whole_stacks(
    seeds: int, num_envs: int, stack: int, channels: int, capacity: int, n_step: int
) -> None:
    shape = shape_of(stack, channels)
    options = {"capacity": capacity, "num_envs": num_envs, "seeds": seeds, "n_step": n_step, "gamma": GAMMA}
    frames, stacks, stream = (
        FrameReplay(shape, **options),
        ReplayBuffer(shape, **options),
        Stream(shape, seeds, num_envs),
    )
    for _ in range(60):  # several times around the ring, a look after every step
        fields = stream.step()
        frames.add(**{name: value.copy() for name, value in fields.items()})
        stacks.add(**fields)
        assert_same_batches(frames, stacks)
    assert frames.final_counts.min() > 0, "episodes were cut off"


def test_several_batches_at_once_are_the_batches_one_by_one() -> None:
    shape = shape_of()
    replay, stream = FrameReplay(shape, capacity=30, num_envs=2, seeds=2, n_step=2, gamma=GAMMA), Stream(shape, 2, 2)
    for _ in range(20):
        replay.add(**stream.step())
    rows = torch.from_numpy(np.random.default_rng(0).integers(30, size=(3, 2, 5)))
    together = replay.gather(rows)
    assert together["obs"].shape == (3, 2, 5, *shape.observation.shape)
    for index in range(3):
        alone = replay.gather(rows[index])
        assert all(torch.equal(together[name][index], alone[name]) for name in alone)


def test_seeds_among_others_are_the_seeds_alone() -> None:
    shape = shape_of()
    stream = Stream(shape, 3, 2, longest=2)
    steps = [stream.step() for _ in range(40)]
    together = FrameReplay(shape, capacity=24, num_envs=2, seeds=3)
    alone = FrameReplay(shape, capacity=24, num_envs=2, seeds=1)
    together.final_places = alone.final_places = 3  # far too few: what then happens must not depend on the others
    for step in steps:
        together.add(**step)
        alone.add(**{name: value[1:2] for name, value in step.items()})
    rows = torch.arange(24)
    mine, theirs = together.gather(rows.expand(3, -1)), alone.gather(rows.expand(1, -1))
    assert all(torch.equal(mine[name][1], theirs[name][0]) for name in mine)


def test_a_final_frame_that_is_gone_is_replaced_by_the_frame_before_it() -> None:
    shape = shape_of(stack=2, channels=1)
    replay = FrameReplay(shape, capacity=6, num_envs=1, seeds=1)
    replay.final_places = 1
    stream = Stream(shape, 1, 1, longest=1)
    steps = [stream.step() for _ in range(5)]
    for step in steps:
        replay.add(**{**step, "terminated": np.zeros((1, 1), bool), "truncated": np.ones((1, 1), bool)})
    batch = replay.gather(torch.arange(5).unsqueeze(0))
    assert torch.equal(batch["next_obs"][0, 4], torch.from_numpy(steps[4]["next_obs"][0, 0])), "the newest is kept"
    for row in range(4):
        assert torch.equal(batch["next_obs"][0, row], torch.from_numpy(steps[row]["obs"][0, 0]))
    larger = FrameReplay(shape, capacity=12, num_envs=1, seeds=1)  # of a run that was extended: nothing comes back
    larger.write(0, replay.read(0, 5))
    larger.finish_writing(5)
    again = larger.gather(torch.arange(5).unsqueeze(0))
    assert all(torch.equal(again[name], batch[name]) for name in batch)


@pytest.mark.parametrize(
    ("limit", "capacity", "num_envs", "expected"),
    [
        (None, 80_000, 1, 10_000),
        (100, 400_000, 4, 4004),
        (27_000, 1_000_000, 1, 1024),
        (None, 100, 1, 100),
        (1, 50, 2, 52),
    ],
)
def test_room_for_final_frames(limit: int | None, capacity: int, num_envs: int, expected: int) -> None:
    from rl_training.data.replay.frames import final_frames

    assert final_frames(shape_of(limit=limit), capacity, num_envs) == expected


def test_a_known_time_limit_leaves_room_for_every_final_frame() -> None:
    """The tightest case: every environment is cut off at every step that it can be."""
    shape = shape_of(stack=2, channels=1, limit=3)
    frames, stacks = (cls(shape, capacity=3000, num_envs=2, seeds=1) for cls in (FrameReplay, ReplayBuffer))
    assert frames.final_places < 1100
    stream = Stream(shape, 1, 2)
    for step in range(2000):
        cut = np.full((1, 2), step % 3 == 2)
        stream.left[:] = 99
        fields = {**stream.step(), "truncated": cut}
        if cut.any():
            stream.begin((0, 0))
            stream.begin((0, 1))
        frames.add(**fields)
        stacks.add(**fields)
    assert_same_batches(frames, stacks)


# --- state ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("steps", [3, 9, 14, 33])
@pytest.mark.parametrize("n_step", [1, 3])
def test_segments_bring_the_buffer_back_and_it_resumes_alike(steps: int, n_step: int) -> None:
    shape, options = shape_of(), {"capacity": 22, "num_envs": 2, "seeds": 2, "n_step": n_step, "gamma": GAMMA}
    first, second, stacks = FrameReplay(shape, **options), FrameReplay(shape, **options), ReplayBuffer(shape, **options)
    stream, segments = Stream(shape, 2, 2), []
    for step in range(steps):
        fields = stream.step()
        first.add(**fields)
        stacks.add(**fields)
        if step % 4 == 2 or step == steps - 1:  # as a run saves: each segment when its transitions are new
            start = segments[-1][1] if segments else 0
            segments.append((start, first.added, first.read(start, first.added)))
    oldest = first.oldest()
    for start, stop, rows in segments:
        if stop > oldest:
            expected = first.segment_layout(stop - start, rows)
            assert {name: (tuple(one.shape), one.dtype) for name, one in rows.items()} == expected
            second.write(start, rows, max(oldest - start, 0))
    second.finish_writing(first.added)
    for _ in range(30):
        assert_same_batches(second, stacks)
        whole = [replay.read(replay.oldest(), replay.added) for replay in (first, second)]
        assert all(torch.equal(whole[0][name], whole[1][name]) for name in whole[0])
        fields = stream.step()
        for replay in (first, second, stacks):
            replay.add(**fields)


def test_an_empty_buffer_comes_back_empty() -> None:
    shape = shape_of()
    replay, stacks = (cls(shape, capacity=8, num_envs=1, seeds=1) for cls in (FrameReplay, ReplayBuffer))
    replay.finish_writing(0)
    stream = Stream(shape, 1, 1)
    for _ in range(5):
        fields = stream.step()
        replay.add(**fields)
        stacks.add(**fields)
    assert_same_batches(replay, stacks)


@pytest.mark.parametrize("n_step", [1, 3])
def test_episodes_that_could_not_be_brought_back_are_cut_off(n_step: int) -> None:
    shape, options = shape_of(), {"capacity": 40, "num_envs": 2, "seeds": 2, "n_step": n_step, "gamma": GAMMA}
    frames, stacks, stream = (
        FrameReplay(shape, **options),
        ReplayBuffer(shape, **options),
        Stream(shape, 2, 2, longest=9),
    )
    for step in range(12):
        if step == 4:
            stream.left[:] = 9
        fields = stream.step()
        frames.add(**fields)
        stacks.add(**fields)
        if step == 5:
            ended = (fields["terminated"] | fields["truncated"]).reshape(-1)
            assert not ended[1] and not ended[2], "they are open, or the test shows nothing"
            for replay in (frames, stacks):
                replay.cut_off([1, 2])
                assert replay.storage["truncated"][0, 11] and replay.storage["truncated"][1, 10]
            stream.begin((0, 1))
            stream.begin((1, 0))
    assert_same_batches(frames, stacks)


# --- size -------------------------------------------------------------------------------------------------------------
def test_which_buffer_is_made() -> None:
    assert replay_class(shape_of()) is FrameReplay
    assert replay_class(EnvSpec(image(4, 84, 84), discrete(2))) is FrameReplay
    assert replay_class(EnvSpec(vector(4), discrete(2))) is ReplayBuffer


def test_frames_are_stored_once() -> None:
    shape = shape_of(stack=4, channels=1)
    replay = FrameReplay(shape, capacity=500, num_envs=5, seeds=2)
    stored = sum(one.untyped_storage().nbytes() for one in (*replay.storage.values(), replay.pictures))
    assert stored == bytes_needed(shape, capacity=500, num_envs=5, seeds=2)
    atari = EnvSpec(image(4, 84, 84, frames=4), discrete(6), 27000)
    assert bytes_needed(atari, capacity=1_000_000, num_envs=8, seeds=1) / 1e9 == pytest.approx(7.09, abs=0.01)
    pixels = EnvSpec(image(9, 84, 84, frames=3), continuous(1), 200)
    assert bytes_needed(pixels, capacity=100_000, num_envs=1, seeds=1) / 1e9 == pytest.approx(2.14, abs=0.01)


def test_sampling_compiles_as_one_graph() -> None:
    shape = shape_of()
    replay, stream = FrameReplay(shape, capacity=30, num_envs=2, seeds=2, n_step=3, gamma=GAMMA), Stream(shape, 2, 2)
    compiled = torch.compile(replay.gather, backend="aot_eager", fullgraph=True, dynamic=False)
    rows = torch.from_numpy(np.random.default_rng(0).integers(10, size=(2, 6)))
    for _ in range(40):
        replay.add(**stream.step())
        if replay.size >= 10:
            eager, graph = replay.gather(rows), compiled(rows)
            assert all(torch.equal(eager[name], graph[name]) for name in eager)
