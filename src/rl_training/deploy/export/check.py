"""Compares an exported policy with its agent on random observations, and measures the time of one prediction."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.overrides import TorchFunctionMode

from rl_training.core.checks import UserError
from rl_training.deploy.export.formats import Run
from rl_training.deploy.export.policy import STATE, Policy
from rl_training.envs.tensor_codecs import action_difference, chosen_elements, first_observation

MIN_OBSERVATIONS = 1000
BATCHES = (1, 1, 1, 1, *(100,) * 10)  # rows of each compared batch; a single observation is another path of a runtime
TOLERANCE = 1e-5  # of actions and states: absolute, and relative to the range of an action beyond 1
TIMED_CALLS, TIMED_ROUNDS = 40, 5
Array = NDArray[Any]


@dataclass(frozen=True)
class Check:
    """The result of a comparison."""

    observations: int
    max_difference: float  # of numbers; 0 where actions are choices
    ties: int  # rows whose actions differ, with values that are equal within the tolerance

    def to_dict(self) -> dict[str, Any]:
        return {
            "observations": self.observations,
            "max_difference": self.max_difference,
            "difference": "absolute; of an action with half a range above 1, or unbounded and above 1, divided by it",
            "ties": self.ties,
            "tolerance": TOLERANCE,
        }


def check_policy(run: Run, policy: Policy, what: str) -> Check:
    """Compare the exported policy with `Agent.predict`, or raise an error; a memory's state is carried along."""
    agent, rng = policy.agent[0], np.random.default_rng(0)
    largest, ties, states = 0.0, 0, dict[int, dict[str, Array]]()
    for rows in BATCHES:
        arrays, given = policy.sample(rng, rows)
        state = states.get(rows, {})
        arrays |= {STATE + name: one for name, one in state.items()}
        found = run(arrays)
        expected, states[rows] = agent.predict(**given, state=state, seed_index=policy.seed_index)
        right = [expected, *(states[rows][name] for name in policy.states)]
        for name, one, other in zip(policy.output_names, found, right, strict=True):
            if one.shape != other.shape or one.dtype != other.dtype:
                shapes = f"{one.dtype} {one.shape}, not {other.dtype} {other.shape}"
                raise UserError(f"{what}: the exported policy's {name} is {shapes}")
        difference, wrong = action_difference(agent.action, found[0], expected)
        largest = max(largest, difference, *map(_largest_difference, found[1:], right[1:]))
        if len(wrong):
            _check_ties(policy, {name: one[wrong] for name, one in arrays.items()}, found[0][wrong], what)
            ties += len(wrong)
    if not largest <= TOLERANCE:
        raise UserError(f"{what}: the exported policy differs from the agent by {largest:.3g}, more than {TOLERANCE:g}")
    return Check(sum(BATCHES), largest, ties)


def _largest_difference(found: Array, expected: Array) -> float:
    """The largest difference of two arrays; infinite where one is not a number, which no comparison exceeds."""
    largest = float(np.abs(found - expected).max(initial=0))
    return math.inf if math.isnan(largest) else largest


def _check_ties(policy: Policy, arrays: dict[str, Array], actions: Array, what: str) -> None:
    """Reject rows whose action is not as good as the agent's, within the tolerance."""
    with _Scores() as scores, torch.no_grad():
        policy(*(torch.from_numpy(arrays[one.name]) for one in policy.inputs))
    if scores.found is not None:
        values = scores.found.double().numpy()
        values = values.reshape(len(actions), -1, values.shape[-1])
        chosen = chosen_elements(policy.agent[0].action, actions)
        if chosen.shape == values.shape[:2]:
            best, taken = values.max(-1), np.take_along_axis(values, chosen[..., None], -1)[..., 0]
            if (best - taken <= TOLERANCE * np.maximum(1, np.abs(best))).all():
                return
    raise UserError(
        f"{what}: the exported policy chooses another action than the agent for {len(actions)} observations"
    )


class _Scores(TorchFunctionMode):
    """Records the values among which the newest argmax chose."""

    found: Tensor | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") == "argmax":
            self.found = args[0]
        return func(*args, **(kwargs or {}))


def measured_latency(run: Run, policy: Policy) -> dict[str, float]:
    """Microseconds for one observation, of the exported policy and of `predict`: medians of a few rounds."""
    return {name: round(median(found), 1) for name, found in latency_rounds(run, policy, TIMED_ROUNDS).items()}


def latency_rounds(run: Run, policy: Policy, rounds: int) -> dict[str, list[float]]:
    """Microseconds for one observation in each round, of the exported policy and of `predict` by turns."""
    agent = policy.agent[0]
    arrays, given = policy.sample(np.random.default_rng(1), 1)
    single = {name: first_observation(one) for name, one in given.items()}
    state = {name: arrays[STATE + name] for name in policy.states}
    options = {**single, "seed_index": policy.seed_index, **({"state": state} if state else {})}
    calls: dict[str, Callable[[], Any]] = {"exported": lambda: run(arrays), "predict": lambda: agent.predict(**options)}
    times: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(TIMED_CALLS):
                call()
            times[name].append((time.perf_counter() - start) / TIMED_CALLS * 1e6)
    return times
