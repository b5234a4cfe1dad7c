"""What every algorithm shares: settings, parameter groups, acting, one update, state."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rl_training.algorithms.normalizer import GROUP, ObservationNormalizer
from rl_training.config.settings import OffPolicySettings
from rl_training.core.checks import require
from rl_training.core.d4rl import domain
from rl_training.core.results import UpdateResult
from rl_training.core.rng import stream
from rl_training.core.schedules import Every, linear
from rl_training.core.specs import ACTION_DTYPES, ArraySpec, EnvSpec, Kind, action_spec
from rl_training.engine.acting import Acting
from rl_training.engine.engine import LARGEST_COUNT, Engine
from rl_training.engine.groups import Params
from rl_training.engine.networks import Network, has_convolutions
from rl_training.engine.phases import CARRIED, ROW_ERRORS, Batch, Groups, Metrics, Noise, NoiseSpec, Phase, Source
from rl_training.engine.training import Training

Array = NDArray[Any]
OBSERVATION_LIMIT = 10.0  # normalised observations beyond it are clipped, as in VecNormalize
STD_FLOOR = 1e-3  # added to a data set's standard deviations, as in the authors' code of TD3+BC
__all__ = ["CARRIED", "ROW_ERRORS", "Batch", "Groups", "Learner", "Metrics", "Network", "Noise", "NoiseSpec",
           "OffPolicySettings", "Params", "Phase"]  # fmt: skip


class Learner:
    """One algorithm for one seed or many. A subclass writes the losses; the engine does the rest."""

    name: ClassVar[str]
    title: ClassVar[str]
    observations: ClassVar[tuple[Kind, ...]] = ("vector",)  # kinds it can learn from
    actions: ClassVar[tuple[Kind, ...]] = ("continuous",)
    offline: ClassVar[bool] = False  # learns from a data set; its settings are `OfflineSettings`
    learns_online: ClassVar[bool] = True  # there is something to learn from what its own policy does
    settings_type: ClassVar[type[OffPolicySettings]] = OffPolicySettings
    by_domain: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # D4RL's domain -> settings where the user left them open
    targets: ClassVar[Mapping[str, str]] = {}  # target group -> the group it follows
    target_phase: ClassVar[int] = 0  # the phase whose updates move the targets, where they follow by `tau`

    def __init__(
        self,
        *,
        model: nn.Module | Sequence[nn.Module],
        settings: OffPolicySettings | None = None,
        seeds: Sequence[int] = (0,),
        device: str | torch.device = "cpu",
        compiled: bool = False,
        backend: str = "inductor",
        **overrides: Any,
    ) -> None:
        self.settings: Any = settings or self.settings_type(**overrides)
        self.seeds, self.device = tuple(seeds), torch.device(device)
        models = [model] if isinstance(model, nn.Module) else list(model)
        self.model = models[0]
        self._check_no_buffers()
        self.normalizer = self._make_normalizer()
        members = self._members(models)
        self.networks = {group: Network(module) for group, module in self.modules(self.model).items()}
        tau = getattr(self.settings, "tau", None)
        self.engine = Engine(
            [self.normalizer.for_phase(phase) if self.normalizer else phase for phase in self.phases()],
            members,
            seeds=self.seeds,
            device=self.device,
            compiled=compiled,
            backend=backend,
            polyak=self.targets if tau is not None else {},
            tau=tau or 0.0,
            polyak_phase=self.target_phase,
            max_grad_norm=self.settings.max_grad_norm,
            adam_eps=self.settings.adam_eps,
            # With a seed axis a convolution becomes a grouped one, which rounds differently and is no faster.
            looped=has_convolutions(self.model),
        )
        self.last_step = 0  # the environment step of the newest update: hard target copies count by it
        self.acting, self.training = Acting(self.engine), Training(self.engine)
        wrap = self.normalizer.for_policy if self.normalizer else lambda policy: policy
        self._greedy, self._explore = wrap(self.greedy), wrap(self.explore)
        self.set_progress(0.0)
        self._tie_model()

    @classmethod
    def create(
        cls,
        spec: EnvSpec,
        settings: OffPolicySettings,
        seeds: Sequence[int],
        *,
        device: str | torch.device = "cpu",
        compiled: bool = False,
    ) -> Learner:
        """A learner for an environment; each seed's networks are initialised as if it were alone."""
        models = []
        for seed in seeds:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(int(stream(seed, "init").integers(2**62)))
                models.append(cls.build_model(spec, settings))
        return cls(model=models, settings=settings, seeds=seeds, device=device, compiled=compiled)

    # --- what a subclass says ------------------------------------------------------------------------------------
    @classmethod
    def build_model(cls, spec: EnvSpec, settings: Any) -> nn.Module:
        raise NotImplementedError

    @classmethod
    def supports_actions(cls, spec: EnvSpec) -> bool:
        return spec.action.kind in cls.actions

    @classmethod
    def supports(cls, spec: EnvSpec) -> bool:
        return cls.supports_actions(spec) and spec.observation.kind in cls.observations

    @classmethod
    def drop_replaced(cls, given: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
        """The settings `given` in a file, without those that make no sense beside `over`, which is given over it."""
        return dict(given)

    @classmethod
    def task_settings(cls, env_id: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        """The user's settings, with what the algorithm's authors chose for this task where they leave it open."""
        return {**cls.by_domain.get(domain(env_id) or "", {}), **asked}

    def modules(self, model: nn.Module) -> dict[str, nn.Module]:
        """The networks, by the name of their parameter group."""
        raise NotImplementedError

    def scalars(self) -> dict[str, dict[str, float]]:
        """Groups that are not networks, such as a temperature."""
        return {}

    def phases(self) -> Sequence[Phase]:
        raise NotImplementedError

    def noise(self, batch_size: int) -> dict[str, NoiseSpec]:
        """The random numbers one update needs."""
        return {}

    def greedy(self, groups: Groups, obs: Tensor) -> Tensor:
        """The best actions known: what evaluation and `predict` use."""
        raise NotImplementedError

    def explore(self, groups: Groups, obs: Tensor, noise: Tensor, amount: Tensor) -> Tensor:
        """Actions for collecting data, given random numbers as `explore_noise` asks for."""
        raise NotImplementedError

    def explore_noise(self, rows: int) -> NoiseSpec:
        """The random numbers for `rows` exploring actions of one seed."""
        return NoiseSpec(*self.action_spec.exploration_noise(rows))

    def exploration(self, progress: float) -> float:
        """How much to explore after this share of the run."""
        return 1.0

    # --- acting --------------------------------------------------------------------------------------------------
    def act_greedy(self, obs: Array) -> Array:
        """(seeds, rows, *obs) -> (seeds, rows, ...) actions in the library's units."""
        return self.acting("greedy", self._greedy, obs)

    def act_explore(self, obs: Array, step: int, progress: float) -> Array:
        rows = obs.shape[1]
        amount = np.full((len(self.seeds), 1), self.exploration(progress), np.float32)
        return self.acting("explore", self._explore, obs, self._explore_noise(step, rows), amount)

    def act_randomly(self, step: int, rows: int) -> Array:
        """Uniform over the action space."""
        return np.stack([self.action_spec.sample(stream(seed, "explore", step), rows) for seed in self.seeds])

    def _explore_noise(self, step: int, rows: int) -> Array:
        spec = self.explore_noise(rows)
        return np.stack([spec.draw(stream(seed, "explore", step)) for seed in self.seeds])

    @property
    def action_spec(self) -> ArraySpec:
        return action_spec(self.actions[0], self.action_dim)

    @property
    def action_dim(self) -> int:
        return int(self.model.action_dim)  # type: ignore[arg-type]

    def observe(self, obs: Array) -> None:
        """(seeds, rows, *obs): the loop shows every observation once, in order, before acting on it."""
        if self.normalizer is not None and self.normalizer.running:
            self.normalizer.observe(obs, self.engine)

    def fix_observations(self, mean: Array, std: Array) -> None:
        """Normalise by a data set's statistics from now on, if observations are normalised."""
        if self.normalizer is not None:
            self.normalizer.fix(self.engine, mean, 1 / (std + STD_FLOOR))

    # --- learning ------------------------------------------------------------------------------------------------
    def set_progress(self, progress: float) -> None:
        """Move the scheduled values to the given share of the run."""
        self.progress = progress
        rate = self.settings.learning_rate
        if self.settings.learning_rate_schedule == "linear":
            rate = linear(rate, 0.0, progress)
        self.engine.set_rates([rate] * len(self.engine.phases))

    @property
    def learning_rate(self) -> float:
        return self.engine.rate_values[0]

    def train(self, source: Source, count: int, global_step: int) -> None:
        """`count` updates on batches drawn from `source`: the loop's way in."""
        if source.priorities is not None:
            source.priorities.set_beta(linear(self.settings.prioritized_beta_start, 1.0, self.progress))
        self.training.train(source, count, self.settings.batch_size, self.noise(self.settings.batch_size))
        self._copy_targets(global_step)

    def update(self, batch: Mapping[str, Any], global_step: int | None = None) -> UpdateResult:
        """One gradient step of the whole algorithm on a given batch (one seed)."""
        tensors = {name: self._batch_tensor(name, value).unsqueeze(0) for name, value in batch.items()}
        rows = {name: tensor.shape[1] for name, tensor in tensors.items()}
        require(len(set(rows.values())) == 1, "batch", f"of one number of rows, got {rows}")
        noise = self.engine.host_noise(self.noise(tensors["obs"].shape[1]))
        with self.engine.arithmetic():
            self.engine.update(tensors, noise, pattern=(True,) * len(self.engine.phases))
        self._copy_targets(self.update_count if global_step is None else global_step)
        return UpdateResult(1, self.engine.metrics.newest())

    def _batch_tensor(self, name: str, value: Any) -> Tensor:
        tensor = torch.as_tensor(value, device=self.device)
        # A (batch, 1) column would broadcast to (batch, batch) without a word.
        if name in ("rewards", "dones", "weights", "discounts"):
            return tensor.float().reshape(-1)
        if name == "actions" and ACTION_DTYPES[self.actions[0]] == "int64":
            return tensor
        return tensor if tensor.dtype == torch.uint8 and name in ("actions", "obs", "next_obs") else tensor.float()

    def _copy_targets(self, global_step: int) -> None:
        interval = getattr(self.settings, "target_update_interval", None)
        if interval is not None and Every(interval).passed(self.last_step, global_step):
            for target, source in self.targets.items():
                self.engine.copy_group(source, target)
        self.last_step = global_step

    @property
    def update_count(self) -> int:
        return self.engine.update_count

    # --- state ---------------------------------------------------------------------------------------------------
    def state_dict(self) -> dict[str, Tensor]:
        normalizer = self.normalizer.state() if self.normalizer is not None else {}
        return {**self.engine.state_dict(), "last_step": torch.tensor(self.last_step), **normalizer}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        rest = dict(state)
        last_step = rest.pop("last_step")
        if last_step.shape or last_step.dtype != torch.int64 or not 0 <= last_step < LARGEST_COUNT:
            raise ValueError("last_step must be one number >= 0")
        if self.normalizer is not None:
            self.normalizer.load({name: rest.pop(name) for name in self.normalizer.state()})
        self.engine.load_state_dict(rest)
        self.last_step = int(last_step)

    def check_metrics(self, source: Source) -> None:
        """Whether the metrics of a loaded state are those of this learner; any batch tells."""
        if self.engine.metrics.names:
            batch = source.gather(torch.zeros(len(self.seeds), 2, dtype=torch.int64, device=self.device))
            self.engine.metrics.check_names(self.engine.metric_names(batch, self.engine.host_noise(self.noise(2))))

    def _members(self, models: Sequence[nn.Module]) -> dict[str, list[dict[str, Tensor]]]:
        """Per group, every seed's tensors: networks, then target copies, then scalars."""
        members: dict[str, list[dict[str, Tensor]]] = {
            group: [dict(self.modules(model)[group].named_parameters()) for model in models]
            for group in self.modules(models[0])
        }
        members.update({target: members[source] for target, source in self.targets.items()})
        for group, values in self.scalars().items():
            members[group] = [{name: torch.tensor(value) for name, value in values.items()} for _ in models]
        if self.normalizer is not None:
            members[GROUP] = self.normalizer.members()
        return members

    def _make_normalizer(self) -> ObservationNormalizer | None:
        if not self.settings.normalize_observations:
            return None
        obs_dim = self.model.obs_dim
        require(isinstance(obs_dim, int), "normalize_observations", "false for images")
        # Statistics that run along know too little at first to be trusted far; those of a data set know it all.
        limit = math.inf if self.offline else OBSERVATION_LIMIT
        return ObservationNormalizer(len(self.seeds), int(obs_dim), limit, running=not self.offline)  # type: ignore[arg-type]

    def _tie_model(self) -> None:
        """The first seed's model shares the engine's memory, so it is always up to date."""
        first = self.engine.seed_groups(0)
        for group, module in self.modules(self.model).items():
            for name, parameter in module.named_parameters():
                parameter.data = first[group][name]

    def _check_no_buffers(self) -> None:
        for name, _ in self.model.named_buffers():
            raise ValueError(f"model must be free of buffers (pass constants as arguments), got buffer {name!r}")
