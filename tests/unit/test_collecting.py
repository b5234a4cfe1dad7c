"""What collecting carries from step to step: held noise and the returns that scale rewards."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_quick_config, settings_of
from resume_harness import whole_and_cut

from rl_training.algorithms import FlashSAC
from rl_training.algorithms.collecting import RewardScaler
from rl_training.algorithms.flashsac import FlashSACSettings
from rl_training.checkpoint.read import load_checkpoint
from rl_training.core.specs import EnvSpec, continuous, vector
from rl_training.run.agent import load_agent
from rl_training.run.run import train

SMALL = {"hidden_sizes": (8,), "critic_hidden_sizes": (8,), "num_atoms": 11, "batch_size": 4}


def learner(seeds: tuple[int, ...] = (5,), rows: int = 2, **changes: Any) -> Any:
    settings = FlashSACSettings(**{**SMALL, **changes})
    made = FlashSAC.create(EnvSpec(vector(3), continuous(2)), settings, seeds)
    made.start_collecting(rows)
    return made


# --- rewards -----------------------------------------------------------------------------------------------------
def test_the_factor_of_rewards_by_hand() -> None:
    """Returns with gamma 0.5: 8, then 8/2 + 2 = 6, and after the end of the episode 4.

    After two: deviation 1, largest 8: limited to 5, the factor is 5/8. After three: variance of 8, 6, 4 is 8/3, whose
    root is 1.63: 5/8 is less than 1/1.63.
    """
    made = learner(rows=1, gamma=0.5)
    factors = []
    for reward, ended in ((8.0, False), (2.0, True), (4.0, False)):
        made.collecting.observe(torch.tensor([[reward]]), torch.tensor([[ended]]), torch.tensor([[False]]))
        factors.append(made.nets().running["reward_scale"].item())
    assert factors == pytest.approx([5 / 8, 5 / 8, min(5 / 8, (8 / 3) ** -0.5)])
    assert made.collecting.returns.tolist() == [[4.0]]
    state = made.state_dict()
    assert (state["reward_normalizer.count"].item(), state["reward_normalizer.mean"].item()) == (3, pytest.approx(6.0))
    assert state["reward_largest"].item() == 8.0


def test_the_deviation_counts_where_returns_are_small_beside_it() -> None:
    scaler = RewardScaler(1, 0.9, limit=5.0)
    scaler.observe(torch.tensor([[-2.0]], dtype=torch.float64))
    factor = scaler.observe(torch.tensor([[2.0]], dtype=torch.float64))
    assert factor.item() == pytest.approx(0.5)  # the deviation is 2; the limit alone would give 5/2


def test_rows_and_seeds_have_returns_of_their_own() -> None:
    both, alone = learner((4, 5)), learner((5,))
    rng = np.random.default_rng(0)
    for _ in range(20):
        rewards = torch.from_numpy(rng.standard_normal((2, 2)).astype(np.float32))
        terminated, truncated = (torch.from_numpy(rng.random((2, 2)) < 0.2) for _ in range(2))
        both.collecting.observe(rewards, terminated, truncated)
        alone.collecting.observe(rewards[1:], terminated[1:], truncated[1:])
    assert torch.equal(both.nets(1).running["reward_scale"], alone.nets().running["reward_scale"])
    assert torch.equal(both.collecting.returns[1:], alone.collecting.returns)
    both.collecting.observe(torch.ones(2, 2), torch.zeros(2, 2).bool(), torch.zeros(2, 2).bool())
    both.collecting.lose([])
    assert both.collecting.returns.all()
    both.collecting.lose([1, 2])
    assert (both.collecting.returns != 0).tolist() == [[True, False], [False, True]]


def test_without_it_rewards_are_as_they_are() -> None:
    made = learner(normalize_rewards=False)
    made.collecting.observe(torch.ones(1, 2), torch.zeros(1, 2).bool(), torch.zeros(1, 2).bool())
    assert not any("reward" in name or "returns" in name for name in made.state_dict())


def test_agents_have_no_statistics_of_rewards() -> None:
    assert not any("reward" in name or "open" in name for name in learner().seed_parameters(0))


def test_the_statistics_of_rewards_are_checked_when_loaded() -> None:
    made, state = learner(), learner().state_dict()
    for name, value, message in (
        ("reward_largest", torch.tensor([-1.0], dtype=torch.float64), "reward_largest must be >= 0"),
        ("reward_normalizer.count", torch.tensor(-1), "must be >= 0"),
        ("open.held", torch.zeros(1, 3, dtype=torch.int64), "held is torch.int64"),
    ):
        with pytest.raises(ValueError, match=message):
            made.load_state_dict({**state, name: value})
    with pytest.raises(ValueError, match=r"does not fit this learner: open\.held"):
        made.load_state_dict({name: one for name, one in state.items() if name != "open.held"})


# --- noise -------------------------------------------------------------------------------------------------------
def test_noise_is_held_until_its_steps_are_over() -> None:
    """Row 0 draws noise for two steps, row 1 for one step; then row 0 keeps its noise and row 1 draws anew."""
    made = learner(noise_steps=3)
    longer = made.longer.tolist()  # above the first: two steps or three; above both: three
    shares = [0.5 * math.erfc(-z / math.sqrt(2)) for z in longer]
    total = 1 + 1 / 4 + 1 / 9
    assert shares == pytest.approx([1 / total, (1 + 1 / 4) / total], abs=1e-6)
    between = sum(longer) / 2
    obs, amount, nets = torch.zeros(2, 3), torch.ones(1), made.nets()
    state = made.explore_state(2)
    first = torch.tensor([[0.1, 0.2, between], [0.3, 0.4, -9.0]])
    act = made.explore(nets, obs, first, amount, state)
    assert torch.equal(act.state["noise"], first[:, :2]) and act.state["held"].tolist() == [1, 0]
    second = torch.tensor([[0.5, 0.6, 9.0], [0.7, 0.8, 9.0]])
    following = made.explore(nets, obs, second, amount, act.state)
    assert torch.equal(following.state["noise"], torch.stack([first[0, :2], second[1, :2]]))
    assert following.state["held"].tolist() == [0, 2]
    expected = nets.policy(obs, following.state["noise"])[0]
    assert torch.equal(following.action, expected) and torch.equal(following.action[0], act.action[0])


def test_noise_is_held_as_often_as_the_distribution_says() -> None:
    made = learner(rows=1)
    normal = torch.randn(200_000, generator=torch.Generator().manual_seed(0))
    steps = 1 + (normal.unsqueeze(-1) > made.longer).sum(-1)
    weights = torch.arange(1.0, 17.0) ** -2
    counts = torch.bincount(steps, minlength=17)[1:] / len(steps)
    torch.testing.assert_close(counts, weights / weights.sum(), atol=4e-3, rtol=0)
    assert steps.max() == 16


def test_one_step_is_new_noise_at_every_step() -> None:
    made = learner(noise_steps=1)
    act = made.act_collect(torch.zeros(1, 2, 3), 7, 0.0)
    assert made.collecting.explore_state["held"].tolist() == [[0, 0]]
    assert not torch.equal(made.act_collect(torch.zeros(1, 2, 3), 8, 0.0).action, act.action)


def test_exploring_apart_from_collection_holds_nothing() -> None:
    made = learner(noise_exponent=0.01)
    obs = torch.zeros(1, 2, 3)
    made.act_collect(obs, 7, 0.0)
    before = {name: one.clone() for name, one in made.collecting.explore_state.items()}
    acts = [made.act_explore(obs, step, 0.0, stream="eval_explore") for step in (1, 2)]
    assert not torch.equal(acts[0].action, acts[1].action) and not acts[0].state
    assert all(torch.equal(one, before[name]) for name, one in made.collecting.explore_state.items())


def test_a_run_cut_while_noise_is_held_is_the_whole_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Noise is held long, so that it is at the cut; what is saved of it and of the open returns is needed."""
    settings = settings_of("flashsac", {"noise_exponent": 0.01, "noise_steps": 40, "learning_starts": 30})

    def start(callbacks: list[Any]) -> Any:
        config = make_quick_config("flashsac", Path("runs"), settings, num_envs=2, seeds=(3, 5), total_timesteps=60)
        return train(config, callbacks=callbacks, show_progress=False)

    held: list[torch.Tensor] = []

    def started(callbacks: list[Any]) -> Any:
        result = start(callbacks)
        tensors = load_checkpoint(result.checkpoint_path).tensors("learner.safetensors")
        held.append(tensors["open.held"])
        assert tensors["open.returns"].all() and tensors["open.noise"].shape == (2, 2, 1)
        agent = load_agent(result.run_dir)  # without environments: their state is not needed
        assert agent.predict(np.zeros(3), deterministic=False).shape == (1,)
        return result

    assert whole_and_cut(started, 40, tmp_path, monkeypatch) == []
    assert held[1].max() > 1


@pytest.mark.sweep
def test_compiled_collecting_holds_the_same_noise() -> None:
    eager, compiled = learner((4, 5), noise_exponent=0.01), learner((4, 5), noise_exponent=0.01)
    compiled.engine.compiled, compiled.engine.backend = True, "aot_eager"
    obs = torch.randn(2, 2, 3, generator=torch.Generator().manual_seed(0))
    for step in range(6):
        acts = [one.act_collect(obs, step, 0.0).action for one in (eager, compiled)]
        torch.testing.assert_close(*acts, atol=1e-6, rtol=1e-5)
    states = [one.collecting.explore_state for one in (eager, compiled)]
    assert torch.equal(states[0]["held"], states[1]["held"]) and states[0]["held"].max() > 0
