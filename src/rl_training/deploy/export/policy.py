"""A trained policy as one module of plain tensors: from the environment's observations to its actions."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rl_training.algorithms.model_tensors import tie
from rl_training.core.checks import UserError
from rl_training.engine.engine import RUNNING
from rl_training.engine.groups import Groups, Params
from rl_training.engine.networks import BUFFERS, TARGET_PREFIX, Binding
from rl_training.envs.tensor_codecs import (
    TensorInput,
    actions_to_env,
    encode_tensors,
    input_arrays,
    observation_inputs,
    sample_observations,
)
from rl_training.run.agent import Agent

STATE, NEXT_STATE, ACTION = "state.", "next_state.", "action"  # names of inputs and outputs
Array = NDArray[Any]


class Policy(nn.Module):
    """One seed's greedy policy: a batch of each input, in the order of `inputs`, to actions and the next state.

    Normalisation, encoding of observations, action masks and the scaling of actions are inside.
    """

    def __init__(self, agent: Agent, seed_index: int = 0) -> None:
        super().__init__()
        agent.check_seed_index(seed_index)
        self.seed_index = seed_index
        self.agent, learner = [agent], agent.learner  # in a list: it is no part of this module
        groups = _on_cpu(learner.engine.groups_by_seed()[seed_index])
        _check_finite(groups)
        inference = {group: network.inference for group, network in learner.binding.networks.items()}
        networks = {group: copy.deepcopy(one).requires_grad_(False) for group, one in inference.items()}
        tie(networks, groups)
        self._bind(networks)
        self.values = nn.ModuleDict({group: _Values(one) for group, one in groups.items() if self._is_value(group)})
        states = {name: tuple(one.shape[1:]) for name, one in learner.initial_state(1).items()}
        self.states = list(states)
        what = "the policy's memory: what it returned at the last step, zeros at the start of an episode"
        self.inputs = [
            *observation_inputs(agent.observation),
            *(TensorInput(STATE + name, shape, "float32", what) for name, shape in states.items()),
        ]
        self.output_names = [ACTION, *(NEXT_STATE + name for name in states)]
        self.eval()
        self._drop_unused(networks)

    def _is_value(self, group: str) -> bool:
        """Whether a group holds numbers that are not a network's nor a target's."""
        plain = group.removeprefix(BUFFERS)
        return group == RUNNING or not (plain in self.networks or plain.startswith(TARGET_PREFIX))

    def _bind(self, networks: Mapping[str, nn.Module]) -> None:
        self._binding = Binding(self.agent[0].learner.networks_type, networks)
        self.networks = nn.ModuleDict({group: one.inference for group, one in self._binding.networks.items()})

    def _drop_unused(self, networks: Mapping[str, nn.Module]) -> None:
        """Leave out the networks that acting does not need, such as critics."""
        self._used: set[str] | None = set()
        with torch.no_grad():
            self(*self.examples(2))
        used, self._used = self._used, None
        self._bind({group: one for group, one in networks.items() if group in used})

    def _groups(self) -> Groups:
        groups: Groups = {group: dict(one.named_buffers()) for group, one in self.values.items()}
        for group, network in self._binding.networks.items():
            named = {**dict(network.inference.named_buffers()), **dict(network.inference.named_parameters())}
            groups[group] = {name: one for name, one in named.items() if name not in network.buffers}
            if network.buffers:
                groups[BUFFERS + group] = {name: named[name] for name in network.buffers}
        return groups if self._used is None else _Recorded(groups, self._used)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        agent = self.agent[0]
        named = {one.name: value for one, value in zip(self.inputs, inputs, strict=True)}
        groups = self._groups()
        obs = agent.learner.prepared(groups, encode_tensors(agent.observation, named))
        state = [{name: named[STATE + name] for name in self.states}] if self.states else []
        act = agent.learner.greedy(self._binding.networks_of(groups), obs, *state)
        return actions_to_env(agent.action, act.action), *(act.state[name] for name in self.states)

    def examples(self, rows: int) -> tuple[Tensor, ...]:
        """Random inputs."""
        arrays = self.sample(np.random.default_rng(0), rows)[0]
        return tuple(torch.from_numpy(arrays[one.name]) for one in self.inputs)

    def sample(self, rng: np.random.Generator, rows: int) -> tuple[dict[str, Array], dict[str, Any]]:
        """Random inputs by name, and the same as arguments of `Agent.predict`; episodes start in every row."""
        agent = self.agent[0]
        obs, mask = sample_observations(agent.observation, rng, rows, self._scales())
        state = {name: np.zeros((rows, *shape), np.float32) for name, shape in self.state_shapes().items()}
        arrays = {**input_arrays(agent.observation, obs, mask), **{STATE + name: one for name, one in state.items()}}
        given = {"obs": obs} if mask is None else {"obs": obs, "action_mask": mask}
        return arrays, given

    def state_shapes(self) -> dict[str, tuple[int, ...]]:
        return {one.name.removeprefix(STATE): one.shape for one in self.inputs if one.name.startswith(STATE)}

    def _scales(self) -> tuple[Array, Array] | None:
        """The mean and standard deviation of observations, where the agent has them."""
        group = dict(self.values["normalizer"].named_buffers()) if "normalizer" in self.values else {}
        if not group:
            return None
        return group["mean"].double().numpy(), 1 / np.maximum(group["scale"].double().numpy(), 1e-8)


class _Values(nn.Module):
    """A group of numbers that is not a network, as buffers."""

    def __init__(self, group: Params) -> None:
        super().__init__()
        for name, tensor in group.items():
            self.register_buffer(name, tensor)


class _Recorded(dict[str, Params]):
    """Groups that record which of them are used."""

    def __init__(self, groups: Groups, used: set[str]) -> None:
        super().__init__(groups)
        self.used = used

    def __getitem__(self, group: str) -> Params:
        self.used.add(group)
        return super().__getitem__(group)


def _on_cpu(groups: Groups) -> Groups:
    return {
        group: {name: one.detach().cpu().clone() for name, one in params.items()} for group, params in groups.items()
    }


def _check_finite(groups: Groups) -> None:
    for group, params in groups.items():
        for name, tensor in params.items():
            if group.removeprefix(BUFFERS) != RUNNING and tensor.is_floating_point() and tensor.isnan().any():
                raise UserError(f"{group}.{name} of the agent holds NaN, so it cannot be exported")
