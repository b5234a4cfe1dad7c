"""Numbers too small for a normal float are zero in an update on a CPU, in every thread, and nowhere else."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from rl_training.engine import denormals
from rl_training.engine.denormals import flushed_denormals
from rl_training.engine.engine import Engine
from rl_training.engine.phases import Batch, Groups, Metrics, Noise, Phase

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


def test_an_update_flushes_and_leaves_nothing_behind(threads: int) -> None:
    # The loss is w * x with x below the normal floats: its gradient is x, so that Adam's mean shows what became of it.
    def loss(groups: Groups, batch: Batch, noise: Noise) -> tuple[Tensor, Metrics]:
        value = (groups["net"]["w"] * batch["x"]).sum()
        return value, {"loss": value.detach()}

    phase = Phase(("net",), loss)
    engine = Engine([phase], {"net": [{"w": torch.ones(4)}]}, seeds=[0], device=torch.device("cpu"))
    engine.set_rates([0.1])
    engine.update({"x": torch.full((1, 4), TINY)}, {})
    assert engine.adam_mean["net"].view(torch.int32).eq(0).all()
    assert zeros() == 0
