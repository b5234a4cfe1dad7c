"""Distributions over actions: against torch.distributions, masks, joint indices, stacked seeds."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from stacking import assert_same_for_stacked_seeds, compiled
from torch import Tensor
from torch.func import vmap

from rl_training.core.specs import ArraySpec, continuous, discrete, multi_discrete
from rl_training.models.distributions import distribution_of

CHOICES = (3, 3, 2, 5, 2)


def joint(*choices: int) -> ArraySpec:
    return replace(discrete(math.prod(choices)), multi_choices=choices)


SPECS = {
    "discrete": discrete(6),
    "one choice": discrete(1),
    "joint": joint(3, 2, 4),
    "joint of equal choices": joint(2, 2, 2),
    "multi-discrete": multi_discrete(CHOICES),
    "multi-binary": multi_discrete((2,) * 100),
    "wide": multi_discrete((17, 40)),
    "continuous": continuous(3),
    "one number": continuous(1),
    "wide continuous": continuous(21),
}
DISCRETE = [name for name, spec in SPECS.items() if spec.kind != "continuous"]


def drawn(noise: tuple[str, tuple[int, ...]], generator: torch.Generator | None = None) -> Tensor:
    kind, shape = noise
    return (torch.rand if kind == "uniform" else torch.randn)(shape, generator=generator)


def example(name: str, rows: int) -> tuple[Any, Tensor, Tensor, Tensor | None]:
    """A distribution with random parameters, actions and, for discrete ones, a mask that allows these."""
    made, generator = distribution_of(SPECS[name]), torch.Generator().manual_seed(rows)
    params = 2 * torch.randn(rows, made.outputs, generator=generator)
    if name not in DISCRETE:
        return made, params, made.sample(params, drawn(made.noise(rows), generator)), None
    mask = torch.rand(rows, made.outputs, generator=generator) < 0.5
    starts = np.cumsum([0, *made.choices[:-1]])
    for start, count in zip(starts, made.choices, strict=True):
        mask[:, start] |= ~mask[:, start : start + count].any(-1)
    return made, params, made.sample(params, drawn(made.noise(rows), generator), mask), mask


def by_element(name: str, actions: Tensor) -> np.ndarray[Any, Any]:
    """Actions as (rows, elements)."""
    spec = SPECS[name]
    if spec.kind == "multi_discrete":
        return actions.numpy()
    return np.stack(np.unravel_index(actions.numpy(), spec.multi_choices or (spec.choices,)), -1)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", DISCRETE)
def test_discrete_actions_are_torchs_independent_categoricals(name: str, masked: bool) -> None:
    made, params, actions, mask = example(name, 50)
    assert mask is not None
    mask = mask if masked else None
    log_prob, entropy = made.log_prob(params, actions, mask), made.entropy(params, mask)
    logits = params if mask is None else params.masked_fill(~mask, -math.inf)
    elements, start, expected, spread = by_element(name, actions), 0, torch.zeros(50), torch.zeros(50)
    best = []
    for number, count in enumerate(made.choices):
        theirs = torch.distributions.Categorical(logits=logits[:, start : start + count])
        expected = expected + theirs.log_prob(torch.from_numpy(elements[:, number].copy()))
        spread = spread - torch.special.xlogy(theirs.probs, theirs.probs).sum(-1)
        best.append(logits[:, start : start + count].argmax(-1).numpy())
        start += count
    torch.testing.assert_close(log_prob, expected, atol=2e-5, rtol=1e-5)
    torch.testing.assert_close(entropy, spread, atol=2e-5, rtol=1e-5)
    mode = made.mode(params, mask)
    assert (by_element(name, mode) == np.stack(best, -1)).all()
    for found in (actions, mode):
        assert found.dtype == torch.int64 and found.shape == (50, *SPECS[name].shape)


@pytest.mark.parametrize("name", ["continuous", "one number"])
def test_continuous_actions_are_torchs_normals(name: str) -> None:
    made, params, actions, _ = example(name, 50)
    mean, log_std = params.chunk(2, -1)
    theirs = torch.distributions.Normal(mean, log_std.exp())
    torch.testing.assert_close(made.log_prob(params, actions), theirs.log_prob(actions).sum(-1), atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(made.entropy(params), theirs.entropy().sum(-1))
    assert torch.equal(made.mode(params), mean)
    noise = torch.randn(50, SPECS[name].size)
    torch.testing.assert_close(made.sample(params, noise), mean + log_std.exp() * noise)


def test_actions_are_drawn_as_often_as_their_probabilities() -> None:
    rows, made = 100_000, distribution_of(joint(3, 2))
    params = torch.tensor([1.0, 0.0, -1.0, 0.5, -0.5])
    generator = torch.Generator().manual_seed(0)
    actions = made.sample(params.expand(rows, -1), drawn(made.noise(rows), generator))
    expected = torch.outer(params[:3].softmax(-1), params[3:].softmax(-1)).flatten()
    shares = actions.bincount(minlength=6) / rows
    assert (shares - expected).abs().max() < 4 * math.sqrt(0.25 / rows)
    every = torch.arange(6)
    torch.testing.assert_close(made.log_prob(params.expand(6, -1), every).exp(), expected)


def test_a_masked_action_is_never_drawn() -> None:
    rows, made = 100_000, distribution_of(multi_discrete((4, 2, 3)))
    # The logits of what is not allowed are by far the largest, those of what is allowed the lowest that there are.
    params = torch.tensor([50.0, -math.inf, 50.0, -1e32, 0.0, 50.0, 0.0, 1.0, 2.0]).expand(rows, -1)
    mask = torch.tensor([False, True, False, True, True, False, False, False, True]).expand(rows, -1)
    noise = drawn(made.noise(rows), torch.Generator().manual_seed(1))
    noise[: rows // 2] = (noise[: rows // 2] < 0.5).float()  # 0 and 1 themselves
    for actions in (made.sample(params, noise, mask), made.mode(params, mask)):
        assert set(actions[:, 0].tolist()) <= {1, 3}
        assert (actions[:, 1] == 0).all() and (actions[:, 2] == 2).all()


@pytest.mark.parametrize("number", [0.0, 1.0])
def test_the_ends_of_the_uniform_numbers_are_safe(number: float) -> None:
    made = distribution_of(discrete(3))
    assert made.sample(torch.tensor([[0.0, 3.0, 1.0]]), torch.full((1, 3), number)).item() == 1


@pytest.mark.parametrize("name", DISCRETE)
def test_masked_choices_have_no_gradient_and_the_rest_is_finite(name: str) -> None:
    made, params, actions, mask = example(name, 20)
    assert mask is not None
    for function in (lambda one: made.log_prob(one, actions, mask), lambda one: made.entropy(one, mask)):
        leaf = params.clone().requires_grad_()
        function(leaf).sum().backward()
        assert leaf.grad is not None and leaf.grad.isfinite().all()
        assert not leaf.grad[~mask].any()
        assert leaf.grad[mask].any() or name == "one choice"


def test_one_allowed_action_has_probability_1() -> None:
    made, params = distribution_of(joint(3, 2)), torch.randn(4, 5)
    mask = torch.tensor([False, True, False, False, True]).expand(4, -1)
    assert made.mode(params, mask).tolist() == [3] * 4
    assert not made.log_prob(params, torch.full((4,), 3), mask).any()
    assert not made.entropy(params, mask).any()


@pytest.mark.parametrize("name", DISCRETE)
def test_actions_are_valid_whatever_the_network_returns(name: str) -> None:
    """The engine reports a diverged seed; until then its actions must be valid. So must those with nothing allowed."""
    made, _, _, mask = example(name, 8)
    assert mask is not None
    for value in (math.nan, math.inf, -math.inf):
        for allowed in (None, mask, torch.zeros_like(mask)):
            params = torch.full(mask.shape, value)
            for actions in (made.mode(params, allowed), made.sample(params, drawn(made.noise(8)), allowed)):
                by_element(name, actions)  # raises for an index that does not exist
                limits = torch.tensor(SPECS[name].multi_choices if SPECS[name].shape else SPECS[name].choices)
                assert ((actions >= 0) & (actions < limits)).all()
                if allowed is mask and SPECS[name].shape:
                    starts = torch.tensor(np.cumsum([0, *made.choices[:-1]]))
                    assert mask.gather(-1, actions + starts).all()
    entropy = made.entropy(torch.zeros(mask.shape), torch.zeros_like(mask))
    torch.testing.assert_close(entropy, torch.full((8,), sum(math.log(count) for count in made.choices)))


@pytest.mark.parametrize("rows", [1, 3, 17])
@pytest.mark.parametrize("name", SPECS)
def test_a_row_has_the_same_bits_among_stacked_seeds_and_among_other_rows(name: str, rows: int) -> None:
    made, seeds = distribution_of(SPECS[name]), 3
    _, params, actions, mask = example(name, seeds * rows)
    noise = drawn(made.noise(seeds * rows), torch.Generator().manual_seed(2))
    masks = () if mask is None else (mask,)

    def every(params: Tensor, actions: Tensor, noise: Tensor, *mask: Tensor) -> tuple[Tensor, ...]:
        return (
            made.log_prob(params, actions, *mask), made.entropy(params, *mask), made.mode(params, *mask),
            made.sample(params, noise, *mask), made.log_prob(params, actions), made.entropy(params),
        )  # fmt: skip

    inputs = [params, actions, noise, *masks]
    by_seed = [one.view(seeds, rows, *one.shape[1:]) for one in inputs]
    assert_same_for_stacked_seeds(every, *by_seed)
    together = every(*inputs)
    for row in range(seeds * rows):
        for one, all_rows in zip(every(*(each[row : row + 1] for each in inputs)), together, strict=True):
            assert torch.equal(one[0], all_rows[row])


@pytest.mark.sweep
@pytest.mark.parametrize("name", ["joint", "multi-discrete", "continuous"])
def test_compiled_without_graph_breaks(name: str) -> None:
    made, params, actions, mask = example(name, 6)
    noise = drawn(made.noise(6))

    def every(params: Tensor, actions: Tensor, noise: Tensor, mask: Tensor | None) -> tuple[Tensor, ...]:
        sampled = made.sample(params, noise, mask)
        return sampled, made.mode(params, mask), made.log_prob(params, actions, mask), made.entropy(params, mask)

    def stacked(*inputs: Tensor) -> Any:
        return vmap(lambda *one: every(*one, None))(*(one.unflatten(0, (2, 3)) for one in inputs))

    torch.testing.assert_close(compiled(every, params, actions, noise, mask), every(params, actions, noise, mask))
    torch.testing.assert_close(compiled(stacked, params, actions, noise), stacked(params, actions, noise))
