"""The dataset: what it takes, what it gives, and what ends a return."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from rl_training.core.checks import UserError
from rl_training.data import TransitionDataset, compute_discounted_returns_to_go

FIVE = {"obs", "actions", "rewards", "next_obs", "dones"}


def fields(rows: int = 4, **changes: Any) -> dict[str, Any]:
    """Row k is recognisable in every field."""
    number = np.arange(rows, dtype=np.float32)
    values = {
        "obs": np.stack([number, -number], 1),
        "actions": number[:, None] / 10,
        "rewards": number,
        "next_obs": np.stack([number + 1, -number - 1], 1),
        "dones": np.zeros(rows),
    }
    return {**values, **changes}


def test_a_sample_keeps_rows_together_and_has_exactly_the_five_keys() -> None:
    dataset = TransitionDataset(**fields(50))
    batch = dataset.sample(400)
    assert len(dataset) == 50 and set(batch) == FIVE
    number = batch["rewards"]
    assert len(number.unique()) > 40  # of 50 rows, drawn 400 times
    assert torch.equal(batch["obs"], torch.stack([number, -number], 1))
    assert torch.equal(batch["next_obs"], torch.stack([number + 1, -number - 1], 1))
    assert torch.equal(batch["actions"][:, 0], number / 10)
    assert {tensor.dtype for tensor in batch.values()} == {torch.float32}
    drawn = [dataset.sample(9, generator=torch.Generator().manual_seed(3))["rewards"] for _ in range(2)]
    assert torch.equal(*drawn)


def test_optional_fields_are_sampled_when_present() -> None:
    dataset = TransitionDataset(**fields(), next_actions=np.arange(4.0)[:, None]).with_discounted_returns_to_go(
        gamma=0.5
    )
    batch = dataset.sample(20, device="cpu")
    assert set(batch) == FIVE | {"next_actions", "returns_to_go"}
    assert torch.equal(batch["next_actions"][:, 0].float(), batch["rewards"])


@pytest.mark.parametrize(
    ("actions", "shape", "dtype"),
    [
        (np.zeros((4, 3), np.float64), (4, 3), torch.float64),
        (np.zeros((4, 1), np.float32), (4, 1), torch.float32),
        (np.zeros(4, np.float16), (4,), torch.float16),
        (np.zeros((4, 1), np.int32), (4,), torch.int64),
        ([0, 1, 0, 1], (4,), torch.int64),
    ],
)
def test_continuous_actions_keep_shape_and_dtype_and_choices_are_integers(actions, shape, dtype) -> None:
    kept = TransitionDataset(**fields(actions=actions)).actions
    assert (tuple(kept.shape), kept.dtype) == (shape, dtype)


def test_images_stay_bytes() -> None:
    images = np.full((4, 3, 8, 8), 255, np.uint8)
    batch = TransitionDataset(**fields(obs=images, next_obs=images)).sample(2)
    assert batch["obs"].dtype == batch["next_obs"].dtype == torch.uint8


def test_an_empty_set_can_be_built_but_not_sampled() -> None:
    empty = TransitionDataset(**{name: value[:0] for name, value in fields().items()})
    assert len(empty) == 0 and len(empty.with_discounted_returns_to_go(gamma=0.9).returns_to_go) == 0
    with pytest.raises(UserError, match="is empty"):
        empty.sample(1)
    with pytest.raises(UserError, match="batch_size must be >= 1, got 0"):
        TransitionDataset(**fields()).sample(0)


@pytest.mark.parametrize("name", ["obs", "actions", "rewards", "next_obs", "dones", "next_actions", "truncations"])
def test_unequal_lengths_are_refused_with_all_of_them(name: str) -> None:
    values = fields(next_actions=np.zeros((4, 1)), truncations=np.zeros(4))
    with pytest.raises(ValueError, match=rf"must have the same length, got .*{name} 3"):
        TransitionDataset(**{**values, name: values[name][:3]})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"next_obs": np.zeros((4, 5))}, r"obs and next_obs must have the same shape, got \(4, 2\) and \(4, 5\)"),
        ({"rewards": np.zeros((4, 2))}, r"rewards must be one number per row, got shape \(4, 2\)"),
        ({"dones": 1.0}, "a dataset holds arrays of numbers"),
        ({"obs": [["a"]] * 4}, "a dataset holds arrays of numbers"),
        ({"obs": np.zeros((4, 2), complex)}, "a dataset holds arrays of numbers"),
    ],
)
def test_odd_fields_are_refused(changes, message) -> None:
    with pytest.raises(UserError, match=message):
        TransitionDataset(**fields(**changes))


def test_from_dict_takes_dones_or_terminations_and_a_truncation_is_not_terminal() -> None:
    values = fields()
    del values["dones"]
    ends = {"terminations": [False, True, False, False], "truncations": [False, False, False, True]}
    assert TransitionDataset.from_dict({**values, **ends}).dones.tolist() == [0, 1, 0, 0]
    assert TransitionDataset.from_dict({**values, "dones": [0, 0, 1, 0]}).dones.tolist() == [0, 0, 1, 0]
    assert TransitionDataset.from_dict({**values, "terminations": [0, 0, 1, 0]}).truncations is None
    either = {"dones": [False, True, False, True], **ends}  # what some recorders mean by `dones`
    assert TransitionDataset.from_dict({**values, **either}).dones.tolist() == [0, 1, 0, 0]
    assert TransitionDataset.from_dict({**values, "dones": [0, 0, 1, 0], "terminations": None}).dones.sum() == 1
    with pytest.raises(UserError, match=r"a dataset needs rewards, dones \(or terminations\); got obs, actions"):
        TransitionDataset.from_dict({name: values[name] for name in ("obs", "actions", "next_obs")})


def test_returns_to_go_by_hand() -> None:
    # 3 + 0.5 * 4 = 5, 2 + 0.5 * 5 = 4.5; behind the terminal state at row 2 a new trajectory begins
    answer = compute_discounted_returns_to_go(rewards=[2, 3, 4, 8, 16], dones=[0, 0, 1, 0, 0], gamma=0.5)
    assert answer.tolist() == [4.5, 5.0, 4.0, 16.0, 16.0]
    cut = compute_discounted_returns_to_go(
        rewards=[2, 3, 4, 8, 16], dones=[0, 0, 1, 0, 0], gamma=0.5, truncations=[0, 1, 0, 1, 0]
    )
    assert cut.tolist() == [3.5, 3.0, 4.0, 8.0, 16.0]


def test_returns_to_go_against_the_plain_loop() -> None:
    rng = np.random.default_rng(0)
    for rows in (1, 2, 7, 300):
        rewards, ends = rng.normal(size=rows).astype(np.float32), rng.random(rows) < 0.1
        expected, after = np.zeros(rows), 0.0
        for row in reversed(range(rows)):
            after = float(rewards[row]) + (0.0 if ends[row] else 0.97 * after)
            expected[row] = after
        answer = compute_discounted_returns_to_go(rewards=rewards, dones=ends, gamma=0.97)
        np.testing.assert_allclose(answer.numpy(), expected, rtol=1e-6, atol=1e-6)


def test_the_reward_transform_is_a_copy_and_recomputes_returns() -> None:
    before = TransitionDataset(**fields(dones=[0, 0, 0, 1])).with_discounted_returns_to_go(gamma=1.0)
    after = before.with_reward_transform(scale=2.0, shift=-1.0, clip_min=0.0, clip_max=3.0, returns_to_go_gamma=1.0)
    assert before.rewards.tolist() == [0, 1, 2, 3] and before.returns_to_go.tolist() == [6, 6, 5, 3]
    assert after.rewards.tolist() == [0, 1, 3, 3] and after.returns_to_go.tolist() == [7, 7, 6, 3]
    assert before.with_reward_transform(scale=2.0).returns_to_go is None  # they would be those of other rewards
    with pytest.raises(UserError, match=r"gamma must be in \[0, 1\], got 1.5"):
        before.with_discounted_returns_to_go(gamma=1.5)
    with pytest.raises(UserError, match=r"clip_min must be <= clip_max \(0\)"):
        before.with_reward_transform(clip_min=1, clip_max=0)
