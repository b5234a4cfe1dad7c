"""Turns an algorithm's losses into updates: one seed or many, eager, compiled, or captured in a CUDA graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.func import grad_and_value, vmap

from rl_training.core.rng import STREAM_IDS, stream
from rl_training.engine import device_rng
from rl_training.engine.compilation import compile_once
from rl_training.engine.groups import Layout, Params
from rl_training.engine.optimizers import BETAS, adam_, clip_per_seed

Groups = dict[str, Params]
Batch = dict[str, Tensor]
Noise = dict[str, Tensor]
Metrics = dict[str, Tensor]
Loss = Callable[[Groups, Batch, Noise], tuple[Tensor, Metrics]]
Pattern = tuple[bool, ...]

LARGEST_GRAPH = 32  # updates captured together; a longer burst replays the graph of one update


@dataclass(frozen=True)
class Phase:
    """One loss and the groups it trains. The other groups reach the loss as they are and get no gradient."""

    groups: tuple[str, ...]
    loss: Loss
    every: int = 1  # trained at each `every`-th update


@dataclass(frozen=True)
class NoiseSpec:
    """Random numbers one update needs, per seed."""

    kind: str  # "normal" or "uniform"
    shape: tuple[int, ...]


class Source(Protocol):
    """Where batches come from: a replay buffer or a data set, one row axis per seed."""

    size_tensor: Tensor

    @property
    def size(self) -> int: ...

    def gather(self, indices: Tensor) -> Batch:
        """(seeds, batch) row numbers, or (n, seeds, batch), to tensors with those leading axes."""


class LatestMetrics(Mapping[str, float]):
    """Metrics of the newest update of the first seed; reading one is what waits for the device."""

    def __init__(self, names: Sequence[str], values: Tensor) -> None:
        self._rows = {name: row for row, name in enumerate(names)}
        self._values = values

    def __getitem__(self, name: str) -> float:
        return float(self._values[self._rows[name], 0])

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)


class Engine:
    """Owns every tensor an update changes."""

    def __init__(
        self,
        phases: Sequence[Phase],
        members: Mapping[str, Sequence[Mapping[str, Tensor]]],
        *,
        seeds: Sequence[int],
        device: torch.device,
        compiled: bool = False,
        polyak: Mapping[str, str] | None = None,
        tau: float = 0.0,
        max_grad_norm: float | None = None,
        adam_eps: float = 1e-8,
        backend: str = "inductor",
    ) -> None:
        self.phases, self.seeds, self.device = tuple(phases), tuple(seeds), device
        self.compiled, self.backend = compiled, backend
        self.polyak, self.tau = dict(polyak or {}), tau
        self.max_grad_norm, self.adam_eps = max_grad_norm, adam_eps
        shapes = {g: {k: v.shape for k, v in rows[0].items()} for g, rows in members.items()}
        self.layouts = {group: Layout(shape, len(self.seeds)) for group, shape in shapes.items()}
        self.flat = {group: self.layouts[group].stack(rows, device) for group, rows in members.items()}
        trained = [group for phase in self.phases for group in phase.groups]
        self.adam_mean = {group: torch.zeros_like(self.flat[group]) for group in trained}
        self.adam_square = {group: torch.zeros_like(self.flat[group]) for group in trained}
        self.beta_powers = torch.ones(len(self.phases), 2, dtype=torch.float64, device=device)
        self.betas = torch.tensor(BETAS, dtype=torch.float64, device=device)
        self.rates = torch.zeros(len(self.phases), dtype=torch.float64, device=device)
        self.rate_values: list[float] = []
        self.update_count = 0
        self.count_tensor = torch.zeros((), dtype=torch.int64, device=device)
        self.first_bad = torch.full((len(self.seeds),), -1, dtype=torch.int64, device=device)
        self.seed_tensor = torch.tensor(self.seeds, dtype=torch.int64, device=device)
        self.metric_names: list[tuple[str, ...]] = []  # per phase, known after the first look at a batch
        self.metric_sums: list[Tensor] = []
        self.metric_latest: list[Tensor] = []
        self.metric_counts = [0] * len(self.phases)
        self._programs: dict[Any, Callable[..., Any]] = {}
        self._views = self._make_views()
        self._first_seed: Groups = _first(self._views)

    # --- what the losses see -------------------------------------------------------------------------------------
    def groups(self) -> Groups:
        """Every group with its seed axis, as views of the buffers."""
        if torch.compiler.is_compiling():  # views made inside a compiled update are free, and aliased inputs are not
            return self._make_views()
        return self._views

    def _make_views(self) -> Groups:
        return {name: layout.views(self.flat[name]) for name, layout in self.layouts.items()}

    def seed_groups(self, index: int) -> Groups:
        if index == 0 and not torch.compiler.is_compiling():
            return self._first_seed
        return {group: {k: v[index] for k, v in params.items()} for group, params in self.groups().items()}

    def pattern(self, update: int) -> Pattern:
        """Which phases run at the given update (counted from 1)."""
        return tuple(update % phase.every == 0 for phase in self.phases)

    # --- one update ----------------------------------------------------------------------------------------------
    def _gradients(self, phase: Phase, groups: Groups, batch: Batch, noise: Noise) -> tuple[Any, Metrics]:
        def loss(trained: Groups, frozen: Groups, batch: Batch, noise: Noise) -> tuple[Tensor, Metrics]:
            return phase.loss({**frozen, **trained}, batch, noise)

        trained = {group: groups[group] for group in phase.groups}
        frozen = {group: params for group, params in groups.items() if group not in trained}
        if len(self.seeds) > 1:
            grads, (_, metrics) = vmap(grad_and_value(loss, has_aux=True))(trained, frozen, batch, noise)
            return grads, metrics
        # One seed needs no vmap, which costs about a quarter on a CPU, and in eager mode no functional transform.
        trained, frozen, batch, noise = _first((trained, frozen, batch, noise))
        if torch.compiler.is_compiling():
            grads, (_, metrics) = grad_and_value(loss, has_aux=True)(trained, frozen, batch, noise)
            return grads, metrics
        return _plain_gradients(loss, trained, frozen, batch, noise)

    def _update(self, pattern: Pattern, batch: Batch, noise: Noise) -> None:
        seeds = len(self.seeds)
        self.count_tensor.add_(1)
        for number, phase in enumerate(self.phases):
            if not pattern[number]:
                continue
            grads, metrics = self._gradients(phase, self.groups(), batch, noise)
            if self.max_grad_norm is not None:
                grads = clip_per_seed(grads, self.layouts, self.max_grad_norm)
            self.beta_powers[number].mul_(self.betas)
            for group in phase.groups:
                adam_(
                    self.flat[group],
                    self.layouts[group].flatten(grads[group]),
                    self.adam_mean[group],
                    self.adam_square[group],
                    self.beta_powers[number],
                    self.rates[number],
                    self.adam_eps,
                )
            values = torch.stack([metrics[name].reshape(seeds) for name in self.metric_names[number]])
            self.metric_latest[number].copy_(values)
            self.metric_sums[number].add_(values)
            bad = ~values.isfinite().all(0) & (self.first_bad < 0)
            self.first_bad.copy_(torch.where(bad, self.count_tensor, self.first_bad))
        for target, source in self.polyak.items():
            self.flat[target].lerp_(self.flat[source], self.tau)

    def _learn_metric_names(self, batch: Batch, noise: Noise) -> None:
        """One look at each loss, without effect, tells which metrics there are: their sums need a place."""
        groups = self.seed_groups(0)
        one_batch, one_noise = _first((batch, noise))
        with torch.no_grad():
            for phase in self.phases:
                names = tuple(sorted(phase.loss(groups, one_batch, one_noise)[1]))
                self.metric_names.append(names)
                self.metric_sums.append(torch.zeros(len(names), len(self.seeds), device=self.device))
                self.metric_latest.append(torch.full((len(names), len(self.seeds)), torch.nan, device=self.device))

    def _program(self, pattern: Pattern, batch: Batch) -> Callable[[Batch, Noise], None]:
        """`_update` for one pattern and batch size, compiled if asked for."""
        key = (pattern, batch["obs"].shape) if self.compiled else pattern
        if key not in self._programs:

            def program(batch: Batch, noise: Noise) -> None:
                self._update(pattern, batch, noise)

            self._programs[key] = compile_once(program, self.backend) if self.compiled else program
        return self._programs[key]

    @torch.no_grad()
    def update(self, batch: Batch, noise: Noise, pattern: Pattern | None = None) -> None:
        """One update on a given batch; every tensor has the seed axis in front."""
        if not self.metric_names:
            self._learn_metric_names(batch, noise)
        pattern = pattern or self.pattern(self.update_count + 1)
        self._program(pattern, batch)(batch, noise)
        self._count(pattern)

    def _count(self, pattern: Pattern) -> None:
        self.update_count += 1
        for number, active in enumerate(pattern):
            self.metric_counts[number] += active

    # --- updates on sampled batches ------------------------------------------------------------------------------
    def train(self, source: Source, count: int, batch_size: int, noise: Mapping[str, NoiseSpec]) -> None:
        """`count` updates on batches drawn from `source`."""
        if self.device.type == "cuda":
            self._train_captured(source, count, batch_size, noise)
            return
        indices = self.host_indices(source.size, count, batch_size)
        batches = source.gather(indices)
        for number in range(count):
            batch = {name: tensor[number] for name, tensor in batches.items()}
            self.update(batch, self.host_noise(noise))

    def host_indices(self, size: int, count: int, batch_size: int) -> Tensor:
        rows = [
            stream(seed, "replay", self.update_count).integers(size, size=(count, batch_size)) for seed in self.seeds
        ]
        return torch.from_numpy(np.stack(rows, 1))

    def host_noise(self, specs: Mapping[str, NoiseSpec]) -> Noise:
        if not specs:
            return {}
        rows: dict[str, list[Any]] = {name: [] for name in specs}
        for seed in self.seeds:
            rng = stream(seed, "noise", self.update_count)
            for name, spec in specs.items():
                draw = rng.standard_normal if spec.kind == "normal" else rng.random
                rows[name].append(draw(spec.shape, dtype=np.float32))
        if len(self.seeds) == 1:
            return {name: torch.from_numpy(values[0]).unsqueeze(0).to(self.device) for name, values in rows.items()}
        return {name: torch.from_numpy(np.stack(values)).to(self.device) for name, values in rows.items()}

    def _device_noise(self, specs: Mapping[str, NoiseSpec]) -> Noise:
        noise = {}
        for number, (name, spec) in enumerate(specs.items()):
            draw = device_rng.normals if spec.kind == "normal" else device_rng.uniforms
            key = STREAM_IDS["noise"] + 256 * (number + 1)
            flat = draw(self.seed_tensor, key, self.count_tensor, math.prod(spec.shape))
            noise[name] = flat.view(len(self.seeds), *spec.shape)
        return noise

    def _device_indices(self, source: Source, batch_size: int) -> Tensor:
        # floor(u * size), clamped: randint(high) would freeze the size into the graph.
        random = device_rng.uniforms(self.seed_tensor, STREAM_IDS["replay"], self.count_tensor, batch_size)
        size = source.size_tensor
        return torch.minimum((random.double() * size).long(), size - 1)

    def _train_captured(self, source: Source, count: int, batch_size: int, noise: Mapping[str, NoiseSpec]) -> None:
        chunk = count if count <= LARGEST_GRAPH else 1
        for _ in range(count // chunk):
            patterns = tuple(self.pattern(self.update_count + 1 + i) for i in range(chunk))
            key = (id(source), batch_size, patterns)
            if key not in self._programs:
                self._programs[key] = self._capture(source, batch_size, noise, patterns)
            self._programs[key]()
            for pattern in patterns:
                self._count(pattern)

    @torch.no_grad()
    def _capture(
        self, source: Source, batch_size: int, noise: Mapping[str, NoiseSpec], patterns: tuple[Pattern, ...]
    ) -> Callable[[], None]:
        """Sampling and all updates of a step as one CUDA graph that reads and writes the buffers in place."""
        if not self.metric_names:
            self._learn_metric_names(source.gather(self._device_indices(source, batch_size)), self._device_noise(noise))

        def make(pattern: Pattern) -> Callable[[], None]:
            def sampled_update() -> None:
                batch = source.gather(self._device_indices(source, batch_size))
                self._update(pattern, batch, self._device_noise(noise))

            return compile_once(sampled_update, self.backend) if self.compiled else sampled_update

        functions = {pattern: make(pattern) for pattern in set(patterns)}
        state = self._mutable()
        before = [tensor.clone() for tensor in state]
        side = torch.cuda.Stream(self.device)
        side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(side):
            for function in functions.values():
                for _ in range(2):  # compiles, and lets libraries allocate; undone below
                    function()
        torch.cuda.current_stream(self.device).wait_stream(side)
        for tensor, value in zip(state, before, strict=True):
            tensor.copy_(value)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for pattern in patterns:
                functions[pattern]()
        return graph.replay

    def _mutable(self) -> list[Tensor]:
        return [
            *self.flat.values(),
            *self.adam_mean.values(),
            *self.adam_square.values(),
            self.beta_powers,
            self.count_tensor,
            self.first_bad,
            *self.metric_sums,
            *self.metric_latest,
        ]

    # --- between updates -----------------------------------------------------------------------------------------
    def set_rates(self, values: Sequence[float]) -> None:
        if list(values) != self.rate_values:
            self.rate_values = list(values)
            self.rates.copy_(torch.tensor(self.rate_values, dtype=torch.float64))

    def copy_group(self, source: str, target: str) -> None:
        self.flat[target].copy_(self.flat[source])

    def latest_metrics(self) -> LatestMetrics:
        names = [name for phase in self.metric_names for name in phase]
        return LatestMetrics(names, torch.cat(self.metric_latest))

    def mean_metrics(self) -> list[dict[str, float | None]]:
        """Per seed, the mean of each metric since the last call; None where it has not run. Waits for the device."""
        rows: list[dict[str, float | None]] = [{} for _ in self.seeds]
        for number, names in enumerate(self.metric_names):
            count = self.metric_counts[number]
            means = (self.metric_sums[number] / max(count, 1)).tolist()
            for name, values in zip(names, means, strict=True):
                for row, value in zip(rows, values, strict=True):
                    row[name] = value if count else None
            self.metric_sums[number].zero_()
            self.metric_counts[number] = 0
        return rows

    # --- state ---------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Tensor]:
        """Everything, by name, with the seed axis; counters too."""
        state: dict[str, Tensor] = {}
        for group, layout in self.layouts.items():
            for name, view in layout.views(self.flat[group]).items():
                state[f"params.{group}.{name}"] = view
        for kind, buffers in (("adam_mean", self.adam_mean), ("adam_square", self.adam_square)):
            for group, flat in buffers.items():
                for name, view in self.layouts[group].views(flat).items():
                    state[f"{kind}.{group}.{name}"] = view
        state["beta_powers"] = self.beta_powers
        state["update_count"] = self.count_tensor
        state["first_bad"] = self.first_bad
        state["metric_counts"] = torch.tensor(self.metric_counts)
        for number, names in enumerate(self.metric_names):
            for row, name in enumerate(names):
                state[f"metric_sum.{number}.{name}"] = self.metric_sums[number][row]
                state[f"metric_latest.{number}.{name}"] = self.metric_latest[number][row]
        return state

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        if not self.metric_names:
            self._adopt_metric_names(state)
        mine = self.state_dict()
        if set(mine) != set(state):
            odd = sorted(set(mine) ^ set(state))
            raise ValueError(f"state does not fit this learner: {', '.join(odd[:4])}{' …' if len(odd) > 4 else ''}")
        for name, tensor in mine.items():
            if tensor.shape != state[name].shape:
                raise ValueError(
                    f"{name} has shape {tuple(state[name].shape)}, this learner's is {tuple(tensor.shape)}"
                )
        for name, tensor in mine.items():
            tensor.copy_(state[name])
        self.metric_counts = [int(count) for count in state["metric_counts"]]
        self.update_count = int(state["update_count"])

    def _adopt_metric_names(self, state: Mapping[str, Tensor]) -> None:
        found = [key.split(".", 2) for key in state if key.startswith("metric_sum.")]
        if not found:
            return
        for number in range(len(self.phases)):
            names = tuple(sorted(name for _, phase, name in found if int(phase) == number))
            self.metric_names.append(names)
            self.metric_sums.append(torch.zeros(len(names), len(self.seeds), device=self.device))
            self.metric_latest.append(torch.full((len(names), len(self.seeds)), torch.nan, device=self.device))


def _plain_gradients(loss: Any, trained: Groups, frozen: Groups, batch: Batch, noise: Noise) -> tuple[Any, Metrics]:
    """What grad_and_value does, without its overhead."""
    leaves = {g: {k: v.detach().requires_grad_() for k, v in params.items()} for g, params in trained.items()}
    with torch.enable_grad():
        value, metrics = loss(leaves, frozen, batch, noise)
        flat = [leaf for params in leaves.values() for leaf in params.values()]
        found = iter(torch.autograd.grad(value, flat, allow_unused=True, materialize_grads=True))
    grads = {group: {name: next(found) for name in params} for group, params in leaves.items()}
    return grads, {name: metric.detach() for name, metric in metrics.items()}


def _first(tree: Any) -> Any:
    """The first seed's slice of every tensor in nested tuples and dicts."""
    if isinstance(tree, Tensor):
        return tree[0]
    if isinstance(tree, dict):
        return {key: _first(value) for key, value in tree.items()}
    return tuple(_first(value) for value in tree)
