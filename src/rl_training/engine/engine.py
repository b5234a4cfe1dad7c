"""Turns an algorithm's losses into updates: one seed or many, eager, compiled, or captured in a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training.engine import drawing
from rl_training.engine.compilation import Announce, compile_once
from rl_training.engine.denormals import flushed_denormals
from rl_training.engine.gradients import (
    OneSeed,
    compiled_gradients,
    entry,
    looped_gradients,
    phase_gradients,
    stacked_gradients,
)
from rl_training.engine.groups import GroupLayout, Groups, Params
from rl_training.engine.metrics import MetricSums
from rl_training.engine.networks import BUFFERS, TARGET_PREFIX, Batch, Binding
from rl_training.engine.optimizers import Adam, clip_per_seed
from rl_training.engine.phases import UPDATE, Due, LossResult, Noise, NoiseSpec, Phase
from rl_training.engine.targets import Polyak, TargetUpdate
from rl_training.engine.trials import metric_names
from rl_training.tensors.state import check_shapes

MAX_COUNT = 2**53
RUNNING = "running"  # the name of the numbers that losses change, among the buffers


@dataclass(frozen=True)
class Execution:
    """Where and how updates run."""

    seeds: tuple[int, ...]
    device: torch.device
    compiled: bool = False
    backend: str = "inductor"
    looped: bool = False  # seeds run one after the other instead of by vmap


class Engine:
    """Runs updates and owns every tensor that they change."""

    def __init__(
        self,
        phases: Sequence[Phase],
        members: Mapping[str, Sequence[Params]],
        binding: Binding,
        execution: Execution,
        targets: TargetUpdate | None = None,
        buffers: Mapping[str, Sequence[Params]] | None = None,
    ) -> None:
        """`members` and `buffers`: for each group, the parameters and the buffers of every seed."""
        self.phases, self.binding, self.targets = tuple(phases), binding, targets
        self.seeds, self.device, self.looped = execution.seeds, execution.device, execution.looped
        self.compiled, self.backend = execution.compiled, execution.backend
        seeds, device = len(self.seeds), self.device
        shapes = {group: {name: v.shape for name, v in rows[0].items()} for group, rows in members.items()}
        self.layouts = {group: GroupLayout(shape, seeds) for group, shape in shapes.items()}
        self.flat = {group: self.layouts[group].stack(rows, device) for group, rows in members.items()}
        self.buffers: Groups = {
            group: {name: torch.stack([row[name].detach() for row in rows]).to(device) for name in rows[0]}
            for group, rows in (buffers or {}).items()
        }
        self.optimizers = [phase.optimizer or Adam() for phase in self.phases]
        # A temperature or a multiplier is no weight that decays.
        self.scalar_optimizers = [replace(one, weight_decay=0.0) for one in self.optimizers]
        self.slots = {  # the optimizers' state: slot -> group -> a flat buffer as the group's
            slot: {
                group: torch.zeros_like(self.flat[group])
                for phase, optimizer in zip(self.phases, self.optimizers, strict=True)
                if slot in optimizer.used_slots
                for group in phase.groups
            }
            for slot in dict.fromkeys(slot for optimizer in self.optimizers for slot in optimizer.used_slots)
        }
        # Where a loss may skip a seed's step, the steps of each seed are counted.
        self.per_seed = any(phase.per_seed for phase in self.phases)
        counted = (len(self.phases), 2, *([seeds] if self.per_seed else []))
        self.beta_powers = torch.ones(counted, dtype=torch.float64, device=device)
        self._owners = {group: layout.owners(device) for group, layout in self.layouts.items()} if self.per_seed else {}
        self.betas = [torch.tensor(one.powers, dtype=torch.float64, device=device) for one in self.optimizers]
        self.rates = torch.zeros(len(self.phases), dtype=torch.float64, device=device)
        self.rate_values: dict[str, float] = {}  # by phase
        self.update_count = 0
        self.count_tensor = torch.zeros((), dtype=torch.int64, device=device)
        self.first_nonfinite_update = torch.full((seeds,), -1, dtype=torch.int64, device=device)
        self.seed_tensor = torch.tensor(self.seeds, dtype=torch.int64, device=device)
        self.metrics = MetricSums([phase.name for phase in self.phases], seeds, device)
        self.denormals_flushed = flushed_denormals if device.type == "cpu" else nullcontext  # a context for updates
        self.programs: dict[Any, Callable[..., Any]] = {}  # compiled or captured; they refer to this engine's tensors
        self.while_compiling: Announce = nullcontext
        self._views = self._make_views()
        self._seed_views = [entry(self._views, seed) for seed in range(seeds)]
        with torch.no_grad():
            self._project(self.layouts)

    # --- parameter groups ----------------------------------------------------------------------------------------
    def groups(self) -> Groups:
        """Every group with its seed axis, as views of the buffers."""
        if torch.compiler.is_compiling():  # inside a compiled update views are free, and aliased inputs are not
            return self._make_views()
        return self._views

    def _make_views(self) -> Groups:
        views = {name: layout.views(self.flat[name]) for name, layout in self.layouts.items()}
        return views | {BUFFERS + group: buffers for group, buffers in self.buffers.items()}

    def groups_by_seed(self) -> list[Groups]:
        """Every seed's groups, without the seed axis."""
        if torch.compiler.is_compiling():
            views = self._make_views()
            return [entry(views, seed) for seed in range(len(self.seeds))]
        return self._seed_views

    @property
    def stacked(self) -> bool:
        """Whether losses and policies run once for all seeds, by vmap."""
        return len(self.seeds) > 1 and not self.looped

    @property
    def one_by_one(self) -> bool:
        """Whether several seeds run one after the other."""
        return len(self.seeds) > 1 and self.looped

    def due(self, update: int) -> Due:
        """The phases that run at the given update (counted from 1)."""
        return tuple(phase.name for phase in self.phases if update % phase.every == 0)

    # --- one update ----------------------------------------------------------------------------------------------
    def apply(self, due: Due, batch: Batch, noise: Noise) -> Tensor | None:
        """Run the phases that are due, in order. Returns the row errors (seeds, batch) if a loss computes them.

        Every way to run an update ends here; `engine/training.py` lists them.
        """
        row_errors: Tensor | None = None
        self.count_tensor.add_(1)
        update, seeds = self.count_tensor, len(self.seeds)
        if seeds == 1:
            batch, noise = entry((batch, noise), 0)
        else:
            update = update.expand(seeds)
        for number, phase in enumerate(self.phases):
            if phase.name not in due:
                continue
            given = {**batch, UPDATE: update} if phase.counted else batch
            if seeds == 1:
                found = phase_gradients(phase, self.binding, self.groups_by_seed()[0], given, noise)
            elif self.one_by_one:
                found = looped_gradients(self._one_seed(phase, given, noise), self.groups_by_seed(), given, noise)
            else:
                found = stacked_gradients(phase, self.binding, self.groups(), given, noise)
            grads, result, buffers = found
            self._set_buffers(buffers)
            if result.row_errors is not None:
                row_errors = result.row_errors
            batch = {**batch, **result.carried}
            self.set_running(result.running)
            if self.per_seed:
                self._step_per_seed(number, grads, result)
            else:
                self._step(number, grads)
            self._project(phase.groups)
            failed = self.first_nonfinite_update >= 0
            broken = ~self.metrics.add(phase.name, result.metrics, failed) & ~failed
            self.first_nonfinite_update.copy_(torch.where(broken, self.count_tensor, self.first_nonfinite_update))
        if isinstance(self.targets, Polyak) and self.targets.after in due:
            for target, source in self.targets.groups.items():
                self.flat[target].lerp_(self.flat[source], self.targets.tau)
            self._copy_target_buffers()
        return None if row_errors is None else row_errors.view(seeds, -1)

    def _one_seed(self, phase: Phase, batch: Batch, noise: Noise) -> OneSeed:
        """The function that computes one seed's gradients; `batch` and `noise` are those of all seeds."""
        if not self.compiled:
            return partial(phase_gradients, phase, self.binding)
        key = (phase.name, _specs(batch), _specs(noise), "one seed")
        if key not in self.programs:
            self.programs[key] = compiled_gradients(phase, self.binding, self.compile)
        return self.programs[key]

    def _step(self, number: int, grads: Groups) -> None:
        """Take one step of a phase's optimizer."""
        optimizer, powers = self.optimizers[number], self.beta_powers[number]
        if optimizer.max_grad_norm is not None:
            grads = clip_per_seed(grads, self.layouts, optimizer.max_grad_norm)
        powers.mul_(self.betas[number])
        for group, tensors in grads.items():
            state = [self.slots[slot][group] for slot in optimizer.used_slots]
            rule = optimizer if group in self.binding.networks else self.scalar_optimizers[number]
            rule.step_(self.flat[group], self.layouts[group].flatten(tensors), state, powers, self.rates[number])

    def _project(self, groups: Iterable[str]) -> None:
        """Replace parameters by what the `projected` of their layers returns for them, such as rows of length 1."""
        for group in groups:
            network = self.binding.networks.get(group.removeprefix(TARGET_PREFIX))
            if network is not None and network.projected:
                views = self.groups()[group]
                for layer, names in network.projected:
                    own = {name: views[full] for name, full in names.items() if full in views}  # without frozen ones
                    for name, tensor in layer.projected(own).items():
                        own[name].copy_(tensor)

    def _step_per_seed(self, number: int, grads: Groups, result: LossResult) -> None:
        """Take one step for each seed whose loss does not skip it, at the seed's own rate."""
        optimizer, powers, seeds = self.optimizers[number], self.beta_powers[number], len(self.seeds)
        if optimizer.max_grad_norm is not None:
            grads = clip_per_seed(grads, self.layouts, optimizer.max_grad_norm)
        zeros = torch.zeros(seeds, dtype=torch.bool, device=self.device)
        skipped = zeros if result.skip is None else result.skip.view(seeds)
        rates = self.rates[number].expand(seeds) if result.rate is None else result.rate.view(seeds).double()
        powers.copy_(torch.where(skipped, powers, powers * self.betas[number].unsqueeze(-1)))
        for group, tensors in grads.items():
            owner, changed = self._owners[group], [self.flat[group]]
            changed += [self.slots[slot][group] for slot in optimizer.used_slots]
            before = [tensor.clone() for tensor in changed]
            rule = optimizer if group in self.binding.networks else self.scalar_optimizers[number]
            flat, *state = changed
            rule.step_(flat, self.layouts[group].flatten(tensors), state, powers[:, owner], rates[owner])
            for tensor, value in zip(changed, before, strict=True):
                tensor.copy_(torch.where(skipped[owner], value, tensor))

    def set_running(self, values: Mapping[str, Tensor]) -> None:
        """Store numbers of `nets.running`, of one seed or with the seed axis."""
        if values:
            self._set_buffers({RUNNING: dict(values)})

    def _set_buffers(self, changed: Groups) -> None:
        """Store the buffers that a phase's networks changed."""
        for group, tensors in changed.items():
            for name, tensor in tensors.items():
                stored = self.buffers[group][name]
                stored.copy_(tensor.view_as(stored))  # one seed's have no seed axis

    def _copy_target_buffers(self) -> None:
        """Give targets the buffers of the groups they follow: running statistics have no slow copy."""
        if self.targets is not None and self.buffers:
            for target, source in self.targets.groups.items():
                for name, tensor in self.buffers.get(target, {}).items():
                    tensor.copy_(self.buffers[source][name])

    @torch.no_grad()
    def update(self, batch: Batch, noise: Noise, due: Due | None = None) -> None:
        """Run one update on a given batch; every tensor has the seed axis. Call it within `denormals_flushed`."""
        if not self.metrics.names:
            self.allocate_metrics(batch, noise)
        due = self.due(self.update_count + 1) if due is None else due
        if self.compiled:
            batch = dict(sorted(batch.items()))  # a program identifies its inputs by their order
            self._program(due, batch)(batch, noise)
        else:
            self.apply(due, batch, noise)
        self.count(due)

    def _program(self, due: Due, batch: Batch) -> Callable[[Batch, Noise], None]:
        """`apply`, compiled for the phases that are due and the specs of a batch."""
        key = (due, _specs(batch))
        if key not in self.programs:

            def program(batch: Batch, noise: Noise) -> None:
                self.apply(due, batch, noise)

            self.programs[key] = self.compile_whole(program)
        return self.programs[key]

    def compile_whole(self, program: Callable[..., Any]) -> Callable[..., Any]:
        """The program of an update or a policy, compiled as a whole if the engine compiles.

        Where seeds run one after the other, it would contain every seed's networks and take minutes to compile: there
        `apply` calls a program that is compiled for one seed, and policies are not compiled.
        """
        return self.compile(program) if self.compiled and not self.one_by_one else program

    def compile(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function compiled with this engine's backend."""
        return compile_once(function, self.backend, lambda: self.while_compiling(), self.device.type)

    def count(self, due: Due) -> None:
        """Count one update, and one for each phase that ran."""
        self.update_count += 1
        self.metrics.count(due)

    def allocate_metrics(self, batch: Batch, noise: Noise) -> None:
        """Allocate the sums of all metrics, whose names follow from one batch."""
        self.metrics.allocate(metric_names(self, batch, noise))

    def host_indices(self, size: int | NDArray[np.int64], count: int, batch_size: int) -> Tensor:
        return drawing.host_indices(self.seeds, self.update_count, size, count, batch_size)

    def host_uniforms(self, batch_size: int) -> Tensor:
        return drawing.host_uniforms(self.seeds, self.update_count, batch_size, self.device)

    def host_noise(self, specs: Mapping[str, NoiseSpec]) -> Noise:
        return drawing.host_noise(self.seeds, self.update_count, specs, self.device)

    def changed_tensors(self) -> list[Tensor]:
        """Every tensor that an update changes."""
        return [
            *self.flat.values(),
            *(tensor for buffers in self.buffers.values() for tensor in buffers.values()),
            *(tensor for of_groups in self.slots.values() for tensor in of_groups.values()),
            self.beta_powers,
            self.count_tensor,
            self.first_nonfinite_update,
            *self.metrics.sums.values(),
            *self.metrics.latest.values(),
        ]

    # --- between updates -----------------------------------------------------------------------------------------
    def set_rates(self, values: Mapping[str, float]) -> None:
        """Set the learning rate of each phase."""
        if values != self.rate_values:
            self.rate_values = dict(values)
            for number, phase in enumerate(self.phases):
                self.rates[number].fill_(values[phase.name])

    def set_group(self, group: str, values: Mapping[str, Tensor]) -> None:
        """Set the values of a group that no loss trains: the same for all seeds, or with the seed axis."""
        for name, value in values.items():
            view = self._views[group][name]
            view.copy_(value.float().expand_as(view), non_blocking=True)

    def fill(self, group: str, name: str, value: float) -> None:
        """Set a tensor to the same number for every seed."""
        self._views[group][name].fill_(value)

    @torch.no_grad()
    def load_seed(self, seed: int, tensors: Mapping[str, Tensor]) -> None:
        """Parameters and buffers of one seed by name, `group.parameter`."""
        for name, tensor in tensors.items():
            group, _, parameter = name.partition(".")
            views = self._seed_views[seed]
            owner = group if parameter in views.get(group, {}) else BUFFERS + group
            views[owner][parameter].copy_(tensor)

    def copy_targets(self) -> None:
        """Make every target group equal to the group it follows."""
        if self.targets is not None:
            for target, source in self.targets.groups.items():
                self.flat[target].copy_(self.flat[source])
            self._copy_target_buffers()

    def failure(self, seed: int) -> tuple[list[str], dict[str, float]]:
        """The metrics of a seed that became nonfinite first, and all its metrics at that update."""
        stepped = (self.beta_powers[:, 0].reshape(len(self.phases), -1) < 1).any(1).tolist()
        return self.metrics.at_failure(
            seed, [phase.name for phase, ran in zip(self.phases, stepped, strict=True) if ran]
        )

    # --- state ---------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Tensor]:
        """All tensors and counters by name, with the seed axis."""
        state: dict[str, Tensor] = {}
        for kind, of_groups in {"params": self.flat, **self.slots}.items():
            for group, flat in of_groups.items():
                for name, view in self.layouts[group].views(flat).items():
                    state[f"{kind}.{group}.{name}"] = view
        for group, buffers in self.buffers.items():
            state |= {f"buffers.{group}.{name}": tensor for name, tensor in buffers.items()}
        state["beta_powers"] = self.beta_powers
        state["update_count"] = self.count_tensor
        state["first_nonfinite_update"] = self.first_nonfinite_update
        return {**state, **self.metrics.state()}

    @torch.no_grad()
    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Load the tensors of `state_dict`; names, shapes, dtypes and counters are checked first."""
        if self.metrics.adopt_names(state):
            self.programs.clear()  # they would write to the replaced tensors
        mine = self.state_dict()
        if set(mine) != set(state):
            odd = sorted(set(mine) ^ set(state))
            raise ValueError(f"state does not fit this learner: {', '.join(odd[:4])}{' …' if len(odd) > 4 else ''}")
        check_shapes(state, mine, "learner")
        counters = torch.cat([state["update_count"].reshape(1).cpu(), state["metric_counts"].cpu()])
        if not ((counters >= 0) & (counters < MAX_COUNT)).all():
            raise ValueError(f"update_count and metric_counts must be >= 0 and < {MAX_COUNT}")
        for name, tensor in mine.items():
            tensor.copy_(state[name])
        self.metrics.set_counts(state["metric_counts"].tolist())
        self.update_count = int(state["update_count"])


def _specs(tensors: Mapping[str, Tensor]) -> tuple[Any, ...]:
    """Everything that compiled kernels assume of their inputs, since they are called without guards."""
    return tuple((name, one.shape, one.dtype, one.stride()) for name, one in sorted(tensors.items()))
