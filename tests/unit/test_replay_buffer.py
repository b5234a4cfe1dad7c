"""The replay ring: what is stored where, what a sample holds, and that its state comes back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rl_training.core.specs import EnvSpec, continuous, discrete, image, vector
from rl_training.data.replay.buffer import ReplayBuffer, field_layout, replay_bytes

SHAPE = EnvSpec(vector(2), continuous(3))


def number(seed: int, env: int, step: int) -> int:
    """Tells where a transition came from."""
    return 1000 * seed + 100 * env + step


def vector_step(step: int, seeds: int = 2, num_envs: int = 2, **changes: Any) -> dict[str, np.ndarray]:
    ids = np.array([[number(s, e, step) for e in range(num_envs)] for s in range(seeds)], np.float32)
    values = {
        "obs": ids[..., None] + np.array([0.0, 0.5], np.float32),
        "actions": np.stack([ids, -ids, ids / 2], -1),
        "rewards": ids,
        "next_obs": ids[..., None] + np.array([0.25, 0.75], np.float32),
        "terminated": np.zeros_like(ids, bool),
        "truncated": np.zeros_like(ids, bool),
    }
    return {**values, **changes}


def filled(steps: int, capacity: int = 8, **options: Any) -> ReplayBuffer:
    replay = ReplayBuffer(SHAPE, capacity=capacity, num_envs=2, seeds=2, **options)
    for step in range(steps):
        replay.add(**vector_step(step))
    return replay


def test_the_ring_overwrites_the_oldest() -> None:
    replay = filled(steps=6)  # 12 transitions a seed in 8 places: steps 0 and 1 are gone
    assert (replay.size, replay.head, replay.oldest(), replay.added) == (8, 4, 4, 12)
    assert replay.size_tensor.item() == 8
    for seed in range(2):
        expected = [number(seed, env, step) for step in (4, 5, 2, 3) for env in range(2)]
        assert replay.storage["rewards"][seed].tolist() == expected


def test_the_size_before_the_ring_is_full() -> None:
    replay = filled(steps=3)
    assert (replay.size, replay.head, replay.oldest(), replay.size_tensor.item()) == (6, 6, 0, 6)


@pytest.mark.parametrize(("capacity", "expected"), [(9, 8), (8, 8), (1, 2)])
def test_the_capacity_holds_whole_vector_steps(capacity: int, expected: int) -> None:
    assert ReplayBuffer(SHAPE, capacity=capacity, num_envs=2, seeds=1).capacity == expected


def test_gather_gives_each_seed_exactly_the_rows_asked_for() -> None:
    replay = filled(steps=4)  # row 2 * step + env
    rows = [[0, 7, 7], [5, 2, 0]]
    batch = replay.gather(torch.tensor(rows))
    for seed in range(2):
        ids = [number(seed, row % 2, row // 2) for row in rows[seed]]
        assert batch["rewards"][seed].tolist() == ids
        assert batch["obs"][seed].tolist() == [[i, i + 0.5] for i in ids]
        assert batch["next_obs"][seed].tolist() == [[i + 0.25, i + 0.75] for i in ids]
        assert batch["actions"][seed].tolist() == [[i, -i, i / 2] for i in ids]


def test_gather_of_several_batches_is_the_batches_one_by_one() -> None:
    replay = filled(steps=4)
    rows = torch.from_numpy(np.random.default_rng(0).integers(8, size=(3, 2, 5)))
    together = replay.gather(rows)
    for index in range(3):
        alone = replay.gather(rows[index])
        assert set(alone) == {"obs", "actions", "rewards", "next_obs", "dones"}
        assert all(torch.equal(together[name][index], alone[name]) for name in alone)


def test_dones_are_the_terminated_and_not_the_truncated() -> None:
    replay = ReplayBuffer(SHAPE, capacity=4, num_envs=4, seeds=1)
    flags = {"terminated": np.array([[0, 1, 0, 1]], bool), "truncated": np.array([[0, 0, 1, 1]], bool)}
    replay.add(**vector_step(0, seeds=1, num_envs=4, **flags))
    assert replay.gather(torch.tensor([[0, 1, 2, 3]]))["dones"].tolist() == [[0.0, 1.0, 0.0, 1.0]]
    assert replay.storage["truncated"].tolist() == [[False, False, True, True]], "what happened is kept"


def test_what_was_added_is_copied() -> None:
    replay, step = ReplayBuffer(SHAPE, capacity=4, num_envs=2, seeds=2), vector_step(0)
    replay.add(**step)
    step["obs"] += 99
    assert replay.storage["obs"][1, 0].tolist() == [1000.0, 1000.5]


def test_read_gives_the_rows_in_the_order_they_were_added() -> None:
    replay = filled(steps=6)
    rows = replay.read(5, 11)  # across the wrap at 8
    assert rows["rewards"][1].tolist() == [number(1, n % 2, n // 2) for n in range(5, 11)]


@pytest.mark.parametrize("steps", [3, 4, 6, 9])
def test_segments_bring_the_buffer_back_and_it_resumes_alike(steps: int) -> None:
    first, second = filled(steps), filled(0)
    cut = (first.oldest() + first.added) // 2
    for start, stop in ((first.oldest(), cut), (cut, first.added)):
        second.write(start, first.read(start, stop))
    second.finish_writing(first.added)
    for replay in (first, second):
        replay.add(**vector_step(50))
    assert all(torch.equal(first.storage[name], second.storage[name]) for name in first.storage)
    assert (first.added, first.size_tensor.item()) == (second.added, second.size_tensor.item())


@pytest.mark.parametrize("skip", [0, 1, 3])
def test_a_segment_is_written_around_the_end_of_the_ring(skip: int) -> None:
    first, second = filled(steps=6), filled(steps=0)
    rows = first.read(5, 11)  # its places are 5 to 7, then 0 to 2
    second.write(5, rows, skip)
    for name, tensor in second.storage.items():
        expected = torch.zeros_like(tensor)
        for row in range(5 + skip, 11):
            expected[:, row % 8] = rows[name][:, row - 5]
        assert torch.equal(tensor, expected), name


@pytest.mark.parametrize(
    "spec",
    [SHAPE, EnvSpec(vector(4), discrete(2)), EnvSpec(image(3, 8, 8), continuous(1))],
    ids=["continuous", "discrete", "image"],
)
def test_the_storage_is_what_was_estimated(spec: EnvSpec) -> None:
    replay = ReplayBuffer(spec, capacity=100, num_envs=2, seeds=3)
    stored = sum(tensor.untyped_storage().nbytes() for tensor in replay.storage.values())
    assert stored == pytest.approx(replay_bytes(spec, seeds=3, capacity=100), rel=0.05)
    assert {name: str(tensor.dtype)[6:] for name, tensor in replay.storage.items()} == {
        name: dtype for name, (_, dtype) in field_layout(spec).items()
    }


def test_images_stay_bytes_and_discrete_actions_integers() -> None:
    replay = ReplayBuffer(EnvSpec(image(1, 2, 2), discrete(5)), capacity=2, num_envs=1, seeds=1)
    picture = np.array([[[[[0, 255], [7, 128]]]]], np.uint8)
    flag = np.zeros((1, 1), bool)
    flags = {"terminated": flag, "truncated": flag}
    replay.add(obs=picture, next_obs=255 - picture, actions=np.array([[4]]), rewards=flag + 0.5, **flags)
    batch = replay.gather(torch.tensor([[0]]))
    assert batch["obs"].dtype == torch.uint8
    assert batch["obs"].flatten().tolist() == [0, 255, 7, 128]
    assert batch["next_obs"].flatten().tolist() == [255, 0, 248, 127]
    assert batch["actions"].dtype == torch.int64
    assert batch["actions"].tolist() == [[4]]
