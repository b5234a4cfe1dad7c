"""Vector steps that are sent together and stored by the device: the same rows as those that are stored at once."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rl_training.core.specs import EnvSpec, continuous, discrete, image, vector
from rl_training.data.replay.buffer import ReplayBuffer
from rl_training.data.replay.frames import FrameReplay
from rl_training.tensors.outbox import Outbox

SEEDS, ENVS, CAPACITY = 2, 3, 12
SPEC, PIXELS = EnvSpec(vector(2), continuous(3)), EnvSpec(image(3, 4, 4, frames=3), discrete(5))


def fields(spec: EnvSpec, step: int) -> dict[str, torch.Tensor]:
    rng = np.random.default_rng(step)

    def draw(one):  # type: ignore[no-untyped-def]
        return torch.from_numpy(rng.integers(0, 5, (SEEDS, ENVS, *one.shape)).astype(one.dtype))

    flags = torch.from_numpy(rng.random((2, SEEDS, ENVS)) < 0.2)
    return {
        "obs": draw(spec.observation), "actions": draw(spec.action), "next_obs": draw(spec.observation),
        "rewards": torch.from_numpy(rng.random((SEEDS, ENVS), dtype=np.float32)),
        "terminated": flags[0], "truncated": flags[1],
    }  # fmt: skip


DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.cuda)]


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> torch.device:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    return torch.device(request.param)


def make(kind: type[ReplayBuffer], spec: EnvSpec, device: torch.device, **options: object) -> ReplayBuffer:
    return kind(spec, capacity=CAPACITY, num_envs=ENVS, seeds=SEEDS, device=device, **options)  # type: ignore[arg-type]


def assert_same(one: ReplayBuffer, other: ReplayBuffer) -> None:
    stored, expected = (replay.read(replay.oldest(), replay.added) for replay in (one, other))
    assert stored.keys() == expected.keys()
    assert all(torch.equal(stored[name], expected[name]) for name in expected)
    assert int(one.added_tensor) == int(other.added_tensor) and int(one.size_tensor) == int(other.size_tensor)


@pytest.mark.parametrize("kind, spec", [(ReplayBuffer, SPEC), (FrameReplay, PIXELS)])
def test_sent_steps_are_stored_as_direct_ones(kind: type[ReplayBuffer], spec: EnvSpec, device: torch.device) -> None:
    """In whatever way they are stored: by the next step, by an update, with the inputs of acting, or by a save."""
    sent, direct = make(kind, spec, device), make(kind, spec, device)
    outbox = Outbox(device)
    sent.send_by(outbox)
    acting = outbox.reserve({"obs": ((4,), torch.float32)})
    for step in range(11):
        for replay in (sent, direct):
            replay.add(**fields(spec, step))
        if step % 3 == 1:  # acting takes the step along, twice: the second copy must not bring an older one back
            for value in (step, step + 0.5):
                acting.put(obs=np.full(4, value, np.float32))
                outbox.send()
            assert acting.tensors["obs"].tolist() == [step + 0.5] * 4
        if step % 2:
            assert sent.take_unstored() and not sent.take_unstored()
            sent.store_sent()
            sent.store_sent()  # as the warm-up before a capture does
        if step % 4 == 0:
            assert_same(sent, direct)
    assert_same(sent, direct)


def test_new_rows_get_the_highest_priority(device: torch.device) -> None:
    sent, direct = (make(ReplayBuffer, SPEC, device, priority_alpha=0.6) for _ in range(2))
    sent.send_by(Outbox(device))
    for step in range(7):
        for replay in (sent, direct):
            replay.add(**fields(SPEC, step))
            replay.flush()
            assert replay.priorities is not None
            errors = torch.tensor([[2.0, 0.5], [3.0, 0.1]], device=device) * (step + 1)
            replay.priorities.update(torch.tensor([[0, 2], [1, 2]], device=device), errors)
        assert sent.priorities is not None and direct.priorities is not None
        assert torch.equal(sent.priorities.tree, direct.priorities.tree)


def test_values_are_aligned_and_typed(device: torch.device) -> None:
    outbox = Outbox(device)
    layout = {"flags": ((3,), torch.bool), "count": ((), torch.int64), "numbers": ((2, 2), torch.float32)}
    box = outbox.reserve(layout)
    box.put(flags=np.array([True, False, True]), count=2**40 + 1, numbers=np.eye(2))
    assert not box.tensors["flags"].any()  # nothing arrives before `send`
    outbox.send()
    assert box.tensors["flags"].tolist() == [True, False, True] and int(box.tensors["count"]) == 2**40 + 1
    assert box.tensors["numbers"].tolist() == [[1, 0], [0, 1]]
    with pytest.raises(AssertionError, match="in use"):
        outbox.reserve(layout)


def test_loaded_rows_are_not_overwritten_by_an_older_step(device: torch.device) -> None:
    """A step that was on its way when a state was loaded belongs to another run."""
    sent, direct = make(ReplayBuffer, SPEC, device), make(ReplayBuffer, SPEC, device)
    sent.send_by(Outbox(device))
    direct.add(**fields(SPEC, 1))
    sent.add(**fields(SPEC, 0))
    sent.write(0, direct.read(0, direct.added))
    sent.finish_writing(direct.added)
    assert_same(sent, direct)
