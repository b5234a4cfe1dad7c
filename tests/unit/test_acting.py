"""Acting: tensors in, tensors out, the same for any number of seeds and every way to run them."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from seed_harness import make_learner, together_shape
from torch import Tensor

from rl_training.algorithms.td3 import TD3Networks
from rl_training.core.specs import continuous, discrete
from rl_training.engine.acting import Act

SEEDS = (3, 1)


def observations(algo: str, seeds: int, rows: int = 4) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(seeds, rows, *together_shape(algo).observation.shape, generator=generator)


@pytest.mark.parametrize("algo", ["dqn", "sac", "td3", "iql"])
def test_actions_are_tensors_in_the_library_s_units(algo: str) -> None:
    learner, obs = make_learner(algo, SEEDS), observations(algo, 2)
    acts = [learner.act_greedy(obs), learner.act_explore(obs, 5, 0.5), learner.act_random(5, 4)]
    for act in acts:
        assert isinstance(act, Act) and act.extras == {} and act.state == {}
        assert act.action.shape[:2] == (2, 4) and act.action.dtype == acts[0].action.dtype
        assert not act.action.requires_grad
        assert learner.action_spec.contains(act.action) and act.action.abs().max() <= 1


@pytest.mark.parametrize("seeds", [(0,), SEEDS], ids=["one seed", "two seeds"])
def test_a_policy_gone_bad_acts_zero(seeds: tuple[int, ...]) -> None:
    learner, obs = make_learner("sac", seeds), observations("sac", len(seeds))
    learner.engine.groups()["actor"]["net.layers.0.bias"][-1].fill_(math.nan)
    actions = learner.act_greedy(obs).action
    assert not actions[-1].any() and (len(seeds) == 1 or actions[0].all())


@pytest.mark.parametrize(
    ("seeds", "looped", "compiled"),
    [
        ((0,), False, False), (SEEDS, False, False), (SEEDS, True, False), (SEEDS, False, True),
        pytest.param((0,), False, True, marks=pytest.mark.sweep),
        pytest.param(SEEDS, True, True, marks=pytest.mark.sweep),
    ],
)  # fmt: skip
def test_what_a_policy_returns_beside_actions_has_the_seed_axis(
    seeds: tuple[int, ...], looped: bool, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = make_learner("td3", seeds, compiled=compiled, backend="aot_eager")
    learner.engine.looped = looped

    def explore(nets: TD3Networks, obs: Tensor, noise: Tensor, amount: Tensor) -> Act:
        action = nets.actor(obs) + amount * noise
        return Act(action, {"value": nets.critic(obs, action)[0]}, {"memory": obs.mean(-1)})

    monkeypatch.setattr(learner, "explore", explore)
    obs = observations("td3", len(seeds))
    for step in (0, 1):
        act = learner.act_explore(obs, step, 0.5)
        assert act.extras["value"].shape == act.state["memory"].shape == (len(seeds), 4)
        torch.testing.assert_close(act.state["memory"], obs.mean(-1))
        for index in range(len(seeds)):
            expected = learner.nets(index).critic(obs[index], act.action[index])[0]
            torch.testing.assert_close(act.extras["value"][index], expected)


def test_acting_never_copies_to_the_host() -> None:
    """As on a GPU: nothing may leave torch on the way from observations to actions."""
    from test_seeds import refusing_to_wait

    learner, obs = make_learner("sac", SEEDS), observations("sac", 2)
    refusing_to_wait(lambda: learner.act_greedy(obs))
    refusing_to_wait(lambda: learner.act_explore(obs, 3, 0.1))


@pytest.mark.parametrize("spec", [continuous(2), discrete(5)], ids=["continuous", "discrete"])
def test_uniform_numbers_become_uniform_actions(spec: Any) -> None:
    numbers = torch.rand(20_000, *spec.shape, generator=torch.Generator().manual_seed(0))
    numbers.flatten()[:2] = torch.tensor([0.0, 1 - 2**-25])  # both ends
    actions = spec.from_uniforms(numbers)
    if spec.choices:
        assert actions.dtype == torch.int64 and (actions.bincount(minlength=5) / 20_000 - 0.2).abs().max() < 0.015
        assert (actions.min(), actions.max()) == (0, 4)
    else:
        assert actions.shape == (20_000, 2) and actions.min() == -1 and actions.max() <= 1
        assert actions.mean().abs() < 0.02 and (actions.var() - 1 / 3).abs() < 0.01
