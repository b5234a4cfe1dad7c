"""Numbers too small for a normal float are zero in an update on a CPU, in every thread, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rl_training.algorithms import DQN
from rl_training.engine import denormals
from rl_training.engine.denormals import flushed_denormals

pytestmark = pytest.mark.skipif(denormals._library is None, reason="torch's threads are not GNU OpenMP's here")
TINY = 1e-40


@pytest.fixture(params=[1, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def zeros() -> int:
    """Of a million products, shared among the threads; looked at as bits, since a comparison may flush too."""
    product = torch.full((2**20,), TINY) * torch.tensor(1.5)
    return int((product.numpy().view(np.int32) == 0).sum())


def test_every_thread_flushes_inside_and_none_outside(threads: int) -> None:
    assert zeros() == 0  # the threads are there, and know nothing of it
    for _ in range(2):
        with flushed_denormals():
            assert zeros() == 2**20
            assert TINY**8 == 0.0  # 1e-320, in Python's own arithmetic
        assert zeros() == 0
        assert TINY**8 > 0


def test_an_error_inside_brings_the_usual_arithmetic_back(threads: int) -> None:
    with pytest.raises(RuntimeError), flushed_denormals():
        raise RuntimeError("an update failed")
    assert zeros() == 0


class Tiny:
    """Four transitions whose reward, and so the gradient of a network that says zero, is below the normal floats."""

    size, priorities, relabelled = 4, None, None

    def gather(self, rows: Tensor) -> dict[str, Tensor]:
        zeros, image = torch.zeros(rows.shape), torch.zeros(*rows.shape, 1)
        actions, rewards = torch.zeros(rows.shape, dtype=torch.long), torch.full(rows.shape, TINY)
        return {"obs": image, "next_obs": image, "actions": actions, "rewards": rewards, "dones": zeros}


class Zero(nn.Module):
    action_dim = 1

    def __init__(self) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.zeros(1))

    def forward(self, obs: Tensor) -> Tensor:
        return self.value.expand(len(obs), 1)


@pytest.mark.parametrize("way", ["update", "train"])
def test_learning_flushes_and_leaves_nothing_behind(way: str, threads: int) -> None:
    learner = DQN(q_network=Zero(), batch_size=4)
    if way == "update":
        learner.update(Tiny().gather(torch.zeros(4)))
    else:
        learner.train(Tiny(), 1, 1)
    assert learner.update_count == 1
    assert learner.engine.slots["adam_mean"]["q"].view(torch.int32).eq(0).all()  # else a tenth of the gradient
    assert zeros() == 0
