"""d3rlpy's side of a comparison, updates only, on random data, run with an interpreter that has it:

side_d3rlpy.py d3rlpy CLASS ENV WARM_UP STRETCH [setting=value …]        (settings by our names, see `configured`)
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import d3rlpy
import gymnasium as gym
import numpy as np
import torch
from pacer import Pacer

# By class, our names of settings -> d3rlpy's.
COMMON = {"batch_size": "batch_size", "gamma": "gamma", "tau": "tau"}
NAMES: dict[str, dict[str, str]] = {
    "BC": {"batch_size": "batch_size", "learning_rate": "learning_rate"},
    "IQL": {**COMMON, "expectile": "expectile", "beta": "weight_temp", "max_advantage_weight": "max_weight"},
    "TD3PlusBC": {
        **COMMON,
        "bc_alpha": "alpha",
        "policy_noise": "target_smoothing_sigma",
        "noise_clip": "target_smoothing_clip",
        "policy_delay": "update_actor_interval",
    },
    "CQL": {
        **COMMON,
        "cql_alpha": "conservative_weight",
        "num_cql_samples": "n_action_samples",
        "backup_entropy": "soft_q_backup",
        "max_backup": "max_q_backup",
        "initial_alpha": "initial_temperature",
    },
}
ROWS = 10_000


def configured(kind: str, settings: dict[str, Any], steps: int | None = None) -> Any:
    """d3rlpy's config of a class, from our settings; `steps`: the length of a learning-rate schedule."""
    kwargs = {theirs: settings[ours] for ours, theirs in NAMES[kind].items() if ours in settings}
    encoder = d3rlpy.models.encoders.VectorEncoderFactory(list(settings["hidden_sizes"]))
    networks = {"BC": ("",), "IQL": ("actor_", "critic_", "value_")}.get(kind, ("actor_", "critic_"))
    kwargs |= {f"{network}encoder_factory": encoder for network in networks}
    if kind != "BC" and "learning_rate" in settings:
        rate = settings["learning_rate"]
        kwargs |= {"critic_learning_rate": rate, "actor_learning_rate": settings.get("actor_learning_rate") or rate}
    if kind == "CQL":
        kwargs["alpha_learning_rate"] = 0.0  # without the Lagrange multiplier, as ours by default
        if "actor_learning_rate" in kwargs:
            kwargs["temp_learning_rate"] = kwargs["actor_learning_rate"]
    if kind == "IQL" and settings.get("actor_schedule") == "cosine" and steps is not None:
        schedule = d3rlpy.optimizers.CosineAnnealingLRFactory(T_max=steps)
        kwargs["actor_optim_factory"] = d3rlpy.optimizers.AdamFactory(lr_scheduler_factory=schedule)
    if settings.get("normalize_observations"):
        kwargs["observation_scaler"] = d3rlpy.preprocessing.StandardObservationScaler()
    return getattr(d3rlpy.algos, f"{kind}Config")(**kwargs)


def random_data(env_id: str) -> Any:
    env, rng = gym.make(env_id), np.random.default_rng(0)
    timeouts = np.zeros(ROWS, np.float32)
    timeouts[999::1000] = 1
    return d3rlpy.dataset.MDPDataset(
        rng.normal(size=(ROWS, *env.observation_space.shape)).astype(np.float32),
        rng.uniform(-1, 1, (ROWS, *env.action_space.shape)).astype(np.float32),
        rng.normal(size=ROWS).astype(np.float32),
        np.zeros(ROWS, np.float32),
        timeouts,
    )


def main() -> None:
    _library, kind, env_id, warm_up, stretch, *assignments = sys.argv[1:]
    settings = {key: json.loads(value) for key, _, value in (text.partition("=") for text in assignments)}
    if kind == "TD3PlusBC":
        settings["normalize_observations"] = True  # as ours
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    pacer = Pacer(int(warm_up), int(stretch))
    data = random_data(env_id)
    algo = configured(kind, settings).create(device=False)
    algo.build_with_dataset(data)
    if algo.observation_scaler is not None:
        algo.observation_scaler.fit_with_transition_picker(data.episodes, data.transition_picker)
    while True:  # as in its `fit`, without logging
        algo.update(data.sample_transition_batch(settings["batch_size"]))
        pacer.step()


if __name__ == "__main__":
    main()
