"""Prioritised replay: the sum tree against a plain list of numbers, and what it makes of an update."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rl_training.algorithms import DQN
from rl_training.core.specs import EnvSpec, discrete, vector
from rl_training.data.replay.buffer import ReplayBuffer
from rl_training.data.replay.priorities import MAX_PRIORITY, SCALE, Priorities
from rl_training.models import MLPQNetwork


def tree(priorities: list[list[int]], **options: float) -> Priorities:
    found = Priorities(len(priorities[0]), len(priorities), **{"alpha": 1.0, **options})
    rows = torch.arange(len(priorities[0]))
    found.load(rows, {"priorities": torch.tensor(priorities), "highest": torch.tensor([[SCALE]] * len(priorities))})
    return found


def slow_draw(priorities: list[int], uniforms: list[float]) -> list[int]:
    """Walk along the priorities laid end to end."""
    total, rows = sum(priorities), []
    for number, uniform in enumerate(uniforms):
        point, row = int((number + uniform) / len(uniforms) * total), 0
        while point >= priorities[row]:
            point -= priorities[row]
            row += 1
        rows.append(row)
    return rows


def check_sums(priorities: Priorities) -> None:
    for tree in priorities.tree.view(priorities.seeds, -1).tolist():
        assert all(tree[node] == tree[2 * node] + tree[2 * node + 1] for node in range(1, len(tree) // 2))


def test_a_draw_by_hand() -> None:
    """Priorities 1, 0, 3, 4 of 8; four strata of 2. Points 0, 2, 5, 7 (u = 0, 0, .5, .5): rows 0, 2, 3, 3.

    Weights with beta 0.5: the smallest priority drawn is 1, so 1, (1/3)^0.5, (1/4)^0.5, (1/4)^0.5.
    """
    priorities = tree([[1, 0, 3, 4]])
    priorities.set_beta(0.5)
    rows, weights = priorities.draw(torch.tensor([[0.0, 0.0, 0.5, 0.5]], dtype=torch.float64))
    assert rows.tolist() == [[0, 2, 3, 3]]
    assert weights.tolist()[0] == pytest.approx([1.0, 3**-0.5, 0.5, 0.5])


@pytest.mark.parametrize("rows", [1, 2, 5, 32, 33, 3000])
def test_draws_follow_the_priorities(rows: int) -> None:
    rng = np.random.default_rng(rows)
    values = rng.integers(0, 50, size=(2, rows))
    values[:, rng.integers(rows)] = 7  # never all zero
    uniforms = rng.random((2, 40))
    found, _ = tree(values.tolist()).draw(torch.from_numpy(uniforms))
    for seed in range(2):
        assert found[seed].tolist() == slow_draw(values[seed].tolist(), uniforms[seed].tolist())


def test_what_is_learned_is_what_a_new_tree_would_hold() -> None:
    """Many rounds of new rows and learned errors; the sums stay exact."""
    rng, rows = np.random.default_rng(0), 1500
    priorities, plain = Priorities(rows, 2, alpha=0.6), np.zeros((2, rows), np.int64)
    highest = np.full(2, SCALE)
    for _ in range(60):
        start = int(rng.integers(rows - 3))
        priorities.add(start, 3)
        plain[:, start : start + 3] = highest[:, None]
        drawn, _ = priorities.draw(torch.from_numpy(rng.random((2, 8))))
        errors = rng.normal(size=(2, 8)).astype(np.float32) * 3
        priorities.update(drawn, torch.from_numpy(errors))
        for seed in range(2):
            new: dict[int, int] = {}
            for row, error in zip(drawn[seed].tolist(), errors[seed], strict=True):
                value = int(np.clip(np.exp(0.6 * np.log(abs(float(error)) + 1e-6)) * SCALE, 1, MAX_PRIORITY))
                new[row] = max(new.get(row, 0), value)
                highest[seed] = max(highest[seed], value)
            for row, value in new.items():
                plain[seed, row] = value
        assert np.abs(priorities.leaves.numpy() - plain).max() <= 1  # the last bit of a logarithm
        plain = priorities.leaves.numpy().copy()
        highest = priorities.highest.numpy()[:, 0].copy()
        check_sums(priorities)


def test_state_comes_back_in_another_ring() -> None:
    """An extended run has a larger ring: the same transitions stand in other rows."""
    small, large = tree([[3, 1, 4, 1]]), Priorities(100, 1, alpha=1.0)
    order = torch.tensor([2, 3, 0, 1])  # oldest first
    small.highest.fill_(77)
    large.load(torch.arange(4) + 50, small.state(order))
    assert large.leaves[0, 50:54].tolist() == [4, 1, 3, 1] and large.leaves.sum() == 9
    assert large.highest.item() == 77
    check_sums(large)


def test_an_error_without_bound_or_number_keeps_the_tree_whole() -> None:
    priorities = tree([[5, 5, 5, 5]])
    priorities.update(torch.tensor([[0, 1, 2]]), torch.tensor([[np.inf, np.nan, 0.0]]))
    assert priorities.leaves[0].tolist() == [MAX_PRIORITY, SCALE, 1, 5]
    check_sums(priorities)


def replay_of_two(alpha: float = 1.0) -> ReplayBuffer:
    """Two transitions that end at once: from state 0 with reward 0, from state 1 with reward 8."""
    replay = ReplayBuffer(EnvSpec(vector(2), discrete(2)), capacity=2, num_envs=1, seeds=1, priority_alpha=alpha)
    for number in range(2):
        replay.add(
            obs=np.eye(2, dtype=np.float32)[None, number : number + 1],
            actions=np.zeros((1, 1), np.int64),
            rewards=np.full((1, 1), 8.0 * number, np.float32),
            next_obs=np.zeros((1, 1, 2), np.float32),
            terminated=np.ones((1, 1), bool),
            truncated=np.zeros((1, 1), bool),
        )
    return replay


def test_an_update_makes_the_errors_the_priorities_and_weighs_the_loss() -> None:
    """All values are 0, so the errors are 0 and 8. First both rows are as likely: weights 1, loss (0 + 7.5) / 2.

    Then only row 1 is drawn in practice: errors 0 + 1e-6 against 8.
    """
    network = MLPQNetwork(2, 2, ())
    for parameter in network.parameters():
        parameter.data.zero_()
    learner = DQN(q_network=network, learning_rate=1e-12, batch_size=2, prioritized=True, prioritized_alpha=1.0)
    replay = replay_of_two()
    learner.train(replay, 1, 1)
    assert learner.engine.metrics.newest()["loss"] == pytest.approx(3.75)
    assert replay.priorities is not None
    assert replay.priorities.leaves[0].tolist() == [1, 8 * SCALE + 1]
    learner.train(replay, 1, 2)
    assert learner.engine.metrics.newest()["loss"] == pytest.approx(7.5)


def test_beta_moves_to_one_over_the_run() -> None:
    learner = DQN(q_network=MLPQNetwork(2, 2, ()), batch_size=2, prioritized=True, prioritized_beta_start=0.4)
    replay = replay_of_two()
    assert replay.priorities is not None
    for progress, beta in ((0.0, 0.4), (0.5, 0.7), (1.0, 1.0)):
        learner.set_progress(progress)
        learner.train(replay, 1, 1)
        assert replay.priorities.beta.item() == pytest.approx(beta)


def test_new_transitions_are_as_likely_as_the_likeliest() -> None:
    replay = replay_of_two()
    assert replay.priorities is not None
    replay.priorities.update(torch.tensor([[1]]), torch.tensor([[4.0]]))
    replay.add(**{name: value[:, :1].numpy() for name, value in replay.storage.items()})
    assert replay.priorities.leaves[0].tolist() == [4 * SCALE + 1, 4 * SCALE + 1]
