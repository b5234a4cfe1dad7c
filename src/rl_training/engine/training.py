"""Updates on batches drawn from a source: a program for each on a CPU, a CUDA graph for all of a step on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from rl_training.engine import drawing
from rl_training.engine.compilation import captured
from rl_training.engine.engine import Engine
from rl_training.engine.gradients import entry
from rl_training.engine.phases import Batch, Noise, NoiseSpec, Pattern, Source

LARGEST_GRAPH = 32  # updates captured together; a longer burst replays a graph of equal parts


class Training:
    """Draws, gathers and learns. From a source with priorities every update draws anew, else all draw at once."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.programs = engine, engine.programs

    @torch.no_grad()
    def train(self, source: Source, count: int, batch_size: int, specs: Mapping[str, NoiseSpec]) -> None:
        """`count` updates on batches drawn from `source`."""
        with self.engine.arithmetic():
            if self.engine.device.type == "cuda":
                self._train_captured(source, count, batch_size, specs)
            elif self.engine.compiled or source.priorities is not None:
                self._train_drawn(source, count, batch_size, specs)
            else:
                batches = source.gather(self.engine.host_indices(source.size, count, batch_size))
                for number in range(count):
                    self.engine.update(entry(batches, number), self.engine.host_noise(specs))

    def _train_drawn(self, source: Source, count: int, batch_size: int, specs: Mapping[str, NoiseSpec]) -> None:
        engine, rows = self.engine, None
        if source.priorities is None:
            rows = engine.host_indices(source.size, count, batch_size)
        for number in range(count):
            noise = engine.host_noise(specs)
            drawn = rows[number] if rows is not None else engine.host_uniforms(batch_size)
            if not engine.metrics.names:
                engine.learn_metric_names(_gather(source, drawn)[0], noise)
            pattern = engine.pattern(engine.update_count + 1)
            self._program(source, batch_size, pattern)(drawn, noise)
            engine.count(pattern)

    def _program(self, source: Source, batch_size: int, pattern: Pattern) -> Callable[[Tensor, Noise], None]:
        """Gathering, learning and, where there are any, new priorities: compiled together if asked for."""
        key = (id(source), batch_size, pattern)
        if key not in self.programs:

            def program(drawn: Tensor, noise: Noise) -> None:
                batch, rows = _gather(source, drawn)
                errors = self.engine.apply(pattern, batch, noise)
                if source.priorities is not None:
                    assert errors is not None
                    source.priorities.learn(rows, errors)

            self.programs[key] = self.engine.compile(program) if self.engine.compiled else program
        return self.programs[key]

    # --- on a GPU ------------------------------------------------------------------------------------------------
    def _train_captured(self, source: Source, count: int, batch_size: int, specs: Mapping[str, NoiseSpec]) -> None:
        engine = self.engine
        chunk = max(size for size in range(1, min(count, LARGEST_GRAPH) + 1) if count % size == 0)
        for _ in range(count // chunk):
            patterns = tuple(engine.pattern(engine.update_count + 1 + i) for i in range(chunk))
            key = (id(source), batch_size, patterns, "graph")
            if key not in self.programs:
                self.programs[key] = self.capture(source, batch_size, specs, patterns)
            self.programs[key]()
            for pattern in patterns:
                engine.count(pattern)

    def burst(
        self, source: Source, batch_size: int, specs: Mapping[str, NoiseSpec], patterns: Sequence[Pattern]
    ) -> Callable[[], None]:
        """Several updates with all their random numbers drawn at once, on the device, from its own counter."""
        engine, count = self.engine, len(patterns)

        def draw() -> tuple[Tensor, Noise]:
            updates = engine.count_tensor + torch.arange(count, device=engine.device)
            if source.priorities is None:
                drawn = drawing.device_indices(engine.seed_tensor, updates, source, batch_size)
            else:
                drawn = drawing.device_uniforms(engine.seed_tensor, updates, batch_size)
            return drawn, drawing.device_noise(engine.seed_tensor, updates, specs)

        if not engine.metrics.names:
            drawn, noise = entry(draw(), 0)
            engine.learn_metric_names(_gather(source, drawn)[0], noise)
        numbers = engine.compile(draw) if engine.compiled else draw

        def run() -> None:
            everything = numbers()
            for number, pattern in enumerate(patterns):
                self._program(source, batch_size, pattern)(*entry(everything, number))

        return run

    @torch.no_grad()
    def capture(
        self, source: Source, batch_size: int, specs: Mapping[str, NoiseSpec], patterns: tuple[Pattern, ...]
    ) -> Callable[[], None]:
        """All that one step of the loop learns, as one CUDA graph."""
        device, run = self.engine.device, self.burst(source, batch_size, specs, patterns)
        state = [*self.engine.mutable(), *(source.priorities.tensors() if source.priorities is not None else ())]
        before = [tensor.clone() for tensor in state]
        side = torch.cuda.Stream(device)
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):
            for _ in range(2):  # compiles, and lets libraries allocate; undone below
                run()
        torch.cuda.current_stream(device).wait_stream(side)
        for tensor, value in zip(state, before, strict=True):
            tensor.copy_(value)
        graph = torch.cuda.CUDAGraph()
        with captured(graph):
            run()
        return graph.replay


def _gather(source: Source, drawn: Tensor) -> tuple[Batch, Tensor]:
    """A batch and its rows, from row numbers or, where there are priorities, from uniform numbers."""
    if source.priorities is None:
        return source.gather(drawn), drawn
    rows, weights = source.priorities.draw(drawn)
    return {**source.gather(rows), "weights": weights}, rows
