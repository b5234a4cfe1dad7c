"""Updates on batches drawn from a source. Every way to run an update ends in `Engine.apply`:

- a given batch (direct `update`): `Engine.update`, which calls `apply`, or `apply` compiled for that kind of batch;
- relabelled batches: gathered and changed on the host, then `Engine.update` for each; on CUDA, a captured `apply` that
  reads a copy of the batch;
- on a CPU, eager: the batches of all updates are gathered together, then `Engine.update` for each;
- on a CPU, compiled or with priorities: one program per update gathers, applies and stores the new priorities;
- batches in a given order (`train_on`): one update each, by `Engine.update` or as such a program;
- on CUDA: a captured graph of up to `MAX_GRAPH_UPDATES` such programs with all their random numbers; the first graph of
  a step also stores the transitions of the step before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from rl_training.engine import drawing
from rl_training.engine.compilation import captured, warm_up
from rl_training.engine.engine import Engine
from rl_training.engine.gradients import entry
from rl_training.engine.networks import Batch
from rl_training.engine.phases import Due, Noise, NoiseSpec, Source

Rows = Callable[[Tensor], Tensor]  # the numbers of updates -> their row numbers (updates, seeds, batch), on a device
MAX_GRAPH_UPDATES = 32  # updates in one graph; more updates replay a graph of an equal share several times


class Training:
    """Draws batches and trains on them: all batches at once, or one per update from a source with priorities."""

    def __init__(self, engine: Engine) -> None:
        self.engine, self.programs = engine, engine.programs

    @torch.no_grad()
    def train(self, source: Source, count: int, batch_size: int, specs: Mapping[str, NoiseSpec]) -> None:
        """Run `count` updates on batches drawn from `source`."""
        engine, relabelled, on_gpu = self.engine, source.relabelled, self.engine.device.type == "cuda"
        with engine.denormals_flushed():
            if relabelled is None and on_gpu:
                self._train_captured(source, count, batch_size, specs)
            elif relabelled is None and (engine.compiled or source.priorities is not None):
                self._train_programs(source, count, batch_size, specs)
            else:
                rows = engine.host_indices(source.size, count, batch_size)
                gathered = relabelled(rows, engine.seeds, engine.update_count) if relabelled else source.gather(rows)
                update = self._update_captured if on_gpu else engine.update
                for number in range(count):
                    update(entry(gathered, number), engine.host_noise(specs))

    @torch.no_grad()
    def train_on(self, source: Source, rows: Tensor, specs: Mapping[str, NoiseSpec]) -> None:
        """Run an update on each of the given batches: row numbers (updates, seeds, batch), on a CPU."""
        engine, batch_size = self.engine, rows.shape[-1]
        with engine.denormals_flushed():
            for drawn in rows:
                noise = engine.host_noise(specs)
                if engine.compiled:
                    self._run_program(source, batch_size, drawn, noise)
                else:
                    engine.update(source.gather(drawn), noise)

    @torch.no_grad()
    def replay_on(
        self, source: Source, rows: Rows, shape: tuple[int, int], specs: Mapping[str, NoiseSpec]
    ) -> None:
        """Run updates captured as CUDA graphs: `shape` is their number and the batch size, `rows` gives the batches."""
        with self.engine.denormals_flushed():
            self._train_captured(source, *shape, specs, rows)

    def _train_programs(self, source: Source, count: int, batch_size: int, specs: Mapping[str, NoiseSpec]) -> None:
        engine, rows = self.engine, None
        if source.priorities is None:
            rows = engine.host_indices(source.size, count, batch_size)
        for number in range(count):
            noise = engine.host_noise(specs)
            drawn = rows[number] if rows is not None else engine.host_uniforms(batch_size)
            self._run_program(source, batch_size, drawn, noise)

    def _run_program(self, source: Source, batch_size: int, drawn: Tensor, noise: Noise) -> None:
        """Run one update as a program, from its row numbers or, with priorities, uniform numbers."""
        engine = self.engine
        if not engine.metrics.names:
            engine.allocate_metrics(_gather(source, drawn)[0], noise)
        due = engine.due(engine.update_count + 1)
        self._program(source, batch_size, due)(drawn, noise)
        engine.count(due)

    def _program(self, source: Source, batch_size: int, due: Due) -> Callable[[Tensor, Noise], None]:
        """One update as a function: gather, apply, store new priorities; compiled as a whole if the engine compiles."""
        key = (id(source), batch_size, due)
        if key not in self.programs:

            def program(drawn: Tensor, noise: Noise) -> None:
                batch, rows = _gather(source, drawn)
                errors = self.engine.apply(due, batch, noise)
                if source.priorities is not None:
                    assert errors is not None, "no loss returned row errors, which priorities are computed from"
                    source.priorities.update(rows, errors)

            self.programs[key] = self.engine.compile_whole(program)
        return self.programs[key]

    # --- on a GPU ------------------------------------------------------------------------------------------------
    @torch.no_grad()
    def store(self, source: Source) -> None:
        """Store the newest vector step, in a step without updates."""
        if source.pending is not None and source.pending.take_unstored():
            key = (id(source), "store")
            if key not in self.programs:
                self.programs[key] = self.captured(source.pending.store_sent, _priority_tensors(source))
            self.programs[key]()

    def _train_captured(
        self, source: Source, count: int, batch_size: int, specs: Mapping[str, NoiseSpec], rows: Rows | None = None
    ) -> None:
        engine = self.engine
        chunk = max(size for size in range(1, min(count, MAX_GRAPH_UPDATES) + 1) if count % size == 0)
        for _ in range(count // chunk):
            dues = tuple(engine.due(engine.update_count + 1 + i) for i in range(chunk))
            stores = source.pending is not None and source.pending.take_unstored()
            key = (id(source), batch_size, dues, stores, "graph")
            if key not in self.programs:
                self.programs[key] = self.capture(source, batch_size, specs, dues, rows, stores)
            self.programs[key]()
            for due in dues:
                engine.count(due)

    def _update_captured(self, batch: Batch, noise: Noise) -> None:
        """`Engine.update` as a CUDA graph, which reads the batch and noise from tensors of its own."""
        engine = self.engine
        due = engine.due(engine.update_count + 1)
        inputs = {**batch, **{f"noise.{name}": tensor for name, tensor in noise.items()}}
        key = (due, tuple((name, tensor.shape) for name, tensor in inputs.items()), "given")
        if key not in self.programs:
            self.programs[key] = self._capture_given(due, batch, noise)
        self.programs[key](batch, noise)
        engine.count(due)

    def _capture_given(self, due: Due, batch: Batch, noise: Noise) -> Callable[[Batch, Noise], None]:
        engine, own = self.engine, [{name: one.clone() for name, one in each.items()} for each in (batch, noise)]
        if not engine.metrics.names:
            engine.allocate_metrics(*own)

        def program() -> None:
            engine.apply(due, *own)

        replay = self.captured(engine.compile_whole(program))

        def update(batch: Batch, noise: Noise) -> None:
            for mine, given in zip(own, (batch, noise), strict=True):
                for name, tensor in mine.items():
                    tensor.copy_(given[name], non_blocking=True)
            replay()

        return update

    def burst(
        self,
        source: Source,
        batch_size: int,
        specs: Mapping[str, NoiseSpec],
        dues: Sequence[Due],
        rows: Rows | None = None,
    ) -> Callable[[], None]:
        """A function that runs several updates; their random numbers are drawn at once from the device's counter."""
        engine, count = self.engine, len(dues)

        def draw() -> tuple[Tensor, Noise]:
            updates = engine.count_tensor + torch.arange(count, device=engine.device)
            if rows is not None:
                drawn = rows(updates)
            elif source.priorities is None:
                drawn = drawing.device_indices(engine.seed_tensor, updates, source, batch_size)
            else:
                drawn = drawing.device_uniforms(engine.seed_tensor, updates, batch_size)
            return drawn, drawing.device_noise(engine.seed_tensor, updates, specs)

        if not engine.metrics.names:
            drawn, noise = entry(draw(), 0)
            engine.allocate_metrics(_gather(source, drawn)[0], noise)
        draw_all = engine.compile(draw) if engine.compiled else draw

        def run() -> None:
            drawn_and_noise = draw_all()
            for number, due in enumerate(dues):
                self._program(source, batch_size, due)(*entry(drawn_and_noise, number))

        return run

    @torch.no_grad()
    def capture(
        self,
        source: Source,
        batch_size: int,
        specs: Mapping[str, NoiseSpec],
        dues: tuple[Due, ...],
        rows: Rows | None = None,
        stores: bool = False,
    ) -> Callable[[], None]:
        """The updates of one step of the loop as one CUDA graph; if it `stores`, it first stores what was sent."""
        pending = source.pending if stores else None
        if pending is not None:
            pending.store_sent()  # a trial update needs a row
        updates = self.burst(source, batch_size, specs, dues, rows)

        def run() -> None:
            if pending is not None:
                pending.store_sent()
            updates()

        return self.captured(run, _priority_tensors(source))

    def captured(self, run: Callable[[], None], changed: Sequence[Tensor] = ()) -> Callable[[], None]:
        """A CUDA graph of `run`; what its warm-up changes of the engine, and of the tensors `changed`, is undone."""
        state = [*self.engine.changed_tensors(), *changed]
        before = [tensor.clone() for tensor in state]
        warm_up(run, self.engine.device)
        for tensor, value in zip(state, before, strict=True):
            tensor.copy_(value)
        graph = torch.cuda.CUDAGraph()
        with captured(graph):
            run()
        return graph.replay


def _priority_tensors(source: Source) -> Sequence[Tensor]:
    return source.priorities.tensors() if source.priorities is not None else ()


def _gather(source: Source, drawn: Tensor) -> tuple[Batch, Tensor]:
    """A batch and its row numbers, from row numbers or, with priorities, from uniform random numbers."""
    if source.priorities is None:
        return source.gather(drawn), drawn
    rows, weights = source.priorities.draw(drawn)
    return {**source.gather(rows), "weights": weights}, rows
