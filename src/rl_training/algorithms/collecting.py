"""What collecting data carries from step to step: the state of exploration, and running returns that scale rewards."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from rl_training.algorithms.normalizer import ObservationNormalizer
from rl_training.engine.engine import RUNNING, Engine
from rl_training.engine.networks import BUFFERS
from rl_training.tensors.state import check_shapes

REWARD_SCALE = "reward_scale"  # the factor of rewards among the numbers in `nets.running`
OPEN = "open."  # of an environment: the prefix of its tensors in a state
RETURNS = "returns"


class RewardScaler:
    """Statistics of the running discounted returns of each seed, which grow by collecting alone.

    Rewards are divided by the returns' standard deviation, or by more where the largest return would exceed `limit`.
    """

    def __init__(self, seeds: int, gamma: float, limit: float) -> None:
        self.gamma, self.limit = gamma, limit
        self.statistics = ObservationNormalizer(seeds, 1, math.inf)
        self.largest = torch.zeros(seeds, dtype=torch.float64)  # of the absolute returns

    def observe(self, returns: Tensor) -> Tensor:
        """The factor of each seed's rewards, after new running returns (seeds, rows) in float64."""
        self.largest = torch.maximum(self.largest.to(returns.device, non_blocking=True), returns.abs().amax(1))
        deviation = self.statistics.observe(returns.unsqueeze(-1))["scale"].squeeze(-1)
        return torch.minimum(deviation, self.limit / self.largest)  # at a largest return of 0, the deviation's

    def state(self) -> dict[str, Tensor]:
        own = {f"reward_{name}": tensor for name, tensor in self.statistics.state().items()}
        return {**own, "reward_largest": self.largest.clone()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        check_shapes(state, self.state(), "learner")
        self.statistics.load({name: state[f"reward_{name}"] for name in self.statistics.state()})
        if not (state["reward_largest"] >= 0).all():
            raise ValueError("reward_largest must be >= 0")
        self.largest = state["reward_largest"].cpu().clone()


class Collecting:
    """The collecting of one learner; `start` gives it the number of environments per seed."""

    def __init__(self, engine: Engine, scaler: RewardScaler | None) -> None:
        self.engine, self.scaler = engine, scaler
        self.explore_state: dict[str, Tensor] = {}  # (seeds, rows, ...), the last argument of `explore`
        self.returns: Tensor | None = None  # (seeds, rows): discounted, of the open episodes

    def start(self, rows: int, explore_state: Callable[[int], dict[str, Tensor]]) -> None:
        """Allocate the state of `rows` environments per seed."""
        self.explore_state = {name: one.clone() for name, one in explore_state(rows).items()}
        if self.scaler is not None:
            self.returns = torch.zeros(len(self.engine.seeds), rows, dtype=torch.float64)

    def observe(self, rewards: Tensor, terminated: Tensor, truncated: Tensor) -> None:
        """Update the factor of rewards with those of a step; all (seeds, rows)."""
        if self.scaler is not None and self.returns is not None:
            returns = self.scaler.gamma * self.returns.to(rewards.device, non_blocking=True) + rewards
            self.engine.set_group(BUFFERS + RUNNING, {REWARD_SCALE: self.scaler.observe(returns)})
            self.returns = torch.where(terminated | truncated, 0.0, returns)

    def lose(self, rows: Sequence[int]) -> None:
        """Forget the open returns of episodes that could not be restored; rows count over all seeds."""
        if self.returns is not None:
            self.returns.view(-1)[list(rows)] = 0.0

    # --- state -----------------------------------------------------------------------------------------------------
    def state(self) -> dict[str, Tensor]:
        found = {OPEN + name: tensor for name, tensor in self._open().items()}
        return found if self.scaler is None else {**found, **self.scaler.state()}

    def load(self, state: dict[str, Tensor]) -> None:
        """Take what belongs here out of a learner's `state`; without environments, theirs is not needed."""
        if self.scaler is not None:
            self.scaler.load({name: state.pop(name) for name in self.scaler.state()})
        given = {name.removeprefix(OPEN): state.pop(name) for name in list(state) if name.startswith(OPEN)}
        own = self._open()
        if own and given.keys() != own.keys():
            odd = ", ".join(sorted(given.keys() ^ own.keys()))
            raise ValueError(f"state does not fit this learner: {OPEN}{odd}")
        check_shapes(given if own else {}, own, "learner")
        for name, tensor in own.items():
            tensor.copy_(given[name])

    def _open(self) -> dict[str, Tensor]:
        return {**self.explore_state, **({} if self.returns is None else {RETURNS: self.returns})}
