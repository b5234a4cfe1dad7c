"""Computes actions: one code path for any number of seeds, captured as a CUDA graph on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import vmap

from rl_training.core.specs import ArraySpec
from rl_training.engine import drawing
from rl_training.engine.compilation import captured, warm_up
from rl_training.engine.engine import Engine
from rl_training.engine.gradients import entry, map_tensors, stacked
from rl_training.engine.groups import Groups
from rl_training.engine.phases import NoiseSpec
from rl_training.tensors.outbox import Compartment, Outbox

MAX_GRAPHS = 16  # kept at a time, since each holds GPU memory: one for every batch shape
STREAM = "explore"


class Act(NamedTuple):
    """The output of a policy for a batch of observations."""

    action: Tensor
    extras: Mapping[str, Tensor] = {}  # for on-policy learning, such as log-probabilities and values
    state: Mapping[str, Tensor] = {}  # the recurrent state, passed to the next call


# Arguments: `Networks`, observations; to explore, also random numbers and an amount; last, a recurrent one's state.
Policy = Callable[..., Act]
State = Mapping[str, Tensor]  # of a recurrent policy: (seeds, rows, ...); empty: the policy has none
Work = Callable[[list[Tensor]], Act]
NO_STATE: State = {}


class Acting:
    """Runs policies on observations (seeds, rows, ...), on the host or on the engine's device.

    Random numbers are drawn on the device of the observations. Actions are on the engine's device, without a sync; with
    an outbox, those of `collect` are in host memory.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        # Inputs of programs and graphs, filled before each call.
        self._step = torch.zeros((), dtype=torch.int64, device=engine.device)
        self._amount = torch.zeros(len(engine.seeds), 1, device=engine.device)
        self._programs: dict[Any, Callable[..., Any]] = {}
        self._graphs: dict[Any, tuple[torch.cuda.CUDAGraph, list[Tensor], Act]] = {}
        self._compartment: Compartment | None = None
        self._collector: _Collector | None = None

    def greedy(self, policy: Policy, obs: Tensor, state: State = NO_STATE) -> Act:
        """Actions of a policy without random numbers."""
        if not state:
            return self._act("greedy", lambda inputs: self.run(policy, *inputs), [obs])
        names = tuple(state)

        def act(inputs: list[Tensor]) -> Act:
            return self.run(policy, inputs[0], *_named(names, inputs[1:]))

        return self._act("greedy", act, [obs, *state.values()])

    def explore(
        self,
        policy: Policy,
        obs: Tensor,
        noise: NoiseSpec,
        step: int,
        amount: float,
        state: State = NO_STATE,
        stream: str = STREAM,
    ) -> Act:
        """Actions of a policy with random numbers: `noise` is the spec of one seed's, which depend on `step`."""
        names = tuple(state)
        if obs.is_cuda:
            self._step.fill_(step)
            self._amount.fill_(amount)

            def draw_and_explore(inputs: list[Tensor]) -> Act:
                numbers = drawing.device_noise(self.engine.seed_tensor, self._step, {STREAM: noise}, stream)[STREAM]
                return self.run(policy, inputs[0], numbers, self._amount, *_named(names, inputs[1:]))

            return self._act(stream, draw_and_explore, [obs, *state.values()])
        numbers = drawing.host_noise(self.engine.seeds, step, {STREAM: noise}, stream_name=stream)[STREAM]
        self._amount.fill_(amount)

        def explore(inputs: list[Tensor]) -> Act:
            return self.run(policy, *inputs[:2], self._amount, *_named(names, inputs[2:]))

        return self._act(stream, explore, [obs, numbers, *state.values()])

    def random(self, spec: ArraySpec, step: int, rows: int) -> Act:
        """Uniformly random actions, drawn on the device."""
        self._step.fill_(step)
        noise = NoiseSpec("uniform", (rows, *spec.shape))

        def draw(inputs: list[Tensor]) -> Act:
            numbers = drawing.device_noise(self.engine.seed_tensor, self._step, {STREAM: noise}, STREAM)[STREAM]
            return Act(spec.from_uniforms(numbers))

        return self._act(f"random {rows}", draw, [])

    def _act(self, name: str, work: Work, inputs: list[Tensor]) -> Act:
        with torch.no_grad():
            if self.engine.device.type == "cuda":
                action, extras, state = self._replayed(name, work, inputs)
            # Only exploring is compiled: it runs a million times on small batches, evaluation rarely on larger ones.
            elif self.engine.compiled and name == STREAM:
                shape = inputs[0].shape
                if shape not in self._programs:
                    self._programs[shape] = self.engine.compile_whole(work)
                action, extras, state = self._programs[shape](inputs)
            else:
                action, extras, state = work(inputs)
            return valid(Act(action, extras, state))

    def run(self, policy: Policy, *inputs: Any) -> Act:
        """A policy on the inputs of all seeds, as it is: neither compiled nor captured."""
        engine, binding = self.engine, self.engine.binding

        def one_seed(groups: Groups, obs: Tensor, *rest: Any) -> Act:
            obs = binding.batch_for(groups, {"obs": obs})["obs"]
            return policy(binding.networks_of(groups), obs, *rest)

        if engine.stacked:
            return Act(*vmap(one_seed)(engine.groups(), *inputs))
        if len(engine.seeds) == 1 and not torch.compiler.is_compiling():
            return self._run_alone(policy, *inputs)
        by_seed = enumerate(engine.groups_by_seed())
        return Act(*stacked([one_seed(groups, *entry(inputs, seed)) for seed, groups in by_seed]))

    def _run_alone(self, policy: Policy, obs: Tensor, *rest: Any) -> Act:
        """`run` for the only seed."""
        action, extras, state = policy(self._networks, self._prepared(obs[0]), *(entry(rest, 0) if rest else ()))
        extras, state = (map_tensors(one, _with_axis) if one else one for one in (extras, state))
        return Act(action.unsqueeze(0), extras, state)

    def greedy_rows(self, policy: Policy, obs: Tensor) -> Tensor:
        """The actions of `greedy` for the only seed's observations (rows, ...), on a CPU, without a state."""
        with self._without_gradients():
            return finite(policy(self._networks, self._prepared(obs)).action)

    @cached_property
    def alone_on_cpu(self) -> bool:
        """Whether `greedy_rows` can be used."""
        return len(self.engine.seeds) == 1 and self.engine.device.type == "cpu"

    @cached_property
    def _without_gradients(self) -> Callable[[], AbstractContextManager[object]]:
        """The faster inference mode, but for modules of the user: a tensor they keep could never be trained with."""
        networks = self.engine.binding.networks.values()
        return torch.no_grad if any(network.of_user for network in networks) else torch.inference_mode

    def _prepared(self, obs: Tensor) -> Any:
        """The only seed's observations as its networks receive them."""
        prepare = self.engine.binding.prepare
        return obs if prepare is None else prepare(self.engine.groups_by_seed()[0], {"obs": obs})["obs"]

    @cached_property
    def _networks(self) -> Any:
        """The view of the only seed's groups, whose tensors stay the same."""
        return self.engine.binding.networks_of(self.engine.groups_by_seed()[0])

    # --- on a GPU ------------------------------------------------------------------------------------------------
    def send_by(self, outbox: Outbox, observation: ArraySpec, noise: NoiseSpec, rows: int) -> None:
        """Send the inputs of `collect` from the host by `outbox`."""
        seeds, obs_dtype = len(self.engine.seeds), getattr(torch, observation.dtype)
        obs, numbers = (seeds, rows, *observation.shape), (seeds, *noise.shape)
        layout = {"obs": (obs, obs_dtype), "noise": (numbers, torch.float32), "amount": ((seeds, 1), torch.float32)}
        assert self._compartment is None, "the inputs are sent by an outbox already"
        self._compartment = outbox.reserve(layout)

    @torch.no_grad()
    def collect(self, policy: Policy, obs: Tensor, noise: NoiseSpec, step: int, amount: float, state: State) -> Act:
        """`explore` for the loop that collects data: always the same policy and the same number of rows."""
        box = self._compartment
        if box is None:
            return self.explore(policy, obs, noise, step, amount, state)
        numbers = drawing.host_noise(self.engine.seeds, step, {STREAM: noise}, stream_name=STREAM)[STREAM]
        box.put(obs=obs.numpy(), noise=numbers.numpy(), amount=amount)
        box.outbox.send()
        if self._collector is None:
            self._collector = self._capture_collector(policy, box, state)
        return self._collector(state)

    def _capture_collector(self, policy: Policy, box: Compartment, state: State) -> _Collector:
        sent, names = box.tensors, tuple(state)
        given = [sent[name] for name in ("obs", "noise", "amount")]

        def work(inputs: list[Tensor]) -> Act:
            return self.run(policy, *given, *_named(names, inputs))

        program = self.engine.compile_whole(work)
        return _Collector(*self._capture(lambda inputs: valid(Act(*program(inputs))), list(state.values())))

    def _replayed(self, name: str, work: Work, inputs: list[Tensor]) -> Act:
        key = (name, *((value.is_cuda, value.shape) for value in inputs))
        if key in self._graphs:
            graph, static, output = self._graphs.pop(key)
        else:
            if len(self._graphs) >= MAX_GRAPHS:
                del self._graphs[next(iter(self._graphs))]  # the least recently used
            graph, static, output = self._capture(work, inputs)
        self._graphs[key] = graph, static, output
        for tensor, value in zip(static, inputs, strict=True):
            tensor.copy_(value, non_blocking=True)
        graph.replay()
        return Act(*map_tensors(output, Tensor.clone))  # the next replay writes into the same tensors

    def _capture(self, work: Work, inputs: list[Tensor]) -> tuple[torch.cuda.CUDAGraph, list[Tensor], Act]:
        device = self.engine.device
        static = [value.contiguous().to(device, copy=True) for value in inputs]
        warm_up(lambda: work(static), device)
        graph = torch.cuda.CUDAGraph()
        with captured(graph):
            output = work(static)
        return graph, static, output


class _Collector:
    """A captured policy whose inputs are in an outbox and whose actions are copied to pinned host memory."""

    def __init__(self, graph: torch.cuda.CUDAGraph, state: list[Tensor], output: Act) -> None:
        self.graph, self.state, self.output = graph, state, output
        self.action = torch.empty_like(output.action, device="cpu", pin_memory=True)
        self.copied = torch.cuda.Event()

    def __call__(self, state: State) -> Act:
        for tensor, value in zip(self.state, state.values(), strict=True):
            tensor.copy_(value, non_blocking=True)
        self.graph.replay()
        self.action.copy_(self.output.action, non_blocking=True)
        self.copied.record()
        # The next replay writes into the same tensors.
        extras, new_state = map_tensors((self.output.extras, self.output.state), Tensor.clone)
        self.copied.synchronize()
        return Act(self.action.clone(), extras, new_state)


def valid(act: Act) -> Act:
    """The same without NaN in its actions: the engine reports a seed whose networks became NaN, later."""
    return act._replace(action=finite(act.action))


def finite(action: Tensor) -> Tensor:
    """The same actions without NaN."""
    return torch.nan_to_num(action) if action.is_floating_point() else action


def _with_axis(tensor: Tensor) -> Tensor:
    return tensor.unsqueeze(0)


def _named(names: Sequence[str], values: Sequence[Tensor]) -> list[State]:
    """The state of a recurrent policy as its last argument; of any other policy, no argument."""
    return [dict(zip(names, values, strict=True))] if names else []
