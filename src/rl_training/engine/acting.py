"""Choosing actions: one path for any number of seeds, captured as a CUDA graph on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import vmap

from rl_training.core.specs import ArraySpec
from rl_training.engine import drawing
from rl_training.engine.compilation import captured, warm_up
from rl_training.engine.engine import Engine
from rl_training.engine.gradients import map_tensors, stacked
from rl_training.engine.groups import Groups
from rl_training.engine.phases import NoiseSpec

MAX_GRAPHS = 16  # each keeps memory of the device; whoever predicts batches of any size needs no more at a time
STREAM = "explore"


class Act(NamedTuple):
    """What a policy returns for a batch of observations."""

    action: Tensor
    extras: Mapping[str, Tensor] = {}  # what on-policy learning needs, such as log-probabilities and values
    state: Mapping[str, Tensor] = {}  # of a recurrent policy, for its next call


Policy = Callable[..., Act]  # of the algorithm's `Networks`, observations and, to explore, random numbers and an amount
Work = Callable[[list[Tensor]], Act]


class Acting:
    """Runs policies on observations (seeds, rows, ...), on the host or on the engine's device.

    Random numbers are drawn where the observations are. Actions are on the engine's device; nothing here waits for it.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        # Programs and graphs read these two, which are filled before each call.
        self._step = torch.zeros((), dtype=torch.int64, device=engine.device)
        self._amount = torch.zeros(len(engine.seeds), 1, device=engine.device)
        self._programs: dict[Any, Callable[..., Any]] = {}
        self._graphs: dict[Any, tuple[torch.cuda.CUDAGraph, list[Tensor], Act]] = {}

    def greedy(self, policy: Policy, obs: Tensor) -> Act:
        return self._act("greedy", lambda inputs: self._run(policy, *inputs), [obs])

    def explore(self, policy: Policy, obs: Tensor, noise: NoiseSpec, step: int, amount: float) -> Act:
        """`noise` is what the policy needs for one seed; it is drawn anew for every step."""
        self._amount.fill_(amount)
        if obs.is_cuda:
            self._step.fill_(step)

            def draw_and_explore(inputs: list[Tensor]) -> Act:
                numbers = drawing.device_noise(self.engine.seed_tensor, self._step, {STREAM: noise}, STREAM)[STREAM]
                return self._run(policy, *inputs, numbers, self._amount)

            return self._act("explore", draw_and_explore, [obs])
        numbers = drawing.host_noise(self.engine.seeds, step, {STREAM: noise}, stream_name=STREAM)[STREAM]
        return self._act("explore", lambda inputs: self._run(policy, *inputs, self._amount), [obs, numbers])

    def randomly(self, spec: ArraySpec, step: int, rows: int) -> Act:
        """Uniformly random actions, drawn on the device."""
        self._step.fill_(step)
        noise = NoiseSpec("uniform", (rows, *spec.shape))

        def draw(inputs: list[Tensor]) -> Act:
            numbers = drawing.device_noise(self.engine.seed_tensor, self._step, {STREAM: noise}, STREAM)[STREAM]
            return Act(spec.from_uniforms(numbers))

        return self._act(f"random {rows}", draw, [])

    @torch.no_grad()
    def _act(self, name: str, work: Work, inputs: list[Tensor]) -> Act:
        if self.engine.device.type == "cuda":
            act = self._replayed(name, work, inputs)
        # Collecting data is one small batch, a million times; evaluation is a few larger ones.
        elif self.engine.compiled and name == "explore":
            shape = inputs[0].shape
            if shape not in self._programs:
                self._programs[shape] = self.engine.compile(work)
            act = Act(*self._programs[shape](inputs))
        else:
            act = work(inputs)
        # A seed whose networks became NaN is reported by the engine; until then it must not break its environments.
        return Act(torch.nan_to_num(act.action), act.extras, act.state)

    def _run(self, policy: Policy, *inputs: Tensor) -> Act:
        engine, binding = self.engine, self.engine.binding

        def one_seed(groups: Groups, obs: Tensor, *rest: Tensor) -> Act:
            obs = binding.batch_for(groups, {"obs": obs})["obs"]
            return policy(binding.networks_of(groups), obs, *rest)

        if engine.stacked:
            return Act(*vmap(one_seed)(engine.groups(), *inputs))
        by_seed = enumerate(engine.groups_by_seed())
        return Act(*stacked([one_seed(groups, *(value[seed] for value in inputs)) for seed, groups in by_seed]))

    # --- on a GPU ------------------------------------------------------------------------------------------------
    def _replayed(self, name: str, work: Work, inputs: list[Tensor]) -> Act:
        key = (name, *((value.is_cuda, value.shape) for value in inputs))
        if key in self._graphs:
            graph, static, output = self._graphs.pop(key)
        else:
            if len(self._graphs) >= MAX_GRAPHS:
                del self._graphs[next(iter(self._graphs))]  # the one not used for longest
            graph, static, output = self._capture(work, inputs)
        self._graphs[key] = graph, static, output
        for tensor, value in zip(static, inputs, strict=True):
            tensor.copy_(value, non_blocking=True)
        graph.replay()
        # The next replay writes into the same tensors; of the action, the caller makes a new one.
        return Act(output.action, *map_tensors(output[1:], Tensor.clone))

    def _capture(self, work: Work, inputs: list[Tensor]) -> tuple[torch.cuda.CUDAGraph, list[Tensor], Act]:
        device = self.engine.device
        static = [value.contiguous().to(device, copy=True) for value in inputs]
        warm_up(lambda: work(static), device)
        graph = torch.cuda.CUDAGraph()
        with captured(graph):
            output = work(static)
        return graph, static, output
