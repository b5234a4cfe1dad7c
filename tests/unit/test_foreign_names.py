"""Unknown keys are answered with our name for them, in a file, on the command line and in Python alike."""

from __future__ import annotations

import dataclasses

import pytest

from rl_training import SAC
from rl_training.algorithms.registry import algorithm_names, learner_class
from rl_training.config.foreign_names import ABSENT, OURS, explain_unknown
from rl_training.config.train_config import FIELD_NAMES
from rl_training.core.checks import ConfigError
from rl_training.run.loading import default_config, load_config

# (algorithm, another library's name, ours as a file writes it)
ANSWERS = [
    ("sac", "policy_kwargs", "here it is algo_kwargs.hidden_sizes"),
    ("sac", "net_arch", "here it is algo_kwargs.hidden_sizes"),
    ("sac", "activation_fn", "here it is algo_kwargs.network.activation"),
    ("sac", "verbose", "there is no setting for it: progress is shown or hidden by the call (show_progress, quiet)"),
    ("sac", "ent_coef", "here it is algo_kwargs.alpha"),
    ("dqn", "ent_coef", "dqn has no such setting, elsewhere it is alpha"),
    ("sac", "buffer_size", "here it is algo_kwargs.buffer_capacity"),
    ("sac", "buffer-size", "here it is algo_kwargs.buffer_capacity"),
    ("sac", "n_envs", "here it is num_envs"),
    ("sac", "total_steps", "here it is total_timesteps"),
    ("sac", "train_freq", "here it is algo_kwargs.train_frequency"),
    ("sac", "gradient_steps", "here it is algo_kwargs.gradient_updates_per_step"),
    ("crossq", "tau", "it is a setting of other algorithms, not of crossq"),
    ("td3", "target_entropy", "it is a setting of other algorithms, not of td3"),
    ("dqn", "tau", "here it is algo_kwargs.target_update_interval"),
    ("td3", "target_policy_noise", "here it is algo_kwargs.policy_noise"),
    ("sac", "policy_noise", "it is a setting of other algorithms, not of sac"),
    ("qr_dqn", "n_quantiles", "here it is algo_kwargs.num_quantiles"),
    ("dqn", "exploration_final_eps", "here it is algo_kwargs.epsilon_end"),
    ("dqn", "exploration_initial_eps", "here it is algo_kwargs.epsilon_start"),
    ("sac", "top_quantiles_to_drop_per_net", "it is a setting of other algorithms, not of sac"),
    ("td3", "policy_frequency", "here it is algo_kwargs.policy_delay"),
    ("sac", "policy_delay", "it is a setting of other algorithms, not of sac"),
    ("sac", "tensorboard_log", "here it is tensorboard"),
    ("sac", "log_dir", "here it is output_dir"),
    ("sac", "env_name", "here it is env_id"),
    ("sac", "env", "here it is env_id"),
    ("sac", "n_critics", "here it is algo_kwargs.num_critics"),
    ("sac", "features_extractor_class", "here it is algo_kwargs.network.features"),
    ("sac", "optimize_memory_usage", "there is no setting for it: a replay of images stores every frame once"),
    ("sac", "use_sde", "state-dependent exploration is not supported"),
    ("sac", "q_lr", "here it is algo_kwargs.learning_rate"),
    ("sac", "policy_lr", "here it is algo_kwargs.learning_rate"),
    ("cql", "policy_lr", "here it is algo_kwargs.actor_learning_rate"),
    ("iql", "actor_learning_rate", "here it is algo_kwargs.learning_rate"),
    ("dqn", "n_steps", "here it is algo_kwargs.n_step"),
    ("ppo", "n_steps", "here it is algo_kwargs.rollout_steps"),
    ("ppo", "num_steps", "here it is algo_kwargs.rollout_steps"),
    ("ppo", "n_epochs", "here it is algo_kwargs.epochs"),
    ("pqn", "update_epochs", "here it is algo_kwargs.epochs"),
    ("a2c", "epochs", "it is a setting of other algorithms, not of a2c"),
    ("sac", "gae_lambda", "it is a setting of other algorithms, not of sac"),
    ("ppo", "clip_coef", "here it is algo_kwargs.clip_range"),
    ("ppo", "clip_range_vf", "here it is algo_kwargs.value_clip_range"),
    ("a2c", "clip_range", "it is a setting of other algorithms, not of a2c"),
    ("ppo", "ent_coef", "here it is algo_kwargs.entropy_weight"),
    ("a2c", "vf_coef", "here it is algo_kwargs.value_weight"),
    ("ppo", "num_minibatches", "there is no setting for it: batch_size is the size of a minibatch"),
    ("a2c", "normalize_advantage", "here it is algo_kwargs.normalize_advantages"),
    ("ppo", "norm_adv", "here it is algo_kwargs.normalize_advantages"),
    ("ppo", "anneal_lr", "here it is algo_kwargs.learning_rate_schedule"),
    ("ppo", "log_std_init", "here it is algo_kwargs.initial_log_std"),
    ("ppo", "lstm_hidden_size", "here it is algo_kwargs.recurrent_size"),
    ("pqn", "recurrent", "it is a setting of other algorithms, not of pqn"),
    ("iql", "n_steps", "this algorithm has no n-step returns; the length of a run is total_timesteps"),
    ("td3_bc", "alpha", "here it is algo_kwargs.bc_alpha"),
    ("sac", "max_episode_steps", "here it is env_kwargs.max_episode_steps"),
    ("sac", "learning_rte", "did you mean algo_kwargs.learning_rate?"),
    ("sac", "total_timestep", "did you mean total_timesteps?"),
]


@pytest.mark.parametrize(("algo", "name", "answer"), ANSWERS)
def test_a_foreign_name_is_answered_with_ours(algo: str, name: str, answer: str, tmp_path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"algo: {algo}\nenv_id: Pendulum-v1\n{name}: 1\n")
    with pytest.raises(ConfigError) as in_file:
        load_config(file)
    assert str(in_file.value) == f"{file}:3: unknown key '{name}'; {answer}"
    with pytest.raises(ConfigError) as by_set:
        default_config(algo, "Somewhere-v0", [f"{name}=1"])
    assert str(by_set.value) == f"unknown key '{name}'; {answer}"


@pytest.mark.parametrize("name", ["gamma", "learning_rate", "batch_size", "tau"])
def test_a_setting_at_the_top_of_a_file_is_answered_with_its_place(name: str, tmp_path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"algo: sac\n{name}: 0.5\nenv_id: Pendulum-v1\n")
    with pytest.raises(ConfigError) as refused:
        load_config(file)
    assert str(refused.value) == f"{file}:2: unknown key '{name}'; it is a setting of sac: algo_kwargs.{name}"


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"buffer_size": 100}, "unknown key 'buffer_size'; here it is buffer_capacity"),
        ({"net_arch": [8]}, "unknown key 'net_arch'; here it is hidden_sizes"),
        ({"total_steps": 9}, "unknown key 'total_steps'; here it is total_timesteps, a field of the config itself"),
        ({"total_timestep": 9}, "unknown key 'total_timestep'; did you mean total_timesteps?"),
        ({"algo_kwargs": {"seed": 1}}, "unknown key 'seed'; it is a field of the config itself, beside algo_kwargs"),
        ({"use_sde": True}, "unknown key 'use_sde'; state-dependent exploration is not supported"),
        ({"gama": 0.9}, "unknown key 'gama'; did you mean gamma?"),
    ],
)
def test_a_foreign_keyword_in_python(keywords, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        SAC("Pendulum-v1", **keywords)
    assert str(refused.value) == message


def test_the_table_is_sound() -> None:
    """Every answer is a name that we have; no name of ours that every algorithm has is taken for a foreign one."""
    every = [
        {field.name for field in dataclasses.fields(learner_class(name).settings_type)} for name in algorithm_names()
    ]
    known = set(FIELD_NAMES).union(*every)
    assert [ours for ours in OURS if "." not in ours and ours not in known] == []
    theirs = {name for names in OURS.values() for name in names.split()} | set(ABSENT)
    assert theirs & (set(FIELD_NAMES) | set.intersection(*every)) == set()
    assert all(name == name.lower() and "-" not in name for name in theirs)


def test_an_unknown_algorithm_does_not_stand_in_the_way() -> None:
    answer = explain_unknown("buffer_size", FIELD_NAMES, None, "nosuch", in_settings=False)
    assert answer == "; here it is algo_kwargs.buffer_capacity"
    assert explain_unknown("gamma", FIELD_NAMES, None, "", in_settings=False) == "; here it is algo_kwargs.gamma"
    assert explain_unknown("zzz", FIELD_NAMES, (), "sac", in_settings=True) == ""
