"""The numbers an algorithm has when none are given: those of the code that its settings cite."""

from __future__ import annotations

import pytest

from rl_training.algorithms.registry import algorithm_names, learner_class

DEFAULTS = {
    "dqn": {"double": False, "dueling": False, "n_step": 1, "prioritized": False, "noisy": False},
    "c51_dqn": {"num_atoms": 51},
    "qr_dqn": {"num_quantiles": 200},
    "iqn": {"num_quantiles": 64, "num_target_quantiles": 64, "num_policy_quantiles": 32, "num_cosines": 64,
            "kappa": 1.0},
    "rainbow_dqn": {"double": True, "dueling": True, "n_step": 3, "prioritized": True, "noisy": True},
    "sac": {"tau": 0.005, "alpha": "auto", "initial_alpha": 1.0, "num_critics": 2, "batch_size": 256,
            "learning_rate": 3e-4},
    "discrete_sac": {"tau": 0.005, "alpha": "auto", "initial_alpha": 1.0, "num_critics": 2, "target_entropy": "auto",
                     "target_entropy_share": 0.5, "learning_starts": 1000, "buffer_capacity": 100_000},
    "td3": {"policy_delay": 2, "policy_noise": 0.2, "noise_clip": 0.5, "exploration_noise": 0.1,
            "learning_starts": 25_000, "tau": 0.005, "batch_size": 256, "learning_rate": 3e-4},
    "tqc": {"num_critics": 5, "num_quantiles": 25, "critic_hidden_sizes": (512, 512, 512), "hidden_sizes": (256, 256)},
    "redq": {"learning_starts": 5000, "gradient_updates_per_step": 20, "num_critics": 10, "subset_size": 2},
    "crossq": {"learning_rate": 1e-3, "policy_delay": 3, "critic_hidden_sizes": (1024, 1024),
               "hidden_sizes": (256, 256), "batch_norm_momentum": 0.01, "renorm_warmup": 100_000,
               "batch_size": 256, "num_critics": 2},
    "flashsac": {"batch_size": 512, "learning_starts": 10_000, "hidden_sizes": (128, 128), "num_critics": 2,
                 "critic_hidden_sizes": (256, 256), "learning_rate": 3e-4, "learning_rate_schedule": "cosine",
                 "learning_rate_end": 0.5, "tau": 0.01, "initial_alpha": 0.01, "target_std": 0.15, "policy_delay": 2,
                 "num_atoms": 101, "v_max": 5.0, "noise_steps": 16, "noise_exponent": 2.0,
                 "batch_norm_momentum": 0.01},
    "droq": {"learning_starts": 5000, "gradient_updates_per_step": 20, "num_critics": 2, "subset_size": 2},
    "bc": {"hidden_sizes": (256, 256), "batch_size": 256, "learning_rate": 3e-4},
    "iql": {"expectile": 0.7, "beta": 3.0, "max_advantage_weight": 100.0, "tau": 0.005, "actor_schedule": "cosine",
            "reward_scale": "return_range", "hidden_sizes": (256, 256), "batch_size": 256, "learning_rate": 3e-4,
            "normalize_observations": False},
    "cql": {"cql_alpha": 10.0, "num_cql_samples": 10, "cql_temperature": 1.0, "lagrange_threshold": None,
            "bc_updates": 0, "backup_entropy": False, "max_backup": False, "hidden_sizes": (256, 256, 256),
            "actor_learning_rate": 3e-5, "learning_rate": 3e-4},
    "td3_bc": {"bc_alpha": 2.5, "policy_delay": 2, "policy_noise": 0.2, "noise_clip": 0.5, "tau": 0.005, "gamma": 0.99,
               "learning_rate": 3e-4, "batch_size": 256, "normalize_observations": True, "hidden_sizes": (256, 256),
               "reward_scale": 1.0},
    "drq": {"learning_rate": 1e-3, "batch_size": 128, "learning_starts": 1000, "alpha": 0.1, "initial_alpha": 0.1,
            "policy_delay": 2, "target_augmentations": 2, "loss_augmentations": 2, "buffer_capacity": 100_000,
            "augmentation_pad": 4, "tau": 0.01, "encoder": "drq"},
    "drqv2": {"n_step": 3, "learning_rate": 1e-4, "train_frequency": 2, "learning_starts": 2000, "std_start": 1.0,
              "std_end": 0.1, "std_steps": 100_000, "noise_clip": 0.3, "batch_size": 256, "buffer_capacity": 1_000_000,
              "tau": 0.01, "features_dim": 50, "augmentation_pad": 4},
    "ppo": {"rollout_steps": 2048, "batch_size": 64, "epochs": 10, "learning_rate": 3e-4, "gamma": 0.99,
            "gae_lambda": 0.95, "clip_range": 0.2, "value_clip_range": None, "normalize_advantages": "minibatch",
            "entropy_weight": 0.0, "value_weight": 0.5, "max_grad_norm": 0.5, "adam_eps": 1e-5,
            "hidden_sizes": (64, 64), "target_kl": None, "initial_log_std": 0.0},
    "a2c": {"rollout_steps": 5, "learning_rate": 7e-4, "gamma": 0.99, "gae_lambda": 1.0, "entropy_weight": 0.0,
            "value_weight": 0.5, "max_grad_norm": 0.5, "adam_eps": 1e-5, "normalize_advantages": "off", "epochs": 1},
    "pqn": {"rollout_steps": 128, "batch_size": 128, "epochs": 4, "learning_rate": 2.5e-4, "max_grad_norm": 10.0,
            "learning_rate_schedule": "linear", "q_lambda": 0.65, "epsilon_start": 1.0, "epsilon_end": 0.05,
            "exploration_fraction": 0.5, "hidden_sizes": (120, 84), "gamma": 0.99},
}  # fmt: skip


@pytest.mark.parametrize("name", algorithm_names())
def test_defaults_are_those_of_the_code_they_cite(name: str) -> None:
    settings = learner_class(name).settings_type()
    assert {key: getattr(settings, key) for key in DEFAULTS[name]} == DEFAULTS[name]
