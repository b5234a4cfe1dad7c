"""The graphs of exported policies: what they compute stays the same, with fewer operations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from fresh_agents import VECTOR, fresh_agent
from gymnasium import spaces
from torch import Tensor, nn
from torch.nn import functional as F

from rl_training.deploy.export.policy import Policy
from rl_training.deploy.export.simplify import simplified
from rl_training.deploy.export.tracing import traced

WEIGHT, BIAS, ROW = torch.randn(1, 3, 6), torch.randn(1, 1, 6), torch.randn(6)
IMAGES, LAYER = torch.rand(3, 2, 6, 6), nn.Conv2d(2, 4, 3)


class Function(nn.Module):
    """A function of one batch, with a buffer that it may use."""

    count: Tensor

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def operations(function: Callable[[Tensor], Tensor], example: Tensor | None = None) -> list[str]:
    """The simplified operations of a function, which give the same for other numbers of rows too."""
    batch = torch.randn(3, 3) if example is None else example
    program = torch.export.export(Function(function), (batch,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    module = simplified(program)
    for rows in (batch[:2], torch.cat([batch, batch])):
        torch.testing.assert_close(module(rows), function(rows))
    return [str(node.target).split(".")[1] for node in module.graph.nodes if str(node.target).startswith("aten.")]


def layer(x: Tensor, weight: Tensor = WEIGHT, bias: Tensor = BIAS) -> Tensor:
    return torch.bmm(x, weight) + bias


REWRITES: dict[str, tuple[Callable[[Tensor], Tensor], list[str]]] = {
    "a layer": (lambda x: layer(x.unsqueeze(0)).relu().squeeze(0), ["addmm", "relu"]),
    "a layer of one column": (
        lambda x: layer(x.unsqueeze(0), WEIGHT[..., :1].expand(-1, -1, 2), BIAS[..., :1])[..., :1].squeeze(0),
        ["addmm"],
    ),
    "a normalised layer": (
        lambda x: (F.layer_norm(layer(x.unsqueeze(0)), (6,)) * BIAS + BIAS).squeeze(0),
        ["addmm", "layer_norm"],
    ),
    "a mean along another axis": (lambda x: layer(x.unsqueeze(0)).mean(-1).squeeze(0), ["addmm", "mean"]),
    "half of the columns": (lambda x: layer(x.unsqueeze(0)).squeeze(0).chunk(2, -1)[1].tanh(), ["addmm", "tanh"]),
    "the mean of groups of columns": (lambda x: layer(x.unsqueeze(0))[0].unflatten(-1, (2, 3)).mean(-1), ["addmm"]),
    "columns that are put together and split": (
        lambda x: torch.cat([x.tanh(), ROW[:3].expand_as(x)], -1).chunk(2, -1)[0],
        ["tanh"],
    ),
    "a view of the same shape": (lambda x: x.tanh().reshape(-1, 3), ["tanh"]),
    "the best of one row of choices": (lambda x: x.unsqueeze(-2).argmax(-1).squeeze(-1), ["argmax"]),
    "the best of values without a bound": (
        lambda x: x.clamp(min=-1e30).unsqueeze(-2).argmax(-1),
        ["argmax", "unsqueeze"],
    ),
    "one step of a memory": (
        lambda x: layer(x.unsqueeze(1).transpose(0, 1)).unbind(0)[0],
        ["addmm"],
    ),
    "what depends on constants": (lambda x: x * (torch.arange(3) + 0.5).cos(), ["mul"]),
    # These need what looks superfluous.
    "the best of bounded values": (lambda x: x.clamp(min=0).argmax(-1), ["clamp", "argmax"]),
    "two members": (
        lambda x: layer(x.unsqueeze(0).expand(2, -1, -1), WEIGHT.expand(2, -1, -1).contiguous())[1],
        ["unsqueeze", "expand", "bmm", "add", "select"],
    ),
    "both halves": (
        lambda x: torch.mul(*layer(x.unsqueeze(0)).squeeze(0).chunk(2, -1)),
        ["addmm", "split", "mul"],
    ),
    "a scaled bias": (lambda x: torch.add(torch.bmm(x.unsqueeze(0), WEIGHT), BIAS, alpha=2)[0], ["mm", "add"]),
    "a bias that adds columns": (lambda x: layer(x.unsqueeze(0), WEIGHT[..., :1])[0], ["mm", "add"]),
    "a mean along the axis of members": (lambda x: x.unsqueeze(0).mean(0).tanh(), ["unsqueeze", "mean", "tanh"]),
    "rows before an axis": (lambda x: (x.unsqueeze(1) + WEIGHT[0].mT).sum((1, 2)), ["unsqueeze", "add", "sum"]),
}


@pytest.mark.parametrize("case", REWRITES)
def test_rewrites(case: str) -> None:
    function, expected = REWRITES[case]
    assert operations(function) == expected


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda x: F.conv2d(x / 255 - 0.5, LAYER.weight, LAYER.bias), ["conv2d"]),
        (lambda x: F.conv2d(x / 255 - 0.5, LAYER.weight, LAYER.bias, padding=1), ["div", "sub", "conv2d"]),
        (lambda x: F.conv2d(x - x.mean(), LAYER.weight, LAYER.bias), ["mean", "sub", "conv2d"]),
    ],
    ids=["scaled images", "with padding", "not by a number"],
)
def test_images(function: Callable[[Tensor], Tensor], expected: list[str]) -> None:
    assert operations(function, IMAGES) == expected


def test_a_buffer_that_changes_is_no_constant() -> None:
    class Counts(Function):
        def forward(self, x: Tensor) -> Tensor:
            self.count.add_(1)
            return x * (self.count + 1)

    module = simplified(torch.export.export(Counts(torch.tanh), (torch.ones(3, 3),)))
    assert [float(module(torch.ones(3, 3))[0, 0]) for _ in range(2)] == [2, 3]


SYMMETRIC = spaces.Box(-2, 2, (2,))
GRAPHS: dict[str, tuple[str, spaces.Space[Any], list[str]]] = {
    "sac": ("sac", SYMMETRIC, ["addmm", "relu", "addmm", "relu", "addmm", "tanh", "mul", "clamp"]),
    "td3": ("td3", spaces.Box(-2, 2, (1,)), ["addmm", "relu", "addmm", "relu", "addmm", "tanh", "mul", "clamp"]),
    "ppo": ("ppo", SYMMETRIC, ["addmm", "tanh", "addmm", "tanh", "addmm", "mul", "clamp"]),
    "dqn": ("dqn", spaces.Discrete(3), ["addmm", "relu", "addmm", "relu", "addmm", "argmax"]),
    "discrete_sac": ("discrete_sac", spaces.Discrete(3), ["addmm", "relu", "addmm", "relu", "addmm", "argmax"]),
    "qr_dqn": ("qr_dqn", spaces.Discrete(3), ["addmm", "relu", "addmm", "relu", "addmm", "argmax"]),
}


@pytest.mark.parametrize("algo", GRAPHS)
def test_graphs_of_dense_policies(algo: str) -> None:
    name, action, expected = GRAPHS[algo]
    program = traced(Policy(fresh_agent(name, VECTOR, action)))
    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    assert [str(node.target).split(".")[1] for node in calls] == expected
