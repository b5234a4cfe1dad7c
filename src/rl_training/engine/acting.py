"""Choosing actions: one path for any number of seeds, captured as a CUDA graph on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.func import vmap

from rl_training.engine.compilation import captured
from rl_training.engine.engine import Engine

Array = NDArray[Any]
MOST_GRAPHS = 16  # each keeps memory of the device; whoever predicts batches of any size needs no more at a time


class Acting:
    """Runs a policy function on arrays of shape (seeds, rows, ...)."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._programs: dict[Any, Callable[[list[Tensor]], Tensor]] = {}
        self._graphs: dict[Any, tuple[torch.cuda.CUDAGraph, list[Tensor], Tensor]] = {}

    def __call__(self, name: str, policy: Callable[..., Tensor], *inputs: Array) -> Array:
        # A seed whose networks became NaN is reported by the engine; until then it must not break its environments.
        return np.nan_to_num(self._actions(name, policy, *inputs))

    @torch.no_grad()
    def _actions(self, name: str, policy: Callable[..., Tensor], *inputs: Array) -> Array:
        if self.engine.device.type != "cuda":
            return self._on_host(name, policy, [torch.from_numpy(value) for value in inputs]).numpy()
        key = (name, *(value.shape for value in inputs))
        if key in self._graphs:
            graph, static, output = self._graphs.pop(key)
        else:
            if len(self._graphs) >= MOST_GRAPHS:
                del self._graphs[next(iter(self._graphs))]  # the one not used for longest
            graph, static, output = self._capture(policy, inputs)
        self._graphs[key] = graph, static, output
        for tensor, value in zip(static, inputs, strict=True):
            tensor.copy_(torch.from_numpy(value), non_blocking=True)
        graph.replay()
        return output.cpu().numpy()

    def _on_host(self, name: str, policy: Callable[..., Tensor], inputs: list[Tensor]) -> Tensor:
        # Collecting data is one small batch, a million times; evaluation is a few larger ones.
        if not self.engine.compiled or name != "explore":
            return self._run(policy, inputs)
        shape = inputs[0].shape
        if shape not in self._programs:

            def program(inputs: list[Tensor]) -> Tensor:
                return self._run(policy, inputs)

            self._programs[shape] = self.engine.compile(program)
        return self._programs[shape](inputs)

    def _run(self, policy: Callable[..., Tensor], inputs: list[Tensor]) -> Tensor:
        engine = self.engine
        if len(engine.seeds) > 1 and not engine.looped:
            return vmap(policy)(engine.groups(), *inputs)
        seeds = range(len(engine.seeds))
        return torch.stack([policy(engine.seed_groups(seed), *(value[seed] for value in inputs)) for seed in seeds])

    def _capture(self, policy: Callable[..., Tensor], inputs: tuple[Array, ...]) -> Any:
        device = self.engine.device
        static = [torch.from_numpy(np.ascontiguousarray(value)).to(device) for value in inputs]
        side = torch.cuda.Stream(device)
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):
            for _ in range(2):
                self._run(policy, static)
        torch.cuda.current_stream(device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with captured(graph):
            output = self._run(policy, static)
        return graph, static, output
