"""Turns an algorithm's losses into updates: one seed or many, eager, compiled, or captured in a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training.engine import drawing
from rl_training.engine.compilation import Announce, compile_once
from rl_training.engine.denormals import flushed_denormals
from rl_training.engine.gradients import entry, phase_gradients
from rl_training.engine.groups import Layout
from rl_training.engine.metrics import MetricSums
from rl_training.engine.optimizers import BETAS, adam_, clip_per_seed
from rl_training.engine.phases import CARRIED, ROW_ERRORS, Batch, Groups, Noise, NoiseSpec, Pattern, Phase

LARGEST_COUNT = 2**53


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
        polyak_phase: int = 0,
        max_grad_norm: float | None = None,
        adam_eps: float = 1e-8,
        backend: str = "inductor",
        looped: bool = False,  # the seeds one after the other
    ) -> None:
        self.phases, self.seeds, self.device = tuple(phases), tuple(seeds), device
        self.compiled, self.backend, self.looped = compiled, backend, looped
        self.polyak, self.tau = dict(polyak or {}), tau
        self.polyak_phase = polyak_phase  # targets move whenever this phase has run
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
        self.metrics = MetricSums(len(self.phases), len(self.seeds), device)
        self.arithmetic = flushed_denormals if device.type == "cpu" else nullcontext  # in which updates run
        self.programs: dict[Any, Callable[..., Any]] = {}  # compiled or captured: they hold the tensors of this object
        self.while_compiling: Announce = nullcontext
        self._views = self._make_views()
        self._first_seed: Groups = entry(self._views, 0)

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
    def apply(self, pattern: Pattern, batch: Batch, noise: Noise) -> Tensor | None:
        """The pattern's phases, one after the other. Returns the rows' errors (seeds, batch) if a loss tells them."""
        row_errors: Tensor | None = None
        self.count_tensor.add_(1)
        for number, phase in enumerate(self.phases):
            if not pattern[number]:
                continue
            grads, metrics = phase_gradients(phase, self.groups(), batch, noise, len(self.seeds), self.looped)
            row_errors = metrics.pop(ROW_ERRORS, row_errors)
            if CARRIED in metrics:  # a single seed's results come without the seed axis
                carried = metrics.pop(CARRIED)
                batch = {**batch, CARRIED: carried if len(self.seeds) > 1 else carried.unsqueeze(0)}
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
            bad = ~self.metrics.add(number, metrics, self.first_bad >= 0) & (self.first_bad < 0)
            self.first_bad.copy_(torch.where(bad, self.count_tensor, self.first_bad))
        for target, source in self.polyak.items() if pattern[self.polyak_phase] else ():
            self.flat[target].lerp_(self.flat[source], self.tau)
        return None if row_errors is None else row_errors.view(len(self.seeds), -1)

    def metric_names(self, batch: Batch, noise: Noise) -> list[list[str]]:
        """One look at each loss, without effect, tells which metrics there are: their sums need a place."""
        groups = self.seed_groups(0)
        one_batch, one_noise = entry((batch, noise), 0)
        names = []
        with torch.no_grad():
            for phase in self.phases:
                metrics = phase.loss(groups, one_batch, one_noise)[1]
                one_batch = {**one_batch, CARRIED: metrics.pop(CARRIED)} if CARRIED in metrics else one_batch
                names.append([name for name in metrics if name != ROW_ERRORS])
        return names

    def learn_metric_names(self, batch: Batch, noise: Noise) -> None:
        self.metrics.learn_names(self.metric_names(batch, noise))

    def at_failure(self, seed: int) -> tuple[list[str], dict[str, float]]:
        return self.metrics.at_failure(seed, (self.beta_powers[:, 0] < 1).tolist())

    def _program(self, pattern: Pattern, batch: Batch) -> Callable[[Batch, Noise], None]:
        """`apply` for one pattern and kind of batch, compiled if asked for."""
        # Everything that the kernels take for granted: they do not look again.
        kind = tuple((name, one.shape, one.dtype, one.stride()) for name, one in batch.items()) if self.compiled else ()
        key = (pattern, kind)
        if key not in self.programs:

            def program(batch: Batch, noise: Noise) -> None:
                self.apply(pattern, batch, noise)

            self.programs[key] = self.compile(program) if self.compiled else program
        return self.programs[key]

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        return compile_once(function, self.backend, lambda: self.while_compiling())

    @torch.no_grad()
    def update(self, batch: Batch, noise: Noise, pattern: Pattern | None = None) -> None:
        """One update on a given batch; every tensor has the seed axis in front. To be called within `arithmetic`."""
        batch = dict(sorted(batch.items()))  # a program tells its inputs apart by their order
        if not self.metrics.names:
            self.learn_metric_names(batch, noise)
        pattern = pattern or self.pattern(self.update_count + 1)
        self._program(pattern, batch)(batch, noise)
        self.count(pattern)

    def count(self, pattern: Pattern) -> None:
        self.update_count += 1
        self.metrics.count(pattern)

    def host_indices(self, size: int | NDArray[np.int64], count: int, batch_size: int) -> Tensor:
        return drawing.host_indices(self.seeds, self.update_count, size, count, batch_size)

    def host_uniforms(self, batch_size: int) -> Tensor:
        return drawing.host_uniforms(self.seeds, self.update_count, batch_size, self.device)

    def host_noise(self, specs: Mapping[str, NoiseSpec]) -> Noise:
        return drawing.host_noise(self.seeds, self.update_count, specs, self.device)

    def mutable(self) -> list[Tensor]:
        """Everything an update changes."""
        return [
            *self.flat.values(),
            *self.adam_mean.values(),
            *self.adam_square.values(),
            self.beta_powers,
            self.count_tensor,
            self.first_bad,
            *self.metrics.sums,
            *self.metrics.latest,
        ]

    # --- between updates -----------------------------------------------------------------------------------------
    def set_rates(self, values: Sequence[float]) -> None:
        if list(values) != self.rate_values:
            self.rate_values = list(values)
            self.rates.copy_(torch.tensor(self.rate_values, dtype=torch.float64))

    def copy_group(self, source: str, target: str) -> None:
        self.flat[target].copy_(self.flat[source])

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
        return {**state, **self.metrics.state()}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        if self.metrics.adopt_names(state):
            self.programs.clear()  # they would go on writing into the tensors that were replaced
        mine = self.state_dict()
        if set(mine) != set(state):
            odd = sorted(set(mine) ^ set(state))
            raise ValueError(f"state does not fit this learner: {', '.join(odd[:4])}{' …' if len(odd) > 4 else ''}")
        for name, tensor in mine.items():
            have, mine_is = (f"{one.dtype} {tuple(one.shape)}" for one in (state[name], tensor))
            if have != mine_is:
                raise ValueError(f"{name} is {have}, this learner's is {mine_is}")
        counters = torch.cat([state["update_count"].reshape(1), state["metric_counts"]])
        if not ((counters >= 0) & (counters < LARGEST_COUNT)).all():
            raise ValueError(f"update_count and metric_counts must be >= 0 and < {LARGEST_COUNT}")
        for name, tensor in mine.items():
            tensor.copy_(state[name])
        self.metrics.counts = [int(count) for count in state["metric_counts"]]
        self.update_count = int(state["update_count"])
