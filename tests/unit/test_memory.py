"""Recurrent layers: against torch.nn, resets inside a sequence, steps against sequences, stacked seeds."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
import torch
from stacking import as_function, assert_same_for_stacked_seeds, compiled, stacked_parameters
from torch import Tensor, nn
from torch.func import vmap

from rl_training.core.checks import UserError
from rl_training.models.memory import Memory, memory

KINDS = ("lstm", "gru")


def theirs(ours: Memory) -> Any:
    """torch's layer with the same weights."""
    made = (nn.LSTM if "c" in ours.states else nn.GRU)(ours.inputs, ours.size, batch_first=True)
    made.weight_ih_l0.data.copy_(ours.input_weight[0].T)
    made.weight_hh_l0.data.copy_(ours.weight[0].T)
    made.bias_ih_l0.data.copy_(ours.input_bias.flatten())
    made.bias_hh_l0.data.copy_(ours.bias.flatten())
    return made


def example(kind: str, rows: int = 5, length: int = 7) -> tuple[Memory, Tensor, dict[str, Tensor], Tensor]:
    """A layer with random biases, and sequences with a state and no starts."""
    torch.manual_seed(rows + length)
    made = memory(kind, 3, 6)
    for bias in (made.input_bias, made.bias):
        nn.init.normal_(bias)
    state = {name: torch.randn_like(one) for name, one in made.initial_state(rows).items()}
    return made, torch.randn(rows, length, 3), state, torch.zeros(rows, length, dtype=torch.bool)


def torch_pass(layer: Any, x: Tensor, state: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    packed = tuple(one.unsqueeze(0) for one in state.values())
    outputs, after = layer(x, packed if len(packed) == 2 else packed[0])
    after = after if isinstance(after, tuple) else (after,)
    return outputs, {name: one.squeeze(0) for name, one in zip(state, after, strict=True)}


@pytest.mark.parametrize("kind", KINDS)
def test_results_and_gradients_are_torchs(kind: str) -> None:
    made, x, state, starts = example(kind)
    reference = theirs(made)
    found, expected = made(x, state, starts), torch_pass(reference, x, state)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-5)
    for outputs, after in (found, expected):
        (outputs.square().sum() + sum(one.sum() for one in after.values())).backward()
    torch.testing.assert_close(made.weight.grad[0].T, reference.weight_hh_l0.grad, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(made.input_weight.grad[0].T, reference.weight_ih_l0.grad, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(made.bias.grad.flatten(), reference.bias_hh_l0.grad, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_an_episode_that_starts_inside_a_sequence_starts_from_zeros(kind: str) -> None:
    made, x, state, starts = example(kind, rows=3)
    starts[0, 0] = starts[1, 4] = starts[2, 2] = starts[2, 5] = True
    outputs, after = made(x, state, starts)
    reference = theirs(made)
    for row, cuts in enumerate(([0, 0, 7], [0, 4, 7], [0, 2, 5, 7])):
        current = {name: one[row : row + 1] for name, one in state.items()}
        for number, (begin, end) in enumerate(pairwise(cuts)):
            current = made.initial_state(1) if number else current
            if begin < end:
                expected, current = torch_pass(reference, x[row : row + 1, begin:end], current)
                torch.testing.assert_close(outputs[row : row + 1, begin:end], expected, atol=1e-6, rtol=1e-5)
        for name, one in current.items():
            torch.testing.assert_close(after[name][row : row + 1], one, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_passes_from_one_episode_to_the_next(kind: str) -> None:
    made, x, state, starts = example(kind)
    starts[:, 3] = True
    state = {name: one.requires_grad_() for name, one in state.items()}
    outputs, _ = made(x, state, starts)
    gradients = torch.autograd.grad(outputs[:, 3:].sum(), list(state.values()))
    assert not any(one.any() for one in gradients)
    x[1, :3] = torch.nan  # not even NaN
    torch.testing.assert_close(made(x, state, starts)[0][:, 3:], outputs[:, 3:])


@pytest.mark.parametrize("kind", KINDS)
def test_step_by_step_is_the_whole_sequence(kind: str) -> None:
    made, x, state, starts = example(kind)
    starts[1, 3] = starts[2, 0] = True
    outputs, after = made(x, state, starts)
    for step in range(x.shape[1]):
        output, state = made(x[:, step], state, starts[:, step])
        assert output.shape == (5, made.size)
        torch.testing.assert_close(output, outputs[:, step], atol=1e-6, rtol=0)
    torch.testing.assert_close(state, after, atol=1e-6, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_initial_weights_and_state(kind: str) -> None:
    made = memory(kind, 4, 6)
    for weight in (made.input_weight[0], made.weight[0]):
        torch.testing.assert_close(weight @ weight.T, torch.eye(len(weight)), atol=1e-5, rtol=0)
    assert not made.bias.any() and not made.input_bias.any()
    state = made.initial_state(3)
    assert {name: tuple(one.shape) for name, one in state.items()} == dict.fromkeys(made.states, (3, 6))
    assert not any(one.any() for one in state.values())


@pytest.mark.parametrize(("rows", "length", "size"), [(1, 1, 1), (1, 3, 5), (4, 1, 8), (5, 6, 17), (8, 4, 32)])
@pytest.mark.parametrize("kind", KINDS)
def test_stacked_seeds_have_the_bits_of_each_alone(kind: str, rows: int, length: int, size: int) -> None:
    torch.manual_seed(0)
    modules = [memory(kind, 3, size) for _ in range(3)]
    x, starts = torch.randn(3, rows, length, 3), torch.rand(3, rows, length) < 0.3
    state = {name: torch.randn(3, *one.shape) for name, one in modules[0].initial_state(rows).items()}
    function, params = as_function(modules[0]), stacked_parameters(modules)
    assert_same_for_stacked_seeds(function, params, x, state, starts)
    assert_same_for_stacked_seeds(function, params, x[:, :, 0], state, starts[:, :, 0])


@pytest.mark.sweep
@pytest.mark.parametrize("kind", KINDS)
def test_compiled_without_graph_breaks(kind: str) -> None:
    made, x, state, starts = example(kind, length=3)
    starts[1, 1] = True
    torch.testing.assert_close(compiled(made, x, state, starts), made(x, state, starts))
    params, inputs = stacked_parameters([made, made]), (torch.stack([x, x]), torch.stack([starts, starts]))

    def stacked(params: dict[str, Tensor], x: Tensor, starts: Tensor) -> Any:
        return vmap(lambda params, x, starts: as_function(made)(params, x, state, starts))(params, x, starts)

    torch.testing.assert_close(compiled(stacked, params, *inputs), stacked(params, *inputs))


def test_unknown_kinds_and_sizes_are_rejected() -> None:
    with pytest.raises(UserError, match="recurrent must be one of lstm, gru, got 'rnn'"):
        memory("rnn", 3, 4)
    with pytest.raises(UserError, match="recurrent_size must be an integer >= 1, got 0"):
        memory("lstm", 3, 0)
