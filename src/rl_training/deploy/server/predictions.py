"""Predictions of one agent for requests: what is answered, without how it travels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from rl_training.deploy.export.contract import describe_policy
from rl_training.deploy.export.policy import Policy
from rl_training.deploy.server.bodies import BadRequest, read_request, write_answer
from rl_training.envs.spaces.trees import tree
from rl_training.run.agent import Agent


@dataclass(frozen=True)
class Limits:
    """The largest request."""

    body_bytes: int = 8 * 2**20
    rows: int = 4096


class Predictions:
    """An agent's predictions, all by one thread: torch has a pool of threads and memory for each one that calls it."""

    def __init__(self, agent: Agent, seed_index: int = 0, limits: Limits | None = None) -> None:
        self.agent, self.seed_index, self.limits = agent, seed_index, limits or Limits()
        policy = Policy(agent, seed_index)
        self.contract = describe_policy(policy)
        self.recurrent = bool(policy.states)
        self.example = _example(policy)
        self.answered = 0
        self._worker = ThreadPoolExecutor(1, "predictions")

    def answer(self, kind: str, body: bytes) -> bytes:
        """The answer to a request for predictions."""
        given = read_request(kind, body, self.limits.body_bytes)
        if "entries" in given:
            given["obs"] = self._nested(given.pop("entries"))
        if self.recurrent:
            given["state"] = {} if given.get("state") is None else given["state"]
        elif given.pop("state", None):
            raise BadRequest("state must be left out: the policy has no memory")
        rows = self._rows(given["obs"])
        if rows > self.limits.rows:
            raise BadRequest(f"a batch must have at most {self.limits.rows} observations, got {rows}", 413)
        obs = given.pop("obs")
        if given.get("action_mask") is None:
            given.pop("action_mask", None)
        found = self._worker.submit(self._predict, obs, given).result()
        action, state = found if self.recurrent else (found, None)
        if state is not None and not all(np.isfinite(one).all() for one in state.values()):
            raise BadRequest("the observation is too large: the state that follows is not finite")
        return write_answer(kind, action, state)

    def close(self) -> None:
        """Cancel the predictions that wait; one that is computed ends by itself."""
        self._worker.shutdown(wait=False, cancel_futures=True)

    def _predict(self, obs: Any, options: Mapping[str, Any]) -> Any:
        found = self.agent.predict(obs, **options, seed_index=self.seed_index)
        self.answered += 1
        return found

    def _nested(self, entries: Mapping[str, Any]) -> Any:
        """A Dict or Tuple observation from its arrays by name."""
        leaves = {leaf.name: leaf.path for leaf in self.agent.observation.leaves}
        if entries.keys() != leaves.keys() or not self.agent.observation.is_tree:
            names = ", ".join(f"obs.{name}" for name in leaves) if self.agent.observation.is_tree else "obs"
            raise BadRequest(f"the arrays of an observation must be {names}")
        return tree(self.agent.observation.space, (), {leaves[name]: one for name, one in entries.items()})

    def _rows(self, obs: Any) -> int:
        """The number of observations, before they are read; 1 where that cannot be told."""
        leaf = self.agent.observation.leaves[0]
        try:
            size = np.asarray(leaf.value_in(obs)).size
        except (TypeError, LookupError, ValueError):
            return 1  # `predict` says what is wrong
        return math.ceil(size / max(1, math.prod(leaf.space.shape or ())))


def _example(policy: Policy) -> dict[str, Any]:
    """A request for the page to start from, with numbers of few digits."""
    given = policy.sample(np.random.default_rng(0), 1)[1]

    def short(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: short(one) for key, one in value.items()}
        if isinstance(value, tuple):
            return [short(one) for one in value]
        first = np.asarray(value)[0]
        # Of 64 bits: 0.1 of 32 bits is written with sixteen digits.
        return (np.round(first.astype(np.float64), 2) if first.dtype.kind == "f" else first.astype(np.int64)).tolist()

    example = {name: short(one) for name, one in given.items()}
    return {**example, "state": {}} if policy.states else example
