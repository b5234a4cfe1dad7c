"""The learner: an algorithm's losses and policies, run by the engine for one seed or many."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rl_training.algorithms.collecting import REWARD_SCALE, Collecting, RewardScaler
from rl_training.algorithms.definition import Algorithm
from rl_training.algorithms.model_tensors import buffers_of, parameters_of, tie
from rl_training.algorithms.normalizer import GROUP, ObservationNormalizer
from rl_training.config.settings import ReplaySettings, TrainSettings
from rl_training.core.checks import UserError, require
from rl_training.core.results import UpdateResult
from rl_training.core.rng import stream
from rl_training.core.schedules import Every, linear
from rl_training.core.specs import ACTION_DTYPES, Array, ArraySpec, EnvSpec, image, vector
from rl_training.engine.acting import NO_STATE, Act, Acting, State
from rl_training.engine.compilation import Announce
from rl_training.engine.engine import MAX_COUNT, RUNNING, Engine, Execution
from rl_training.engine.groups import Groups, Params
from rl_training.engine.networks import BUFFERS, Batch, Binding, BoundNetwork, Networks, must_loop
from rl_training.engine.optimizers import Adam, optimizer_of
from rl_training.engine.phases import LossResult, Metrics, Noise, NoiseSpec, Phase, Source
from rl_training.engine.targets import HardCopy, Polyak, TargetUpdate
from rl_training.engine.training import Training
from rl_training.engine.trials import dropout_specs, metric_names
from rl_training.models.features import Observed
from rl_training.models.layers import initialize_, set_precision_
from rl_training.tensors.observations import numbers, pack, split, with_numbers, zeros
from rl_training.tensors.outbox import Outbox

OBSERVATION_LIMIT = 10.0  # normalised observations beyond it are clipped, as in VecNormalize
STD_FLOOR = 1e-3  # added to a dataset's standard deviations, as in the authors' code of TD3+BC
__all__ = ["Act", "Adam", "Batch", "BoundNetwork", "HardCopy", "Learner", "LossResult", "Metrics", "Networks", "Noise",
           "NoiseSpec", "Params", "Phase", "Polyak", "ReplaySettings", "TargetUpdate"]  # fmt: skip


class Learner(Algorithm):
    """One algorithm for one seed or many. A subclass implements `Algorithm`; the engine runs it."""

    def __init__(
        self,
        *,
        model: nn.Module | Sequence[nn.Module],
        settings: TrainSettings | None = None,
        seeds: Sequence[int] = (0,),
        device: str | torch.device = "cpu",
        compiled: bool = False,
        backend: str = "inductor",
        observation: ArraySpec | None = None,
        **overrides: Any,
    ) -> None:
        self.settings = settings or self.settings_type(**overrides)
        self.seeds, self.device = tuple(seeds), torch.device(device)
        models = [model] if isinstance(model, nn.Module) else list(model)
        if self.settings.precision != "float32":
            for one in models:
                set_precision_(one, self.settings.precision)
        self.model = models[0]
        self.observation = observation if observation is not None else _observation_of(self.model)
        self.normalizer = self._make_normalizer()
        prepare = self._prepare if self.normalizer is not None or self.observation.parts else None
        self.binding = Binding(self.networks_type, self.modules(self.model), prepare)
        optimizer = optimizer_of(self.settings)
        phases = [replace(phase, optimizer=phase.optimizer or optimizer) for phase in self.phases()]
        execution = Execution(self.seeds, self.device, compiled, backend, looped=must_loop(self.model))
        targets = self.target_update()
        members = self._members(models, targets)
        buffers = buffers_of(models, self.modules, self.binding.networks, targets)
        scaled = {} if self.reward_limit() is None else {REWARD_SCALE: torch.ones(())}
        if self.running() or scaled:
            buffers[RUNNING] = [{**self.running(), **scaled} for _ in models]
        self.engine = Engine(phases, members, self.binding, execution, targets, buffers)
        self._noise_specs: dict[int, dict[str, NoiseSpec]] = {}  # by batch size
        self.last_step = 0  # the environment step of the newest update, by which hard target copies are scheduled
        self.acting, self.training = Acting(self.engine), Training(self.engine)
        limit = self.reward_limit()
        scaler = None if limit is None else RewardScaler(len(self.seeds), self.settings.gamma, limit)
        self.collecting = Collecting(self.engine, scaler)
        self.progress = 0.0
        if self.settings.can_learn:
            self.set_progress(0.0)
        tie(self.modules(self.model), self.engine.groups_by_seed()[0])
        if any(network.has_modes for network in self.binding.networks.values()):
            self.model.eval()  # for callers of the model itself; the engine has its own copies of such networks

    @classmethod
    def create(
        cls,
        spec: EnvSpec,
        settings: TrainSettings,
        seeds: Sequence[int],
        *,
        device: str | torch.device = "cpu",
        compiled: bool = False,
    ) -> Learner:
        """A learner for an environment; each seed's networks are initialised as in a run of that seed alone."""
        models = []
        for seed in seeds:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(int(stream(seed, "init").integers(2**62)))
                models.append(cls.build_model(spec, settings))
                if settings.network.initial_weights != "default":
                    initialize_(models[-1], settings.network.initial_weights, settings.network.activation)
        options: dict[str, Any] = {"device": device, "compiled": compiled, "observation": spec.observation}
        return cls(model=models, settings=settings, seeds=seeds, **options)

    # --- acting --------------------------------------------------------------------------------------------------
    def act_greedy(self, obs: Tensor, state: State = NO_STATE) -> Act:
        """Actions in the library's units for (seeds, rows, *obs); `state` is a recurrent policy's."""
        return self.acting.greedy(self.greedy, obs, state)

    def greedy_rows(self, obs: Tensor) -> Tensor:
        """The actions of `act_greedy` for one seed's (rows, *obs), without the seed axis, see `Acting.greedy_rows`."""
        return self.acting.greedy_rows(self.greedy, obs)

    def act_explore(
        self, obs: Tensor, step: int, progress: float, state: State = NO_STATE, stream: str = "explore"
    ) -> Act:
        """Actions with the random numbers of that step; without a `state`, exploration starts anew."""
        noise, amount = self.explore_noise(obs.shape[1]), self.exploration(progress)
        fresh = {} if state else self.explore_states(obs.shape[1])
        act = self.acting.explore(self.explore, obs, noise, step, amount, state or fresh, stream)
        return act._replace(state=NO_STATE) if fresh else act

    def act_collect(self, obs: Tensor, step: int, progress: float) -> Act:
        """Actions for collecting data, which continue the exploration of the step before; after `start_collecting`."""
        noise, amount = self.explore_noise(obs.shape[1]), self.exploration(progress)
        act = self.acting.collect(self.explore, obs, noise, step, amount, self.collecting.explore_state)
        self.collecting.explore_state = dict(act.state)
        return act

    def initial_states(self, rows: int) -> dict[str, Tensor]:
        """`initial_state` for every seed: (seeds, rows, ...)."""
        return self._for_seeds(self.initial_state(rows))

    def explore_states(self, rows: int) -> dict[str, Tensor]:
        """`explore_state` for every seed: (seeds, rows, ...)."""
        return self._for_seeds(self.explore_state(rows))

    def _for_seeds(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: one.expand(len(self.seeds), *one.shape).to(self.device) for name, one in state.items()}

    def act_random(self, step: int, rows: int, device: torch.device | None = None) -> Act:
        """Uniformly random actions, drawn on the device of the observations (None: the host)."""
        if device is not None and device.type == "cuda":
            return self.acting.random(self.action_spec, step, rows)
        drawn = [self.action_spec.sample(stream(seed, "explore", step), rows) for seed in self.seeds]
        return Act(torch.from_numpy(np.stack(drawn)))

    def observe(self, obs: Tensor) -> None:
        """Update the running statistics. The loop passes each observation (seeds, rows, *obs) once, before acting."""
        if self.normalizer is not None and self.normalizer.running:
            vectors = numbers(self.observation, split(self.observation, obs))
            self.engine.set_group(GROUP, self.normalizer.observe(vectors))

    def start_collecting(self, rows: int) -> None:
        """Allocate what collecting in `rows` environments per seed carries from step to step."""
        self.collecting.start(rows, self.explore_states)

    def collect_by(self, outbox: Outbox, rows: int) -> None:
        """Send the inputs of `act_collect`, for `rows` environments per seed, by `outbox`."""
        self.acting.send_by(outbox, self.observation, self.explore_noise(rows), rows)

    def observe_all(self, obs: Tensor) -> None:
        """`observe` for the many rows (seeds, rows, *obs) of a rollout at once."""
        if self.normalizer is not None and self.normalizer.running:
            vectors = numbers(self.observation, split(self.observation, obs))
            self.engine.set_group(GROUP, self.normalizer.observe_all(vectors))

    def set_obs_stats(self, mean: Array, std: Array) -> None:
        """Set the mean and standard deviation of observations, if they are normalised."""
        if self.normalizer is not None:
            scale = torch.as_tensor(1 / (std + STD_FLOOR))
            self.engine.set_group(GROUP, {"mean": torch.as_tensor(mean), "scale": scale})

    @property
    def observation_count(self) -> int | None:
        """The number of observations in each seed's running statistics; None: there are none."""
        return self.normalizer.count if self.normalizer is not None and self.normalizer.running else None

    def set_observation_count(self, count: int) -> None:
        """Continue the running statistics from those in the networks, as the statistics of `count` observations."""
        if self.normalizer is not None:
            self.normalizer.restore(self.engine.groups()[GROUP], count)

    def copy_observation_statistics(self, others: Sequence[Learner]) -> None:
        """Copy the running statistics of one learner's first seed to every seed, or of one learner's to each."""
        found = [other.normalizer for other in others if other.normalizer is not None]
        if self.normalizer is not None and found:
            self.normalizer.start_from(found)

    # --- learning ------------------------------------------------------------------------------------------------
    def set_progress(self, progress: float) -> None:
        """Set scheduled values for the given share of the run."""
        self.progress = progress
        self.engine.set_rates({phase.name: (phase.rate or self.rate)(progress) for phase in self.engine.phases})

    @property
    def learning_rate(self) -> float:
        return self.engine.rate_values[self.engine.phases[0].name]

    def stopped_groups(self) -> list[str]:
        """The groups whose learning rate is 0 now."""
        stopped = [phase for phase in self.engine.phases if not self.engine.rate_values[phase.name]]
        return [group for phase in stopped for group in phase.groups]

    def train(self, source: Source, count: int, global_step: int) -> None:
        """Run `count` updates on batches drawn from `source`; called by the loops."""
        if source.priorities is not None:
            source.priorities.set_beta(linear(self.settings.prioritized_beta_start, 1.0, self.progress))
        batch_size = self.settings.batch_size
        self.training.train(source, count, batch_size, self.update_noise(batch_size))
        self._set_step(global_step)

    def update_noise(self, batch_size: int) -> dict[str, NoiseSpec]:
        """All random numbers that one update needs: those of the losses and those of dropout layers."""
        if not any(network.dropouts for network in self.binding.networks.values()):
            return self.noise(batch_size)
        if batch_size not in self._noise_specs:
            own, batch = self.noise(batch_size), self.example_batch(batch_size)
            self._noise_specs[batch_size] = {**own, **dropout_specs(self.engine, batch, self.engine.host_noise(own))}
        return self._noise_specs[batch_size]

    def example_batch(self, rows: int) -> Batch:
        """A batch of zeros, to find out what the losses need."""
        return zeros(self.observation, self.action_spec, (1, rows), self.device)

    def update(self, batch: Mapping[str, Any], global_step: int | None = None) -> UpdateResult:
        """Take one gradient step of the whole algorithm on a given batch (one seed)."""
        tensors = {name: self._batch_tensor(name, value).unsqueeze(0) for name, value in self._packed(batch).items()}
        rows = {name: tensor.shape[1] for name, tensor in tensors.items()}
        require(len(set(rows.values())) == 1, "all batch tensors", f"of the same length, got {rows}")
        if not self.engine.rate_values:
            self.set_progress(self.progress)  # raises: the schedule is not here
        noise = self.engine.host_noise(self.update_noise(next(iter(rows.values()))))
        with self.engine.denormals_flushed():
            self.engine.update(tensors, noise, due=tuple(phase.name for phase in self.engine.phases))
        self._set_step(self.update_count if global_step is None else global_step)
        return UpdateResult(1, self.engine.metrics.newest())

    def _packed(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """The batch with mixed observations as rows of bytes, where they were given as arrays by name."""
        return {k: pack(self.observation, v) if isinstance(v, Mapping) else v for k, v in batch.items()}

    def _batch_tensor(self, name: str, value: Any) -> Tensor:
        tensor = torch.as_tensor(value, device=self.device)
        # A (batch, 1) column would silently broadcast to (batch, batch).
        if name in ("rewards", "dones", "weights", "discounts"):
            return tensor.float().reshape(-1)
        if name == "actions" and self._action_dtype == "int64":
            return tensor
        return tensor if tensor.dtype == torch.uint8 and name in ("actions", "obs", "next_obs") else tensor.float()

    @property
    def _action_dtype(self) -> str:
        """The dtype of actions; only an algorithm for actions of several dtypes asks its model."""
        dtypes = {ACTION_DTYPES[kind] for kind in self.actions}
        return self.action_spec.dtype if len(dtypes) > 1 else dtypes.pop()

    def _set_step(self, global_step: int) -> None:
        """Set the step of the newest update; copy the targets if it passed a multiple of their interval."""
        rule = self.engine.targets
        if isinstance(rule, HardCopy) and Every(rule.every).passed(self.last_step, global_step):
            self.copy_targets()
        self.last_step = global_step

    def copy_targets(self) -> None:
        """Make every target network equal to the network it follows."""
        self.engine.copy_targets()

    @property
    def update_count(self) -> int:
        return self.engine.update_count

    @property
    def while_compiling(self) -> Announce:
        """A context that is entered while a program is compiled."""
        return self.engine.while_compiling

    @while_compiling.setter
    def while_compiling(self, announce: Announce) -> None:
        self.engine.while_compiling = announce

    def take_metrics(self) -> list[dict[str, float | None]]:
        """Per seed, the mean of each metric since the last call; None where its phase has not run."""
        return self.engine.metrics.take_means()

    def nonfinite_updates(self) -> list[int]:
        """Per seed, the first update with nonfinite metrics; -1: none."""
        return [int(update) for update in self.engine.first_nonfinite_update.tolist()]

    def failure(self, index: int) -> tuple[list[str], dict[str, float]]:
        """The metrics of a seed that became nonfinite first, and all its metrics at that update."""
        return self.engine.failure(index)

    # --- state ---------------------------------------------------------------------------------------------------
    def nets(self, index: int = 0) -> Any:
        """One seed's networks, as passed to its losses."""
        return self.binding.networks_of(self.engine.groups_by_seed()[index])

    def seed_parameters(self, index: int) -> dict[str, Tensor]:
        """One seed's parameters and buffers by name, without its target networks and what belongs to the run."""
        targets = self.engine.targets.groups if self.engine.targets is not None else {}
        groups = self.engine.groups_by_seed()[index]
        found = {
            f"{group.removeprefix(BUFFERS)}.{name}": tensor
            for group, params in groups.items()
            if group.removeprefix(BUFFERS) not in targets
            for name, tensor in params.items()
        }
        run_only = {f"{RUNNING}.{name}" for name in (*self.run_only, REWARD_SCALE)}
        return {name: tensor for name, tensor in found.items() if name not in run_only}

    def load_seed_parameters(self, index: int, tensors: Mapping[str, Tensor]) -> None:
        """Give one seed parameters by the names of `seed_parameters`, all or some."""
        self.engine.load_seed(index, tensors)

    def state_dict(self) -> dict[str, Tensor]:
        normalizer = self.normalizer.state() if self.normalizer is not None else {}
        own = {"last_step": torch.tensor(self.last_step), **normalizer, **self.collecting.state()}
        return {**self.engine.state_dict(), **own}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        rest = dict(state)
        last_step = rest.pop("last_step")
        if last_step.shape or last_step.dtype != torch.int64 or not 0 <= last_step < MAX_COUNT:
            raise ValueError("last_step must be one number >= 0")
        if self.normalizer is not None:
            self.normalizer.load({name: rest.pop(name) for name in self.normalizer.state()})
        self.collecting.load(rest)
        self.engine.load_state_dict(rest)
        self.last_step = int(last_step)

    def check_metrics(self, source: Source) -> None:
        """Reject a loaded state whose metrics are not this learner's, which are found with a batch of the source."""
        if self.engine.metrics.names:
            batch = source.gather(torch.zeros(len(self.seeds), 2, dtype=torch.int64, device=self.device))
            noise = self.engine.host_noise(self.update_noise(2))
            self.engine.metrics.check_names(metric_names(self.engine, batch, noise))

    def _members(self, models: Sequence[nn.Module], targets: TargetUpdate | None) -> dict[str, list[Params]]:
        """For each group, the tensors of every seed: networks, targets, scalars."""
        members = parameters_of(models, self.modules, targets)
        for group, values in self.scalars().items():
            members[group] = [{name: torch.tensor(value) for name, value in values.items()} for _ in models]
        if self.normalizer is not None:
            members[GROUP] = self.normalizer.members()
        return members

    def _make_normalizer(self) -> ObservationNormalizer | None:
        if not self.settings.normalize_observations:
            return None
        numeric = self.observation.numbers
        if numeric is None:
            raise UserError("normalize_observations must be false for images")
        # Running statistics are unreliable at first, so their result is clipped; those of a dataset are complete.
        limit = math.inf if self.offline else OBSERVATION_LIMIT
        return ObservationNormalizer(len(self.seeds), numeric.size, limit, running=not self.offline)

    def _prepare(self, groups: Groups, batch: Batch) -> Batch:
        """The batch as the networks receive it: mixed observations split into their arrays, vectors normalised."""
        prepared: dict[str, Any] = dict(batch)
        for name in ("obs", "next_obs"):
            if name in batch:
                prepared[name] = self.prepared(groups, split(self.observation, batch[name]))
        return prepared

    def prepared(self, groups: Groups, obs: Any) -> Any:
        """A split observation as the networks receive it: its vector normalised."""
        if self.normalizer is None:
            return obs
        vectors = self.normalizer.normalized(groups, numbers(self.observation, obs))
        return with_numbers(self.observation, obs, vectors)


def _observation_of(model: Any) -> ArraySpec:
    """The observations of a model that was built without a spec: `obs_dim` is a length or the shape of an image."""
    obs_dim = getattr(model, "obs_dim", 0)
    if isinstance(obs_dim, Observed):
        return obs_dim.spec
    return vector(obs_dim) if isinstance(obs_dim, int) else image(*obs_dim)
