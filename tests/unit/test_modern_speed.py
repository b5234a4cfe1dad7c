"""The plain versions that `benchmarks/modern_speed.py` compares with do the work of the library's updates."""

from __future__ import annotations

import importlib
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rl_training.models.layers import StackedLinear

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def speed(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    return importlib.import_module("modern_speed")


def copy_member(ours: Any, member: int, plain: nn.Module) -> None:
    """Copy one member's dense layers and normalisations, each in their order."""
    layers = [one for one in ours.modules() if getattr(one, "weight", None) is not None]
    dense = [one for one in layers if isinstance(one, StackedLinear)]
    others = [one for one in plain.modules() if getattr(one, "weight", None) is not None]
    plain_dense = [one for one in others if isinstance(one, nn.Linear)]
    for mine, other in zip(dense, plain_dense, strict=True):
        other.weight.data.copy_(mine.weight[member].T)
    norms, plain_norms = [[o for o in a if o not in b] for a, b in ((layers, dense), (others, plain_dense))]
    for mine, other in zip(norms, plain_norms, strict=True):
        other.weight.data.copy_(mine.weight[member, 0])
    for mine, other in zip([*dense, *norms], [*plain_dense, *plain_norms], strict=True):
        if getattr(mine, "bias", None) is not None:
            other.bias.data.copy_(mine.bias[member, 0])


def rows(seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    shapes = {"obs": (8, 17), "next_obs": (8, 17), "actions": (8, 6), "rewards": (8,)}
    found = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    return {**found, "actions": found["actions"].tanh(), "dones": (torch.arange(8) % 4 == 0).float()}


@pytest.mark.sweep
@pytest.mark.parametrize("task", ["crossq", "simba", "flashsac"])
def test_the_plain_version_has_the_same_losses(speed: Any, task: str) -> None:
    """After a few updates too: gradients, optimizers, projections, running statistics and targets are the same."""
    torch.manual_seed(0)
    learner = speed.learner_of(task, 1, "cpu", quick=True)
    plain = speed.plain_of(task, learner.settings, "cpu")
    copy_member(learner.model.actor, 0, plain.actor)
    for member in (0, 1):
        copy_member(learner.model.critic, member, plain.critics[member])
    plain.target.load_state_dict(plain.critics.state_dict())
    learner.set_progress(0.0)
    for number in range(4):
        batch = rows(number)
        noise = learner.engine.host_noise(learner.update_noise(8))
        due = tuple(phase.name for phase in learner.engine.phases)
        with learner.engine.denormals_flushed():
            learner.engine.update({name: one.unsqueeze(0) for name, one in batch.items()}, noise, due)
        ours = learner.engine.metrics.newest()
        found = plain.update(batch, {name: one[0] for name, one in noise.items()}, policy=True)
        expected = {name: ours[name] for name in ("critic_loss", "actor_loss")}
        assert {name: found[name].item() for name in expected} == pytest.approx(expected, rel=2e-4, abs=1e-5), number


def test_it_runs_dry_on_a_cpu(speed: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """One part, as its process runs it; a line on stdin is its turn."""
    words = ["--device", "cpu", "--quick", "--rounds", "2", "--part", "flashsac", "1"]
    monkeypatch.setattr(sys, "argv", [str(BENCHMARKS / "modern_speed.py"), *words])
    monkeypatch.setattr(sys, "stdin", io.StringIO("go\n"))
    speed.main()
    ready, line = capsys.readouterr().out.splitlines()
    found = json.loads(line)
    assert ready == "ready" and found["ratio"] > 0 and found["plain_profile"]["largest"]
    assert speed.reached({"flashsac": found}).endswith("times (wanted: >= 6)")
