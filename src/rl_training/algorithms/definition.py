"""The interface of an algorithm: its settings, networks, losses and policies. `Learner` does everything else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

from torch import Tensor, nn

from rl_training.config.settings import ReplaySettings, TrainSettings
from rl_training.core.d4rl import domain
from rl_training.core.specs import ArraySpec, EnvSpec, Kind, action_spec
from rl_training.engine.acting import Act
from rl_training.engine.networks import Networks
from rl_training.engine.phases import NoiseSpec, Phase
from rl_training.engine.targets import TargetUpdate

ANY_OBSERVATION: tuple[Kind, ...] = ("vector", "image", "mixed")


class Algorithm:
    """The mathematics of an algorithm for one seed, and its properties."""

    name: ClassVar[str]
    title: ClassVar[str]
    observations: ClassVar[tuple[Kind, ...]] = ("vector",)  # the kinds it supports
    actions: ClassVar[tuple[Kind, ...]] = ("continuous",)
    takes_masks: ClassVar[bool] = False  # uses action masks, where an environment gives them
    takes_unbounded_actions: ClassVar[bool] = False  # in the units of the environment
    offline: ClassVar[bool] = False  # trains on a dataset; its settings are `OfflineSettings`
    learns_online: ClassVar[bool] = True  # can be trained on transitions of its own policy
    settings_type: ClassVar[type[TrainSettings]] = ReplaySettings
    networks_type: ClassVar[type[Networks]] = Networks  # the view of the parameters for losses and policies
    by_domain: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # D4RL's domain -> defaults
    settings: Any  # of `settings_type`; a subclass annotates its own
    model: Any  # the first seed's, as returned by `build_model`

    @classmethod
    def build_model(cls, spec: EnvSpec, settings: Any) -> nn.Module:
        """One seed's networks, freshly initialised."""
        raise NotImplementedError

    @classmethod
    def supports_actions(cls, spec: EnvSpec) -> bool:
        return spec.action.kind in cls.actions and (spec.action.bounded or cls.takes_unbounded_actions)

    @classmethod
    def supports(cls, spec: EnvSpec) -> bool:
        kind, masks = spec.observation.without_mask().kind, spec.observation.mask > 0
        return cls.supports_actions(spec) and kind in cls.observations and (cls.takes_masks or not masks)

    @classmethod
    def drop_replaced(cls, given: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
        """The settings `given` in a file, without those that conflict with the overrides `over`."""
        return dict(given)

    @classmethod
    def task_settings(cls, env_id: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """The `given` settings, completed with the values of the algorithm's authors for this task."""
        return {**cls.by_domain.get(domain(env_id) or "", {}), **given}

    def modules(self, model: Any) -> dict[str, nn.Module]:
        """The networks, by the name of their parameter group."""
        raise NotImplementedError

    def scalars(self) -> dict[str, dict[str, float]]:
        """Groups that are not networks, such as a temperature."""
        return {}

    def running(self) -> dict[str, Tensor]:
        """Numbers of a seed that losses read in `nets.running` and change, such as a rate that adapts."""
        return {}

    run_only: ClassVar[tuple[str, ...]] = ()  # those of them that belong to the run and not to its agents

    def phases(self) -> Sequence[Phase]:
        """The losses of one update, in order."""
        raise NotImplementedError

    def target_update(self) -> TargetUpdate | None:
        """How target groups, `target_<group>`, follow their groups; None: there are none."""
        return None

    def noise(self, batch_size: int) -> dict[str, NoiseSpec]:
        """The random numbers one update needs."""
        return {}

    def greedy(self, nets: Any, obs: Tensor) -> Act:
        """The greedy actions, used by evaluation and `predict`."""
        raise NotImplementedError

    def explore(self, nets: Any, obs: Tensor, noise: Tensor, amount: Tensor) -> Act:
        """Actions for collecting data, with random numbers of the spec `explore_noise`."""
        raise NotImplementedError

    def explore_noise(self, rows: int) -> NoiseSpec:
        """The random numbers for `rows` exploring actions of one seed."""
        return NoiseSpec(*self.action_spec.exploration_noise(rows))

    def initial_state(self, rows: int) -> dict[str, Tensor]:
        """A recurrent policy's state (rows, ...) at the start of an episode; empty: the policy has none.

        `greedy` and `explore` of a recurrent policy get it as their last argument and return the next one in `Act`.
        """
        return {}

    def explore_state(self, rows: int) -> dict[str, Tensor]:
        """What exploration carries from step to step (rows, ...), such as noise that is held; empty: nothing.

        `explore` then gets it as its last argument and returns the next one in `Act`.
        """
        return {}

    def reward_limit(self) -> float | None:
        """The largest return after scaling, for losses that multiply rewards by `nets.running["reward_scale"]`.

        The factor follows the running returns of collection; None: rewards are as they are.
        """
        return None

    def exploration(self, progress: float) -> float:
        """The amount of exploration after this share of the run."""
        return 1.0

    @cached_property
    def action_spec(self) -> ArraySpec:
        return action_spec(self.actions[0], self.action_dim)

    @cached_property
    def action_dim(self) -> int:
        return int(self.model.action_dim)

    def rate(self, progress: float) -> float:
        """The learning rate of phases without their own."""
        return float(self.settings.rate(progress))
