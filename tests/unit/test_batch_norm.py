"""Batch normalisation, renormalisation and joined passes against numbers worked out by hand."""

from __future__ import annotations

import pytest
import torch
from stacking import as_function, assert_same_for_stacked_seeds, stacked_parameters
from torch import nn

from rl_training.algorithms.losses import joined_pass
from rl_training.core.checks import UserError
from rl_training.models.mlp_crossq import RenormalizedMLP
from rl_training.models.normalization import BatchRenorm, StackedBatchNorm


def test_batch_norm_is_torchs_for_each_member() -> None:
    torch.manual_seed(0)
    ours, theirs = StackedBatchNorm(2, 5, momentum=0.3), [nn.BatchNorm1d(5, momentum=0.3) for _ in range(2)]
    for member, one in enumerate(theirs):
        nn.init.normal_(one.weight)
        nn.init.normal_(one.bias)
        ours.weight.data[member, 0], ours.bias.data[member, 0] = one.weight.data, one.bias.data
    for _ in range(3):
        x = torch.randn(2, 7, 5) * 3 + 1
        torch.testing.assert_close(ours(x), torch.stack([one(x[i]) for i, one in enumerate(theirs)]))
    for i, one in enumerate(theirs):
        torch.testing.assert_close(ours.running_mean[i, 0], one.running_mean)
        torch.testing.assert_close(ours.running_var[i, 0], one.running_var)
    ours.eval()
    torch.testing.assert_close(ours(x), torch.stack([one.eval()(x[i]) for i, one in enumerate(theirs)]))


def test_members_normalise_a_shared_input_and_have_their_own_statistics() -> None:
    layer, x = StackedBatchNorm(3, 2), torch.randn(1, 6, 2)
    assert layer(x).shape == (3, 6, 2)
    assert layer.running_mean.shape == (3, 1, 2) and torch.equal(layer.running_mean[0], layer.running_mean[2])


def renorm(mean: float, var: float, warmup: int = 0) -> BatchRenorm:
    layer = BatchRenorm(1, 1, momentum=0.5, eps=0.0, warmup=warmup)
    layer.running_mean.fill_(mean)
    layer.running_var.fill_(var)
    return layer


def test_renormalisation_is_that_of_the_running_statistics() -> None:
    """The batch 0, 2, 4 by the mean 1 and standard deviation 2, then half the statistics are its own."""
    layer, x = renorm(1.0, 4.0), torch.tensor([[[0.0], [2.0], [4.0]]])
    torch.testing.assert_close(layer(x).flatten(), torch.tensor([-0.5, 0.5, 1.5]))
    assert layer.running_mean.item() == pytest.approx(0.5 * 1 + 0.5 * 2)
    assert layer.running_var.item() == pytest.approx(0.5 * 4 + 0.5 * 4)  # the batch's, 8/3 * 3/2
    assert layer.passes.item() == 1


@pytest.mark.parametrize(
    ("mean", "var", "r", "d"),
    [
        (2.0, 8 / 3 / 2.25, 1.5, 0.0),
        (2.0, 8 / 3 / 100, 3.0, 0.0),  # the batch deviates ten times as much: r is 3 at most
        (2.0, 8 / 3 * 100, 1 / 3, 0.0),  # a tenth: 1/3 at least
        (-100.0, 8 / 3, 1.0, 5.0),  # d is from -5 to 5
        (100.0, 8 / 3, 1.0, -5.0),
    ],
)
def test_corrections_are_clipped_and_constant(mean: float, var: float, r: float, d: float) -> None:
    layer, x = renorm(mean, var), torch.tensor([[[0.0], [2.0], [4.0]]], requires_grad=True)
    plain = nn.BatchNorm1d(1, eps=1e-12)
    y = x.detach()[0].clone().requires_grad_()
    expected = plain(y) * r + d
    found = layer(x)
    torch.testing.assert_close(found[0], expected)
    weights = torch.tensor([[1.0], [-3.0], [0.5]])
    (found[0] * weights).sum().backward()
    (expected * weights).sum().backward()
    torch.testing.assert_close(x.grad[0], y.grad)  # r and d are numbers to the gradient


def test_it_is_plain_batch_normalisation_until_it_is_warm() -> None:
    layer, x = renorm(1.0, 4.0, warmup=2), torch.tensor([[[0.0], [2.0], [4.0]]])
    plain = (8 / 3) ** -0.5 * torch.tensor([-2.0, 0.0, 2.0])
    for _ in range(2):
        torch.testing.assert_close(layer(x).flatten(), plain)
    assert (layer(x).flatten() - plain).abs().max() > 1e-3
    layer.eval()
    before = layer.passes.clone(), layer.running_mean.clone()
    layer(x)
    assert torch.equal(layer.passes, before[0]) and torch.equal(layer.running_mean, before[1])


@pytest.mark.parametrize("layer", [StackedBatchNorm(1, 2), BatchRenorm(1, 2)])
def test_a_batch_of_one_is_rejected_in_training_only(layer: nn.Module) -> None:
    with pytest.raises(UserError, match=r"^batch_size must be >= 2 with batch normalisation, got 1$"):
        layer(torch.zeros(1, 1, 2))
    assert layer.eval()(torch.zeros(1, 1, 2)).shape == (1, 1, 2)


def test_a_joined_pass_shares_statistics_and_stops_at_the_second_half() -> None:
    """One input, rows 0 and 2, then 4 and 6: mean 3, variance 5. The second half is a constant to the loss.

    The gradient of the first half's first output by its own input is (1 - 1/4 - 9/20) / sqrt(5).
    """
    norm = StackedBatchNorm(1, 1, eps=0.0)
    obs, actions = torch.tensor([[0.0], [2.0]], requires_grad=True), torch.zeros(2, 0)
    next_obs = torch.tensor([[4.0], [6.0]], requires_grad=True)

    def critic(obs: torch.Tensor, actions: torch.Tensor) -> torch.Tensor:
        return norm(torch.cat([obs, actions], 1).unsqueeze(0)).squeeze(-1)

    own, following = joined_pass(critic, (obs, actions), (next_obs, actions))
    torch.testing.assert_close(own, torch.tensor([[-3.0, -1.0]]) / 5**0.5)
    torch.testing.assert_close(following, torch.tensor([[1.0, 3.0]]) / 5**0.5)
    assert not following.requires_grad
    own[0, 0].backward()
    assert obs.grad is not None and obs.grad[0].item() == pytest.approx((1 - 1 / 4 - 9 / 20) / 5**0.5)


def test_rows_of_observations_by_name_are_joined_too() -> None:
    obs = {"a": torch.zeros(2, 1), "b": torch.zeros(2, 3)}
    seen = {}

    def critic(obs: dict[str, torch.Tensor], actions: torch.Tensor) -> torch.Tensor:
        seen.update({name: one.shape for name, one in obs.items()})
        return actions.T

    joined_pass(critic, (obs, torch.zeros(2, 1)), (obs, torch.ones(2, 1)))
    assert seen == {"a": (4, 1), "b": (4, 3)}


@pytest.mark.parametrize("rows", [2, 9, 32])
def test_stacked_seeds_have_the_bits_of_each_alone(rows: int) -> None:
    torch.manual_seed(1)
    nets = [RenormalizedMLP(2, 3, (17, 5), 2, momentum=0.1, warmup=0) for _ in range(3)]
    every = [dict(one.named_buffers()) for one in nets]
    buffers = {name: torch.stack([one[name] for one in every]) for name in every[0]}
    function = as_function(nets[0])

    def pure(params: dict[str, torch.Tensor], buffers: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        own = {**params, **{name: one.clone() for name, one in buffers.items()}}
        return function(own, x)

    assert_same_for_stacked_seeds(pure, stacked_parameters(nets), buffers, torch.randn(3, rows, 3))
