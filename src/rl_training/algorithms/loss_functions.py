"""Losses of tensors that are already computed, for callers with their own training loop.

Each takes one mapping and returns named losses and metrics. The learners use the same terms (`losses.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from rl_training.algorithms.losses import (
    as_rows,
    chosen,
    chosen_by_members,
    deterministic_policy_term,
    ensemble_cross_entropy,
    ensemble_quantile_huber,
    ensemble_squared_error,
    expected,
    expectile_term,
    huber,
    soft_policy_term,
    value_terms,
    weighted_cloning_term,
)
from rl_training.engine.networks import Batch
from rl_training.engine.phases import Metrics

EXPECTILE = 0.7  # of IQL for locomotion


def _twins(values: Mapping[str, Any], first: str, second: str) -> Tensor:
    return torch.stack([values[first], values[second]])


def _soft_losses(critic_loss: Tensor, target: Tensor, sampled_value: Tensor, values: Mapping[str, Any]) -> Metrics:
    """The results of `sac_loss` and its variants, from a critic loss and the values of the sampled actions."""
    actor_loss, entropy_term = soft_policy_term(values["alpha"], values["sampled_logprobs"], sampled_value)
    return {
        "critic_loss": critic_loss,
        "actor_loss": actor_loss,
        "target_q_mean": target.mean(),
        "entropy_term": entropy_term,
    }


def sac_loss(values: Mapping[str, Any]) -> Metrics:
    """From `q1_values, q2_values, target_q_values, sampled_logprobs, sampled_q1, sampled_q2, alpha`."""
    values = as_rows(values)
    target = values["target_q_values"]
    critic_loss = ensemble_squared_error(_twins(values, "q1_values", "q2_values"), target)
    return _soft_losses(critic_loss, target, _twins(values, "sampled_q1", "sampled_q2").amin(0), values)


drq_loss = sac_loss  # augmentation changes the inputs, not the formula
crossq_loss = sac_loss  # normalisation changes the networks, not the formula


def redq_loss(values: Mapping[str, Any]) -> Metrics:
    """From `critic_q_values` (B, N), `target_q_values`, `sampled_logprobs`, `sampled_q_values` (B,), `alpha`."""
    members = values["critic_q_values"].T  # before `as_rows`, which would squeeze a single critic
    values = as_rows(values)
    target = values["target_q_values"]
    critic_loss = ensemble_squared_error(members, target)
    return _soft_losses(critic_loss, target, values["sampled_q_values"], values)


droq_loss = redq_loss  # dropout changes the critics, not the formula


def discrete_sac_loss(values: Mapping[str, Any]) -> Metrics:
    """From `q1_values, q2_values, action_logprobs` (batch, actions), `actions`, `target_q_values` and `alpha`."""
    rows = as_rows({name: values[name] for name in ("actions", "target_q_values", "alpha")})
    both, log_probs = _twins(values, "q1_values", "q2_values"), values["action_logprobs"]
    critic_loss = ensemble_squared_error(chosen_by_members(both, rows["actions"]), rows["target_q_values"])
    rows["sampled_logprobs"] = expected(log_probs, log_probs)
    return _soft_losses(critic_loss, rows["target_q_values"], expected(log_probs, both.amin(0)), rows)


def tqc_loss(values: Mapping[str, Any]) -> Metrics:
    """From `critic_quantiles` (B, N, quantiles), `target_quantiles` (B, samples; without the largest),
    `sampled_logprobs`, `sampled_q_values` (B,) and `alpha`."""
    target = values["target_quantiles"]
    critic_loss = ensemble_quantile_huber(values["critic_quantiles"].transpose(0, 1), target)
    return _soft_losses(critic_loss, target, values["sampled_q_values"], values)


def flashsac_loss(values: Mapping[str, Any]) -> Metrics:
    """From `critic_logits` (B, N, atoms), `target_probabilities` (B, atoms), `atoms` (atoms,), `sampled_logprobs`,
    `sampled_q_values` (B,) and `alpha`."""
    target = values["target_probabilities"]
    critic_loss = ensemble_cross_entropy(values["critic_logits"].transpose(0, 1), target)
    return _soft_losses(critic_loss, (target * values["atoms"]).sum(-1), values["sampled_q_values"], values)


def cql_loss(values: Mapping[str, Any]) -> Metrics:
    """`sac_loss`, and from `cql_penalty_q1, cql_penalty_q2, cql_alpha` the penalty on the critics."""
    gaps = [torch.as_tensor(values[name]).float().mean() for name in ("cql_penalty_q1", "cql_penalty_q2")]
    penalty = values["cql_alpha"] * (gaps[0] + gaps[1])
    losses = sac_loss(values)
    return {**losses, "critic_loss": losses["critic_loss"] + penalty, "cql_penalty": penalty}


def drqv2_loss(values: Mapping[str, Tensor]) -> Metrics:
    """From `q1_values, q2_values, target_q_values, sampled_q1, sampled_q2`."""
    values = as_rows(values)
    target = values["target_q_values"]
    return {
        "critic_loss": ensemble_squared_error(_twins(values, "q1_values", "q2_values"), target),
        "actor_loss": deterministic_policy_term(_twins(values, "sampled_q1", "sampled_q2")),
        "target_q_mean": target.mean(),
    }


def iql_loss(values: Mapping[str, Any]) -> Metrics:
    """From `q1_values, q2_values, target_q_values, value_predictions, target_state_values, behavior_logprobs,
    advantage_weights` and, if it is not 0.7, `expectile`."""
    values = as_rows(values)
    target, weights = values["target_q_values"], values["advantage_weights"]
    expectile = float(values.get("expectile", EXPECTILE))
    return {
        "critic_loss": ensemble_squared_error(_twins(values, "q1_values", "q2_values"), target),
        "value_loss": expectile_term(values["target_state_values"], values["value_predictions"], expectile),
        "actor_loss": weighted_cloning_term(weights, values["behavior_logprobs"]),
        "target_q_mean": target.mean(),
        "advantage_weight_mean": weights.mean(),
    }


def dqn_loss(values: Batch) -> Metrics:
    """From `q_values` (batch, actions), `actions`, `target_values` and, optionally, `weights`: the Huber loss."""
    rows = as_rows(values)  # not for `q_values`: those of a single action are a column
    q, target = chosen(values["q_values"], rows["actions"]), rows["target_values"]
    return value_terms(q, target, huber(q - target), rows)
