"""Recurrent layers: the LSTM (Hochreiter and Schmidhuber 1997) and the GRU (Cho et al. 2014), as in torch.nn."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from rl_training.core.checks import require
from rl_training.models.layers import EXACT_ACTIVATIONS, stacked_product
from rl_training.models.parts import check_count

State = dict[str, Tensor]
sigmoid = EXACT_ACTIVATIONS["Sigmoid"]


class Memory(nn.Module):
    """A recurrent layer: one step (rows, inputs) -> (rows, size), or sequences (rows, length, inputs) at once.

    Weights are those of torch.nn, transposed: orthogonal at first, with zero biases.
    """

    gates: ClassVar[int]  # blocks of `size` numbers that each product computes
    states: ClassVar[tuple[str, ...]]

    def __init__(self, inputs: int, size: int) -> None:
        super().__init__()
        check_count("recurrent_size", size)
        self.inputs, self.size, width = inputs, size, self.gates * size
        self.input_weight = nn.Parameter(nn.init.orthogonal_(torch.empty(width, inputs)).T.unsqueeze(0).contiguous())
        self.input_bias = nn.Parameter(torch.zeros(1, 1, width))
        self.weight = nn.Parameter(nn.init.orthogonal_(torch.empty(width, size)).T.unsqueeze(0).contiguous())
        self.bias = nn.Parameter(torch.zeros(1, 1, width))

    def initial_state(self, rows: int) -> State:
        """The state before the first step of an episode: zeros, on the CPU."""
        return {name: torch.zeros(rows, self.size, device="cpu") for name in self.states}

    def forward(self, x: Tensor, state: State, starts: Tensor) -> tuple[Tensor, State]:
        """The output and the state after the last step.

        `starts`, (rows,) or (rows, length), is true at the first step of an episode: zeros replace the state before it.
        """
        steps = x.unsqueeze(1) if x.dim() == 2 else x
        rows, length = steps.shape[:2]
        # Steps first, so that each is one block of memory; unbind, since the gradient of indexing would copy all steps.
        flat = steps.transpose(0, 1).reshape(1, length * rows, self.inputs)
        projected = stacked_product(flat, self.input_weight, self.input_bias).view(length, rows, -1).unbind(0)
        resets = (starts.unsqueeze(1) if x.dim() == 2 else starts).unsqueeze(-1).unbind(1)
        outputs = []
        for from_input, reset in zip(projected, resets, strict=True):
            state = {name: torch.where(reset, 0.0, state[name]) for name in self.states}
            from_state = stacked_product(state["h"].unsqueeze(0), self.weight, self.bias).squeeze(0)
            state = self.step(from_input, from_state, state)
            outputs.append(state["h"])
        return outputs[0] if x.dim() == 2 else torch.stack(outputs, 1), state

    def step(self, from_input: Tensor, from_state: Tensor, state: State) -> State:
        """The state after one step, from the products of the input and of the output before it."""
        raise NotImplementedError


class LSTM(Memory):
    """Long short-term memory; the gates in the order of torch.nn.LSTM: input, forget, cell, output."""

    gates, states = 4, ("h", "c")

    def step(self, from_input: Tensor, from_state: Tensor, state: State) -> State:
        gates = from_input + from_state
        enter, forget, _, leave = sigmoid(gates).chunk(4, -1)  # one call, although one of its results is not used
        cell = forget * state["c"] + enter * gates.chunk(4, -1)[2].tanh()
        return {"h": leave * cell.tanh(), "c": cell}


class GRU(Memory):
    """Gated recurrent unit; the gates in the order of torch.nn.GRU: reset, update, new."""

    gates, states = 3, ("h",)

    def step(self, from_input: Tensor, from_state: Tensor, state: State) -> State:
        split = (2 * self.size, self.size)
        (gates_x, new_x), (gates_h, new_h) = from_input.split(split, -1), from_state.split(split, -1)
        reset, update = sigmoid(gates_x + gates_h).chunk(2, -1)
        new = (new_x + reset * new_h).tanh()
        return {"h": (1 - update) * new + update * state["h"]}


MEMORIES: dict[str, type[Memory]] = {"lstm": LSTM, "gru": GRU}


def memory(kind: str, inputs: int, size: int) -> Memory:
    """A recurrent layer by name."""
    require(kind in MEMORIES, "recurrent", f"one of {', '.join(MEMORIES)}, got {kind!r}")
    return MEMORIES[kind](inputs, size)
