"""Names of settings in other libraries, for messages about unknown keys."""

from __future__ import annotations

from collections.abc import Collection

from rl_training.core.checks import nearest

# Our name -> theirs: Stable-Baselines3, CleanRL, d3rlpy, CORL, Spinning Up and the authors' own code.
# A dotted name is a path in the config; of several rows with the same foreign name, the first that applies is used.
OURS = {
    "env_id": "env env_name environment gym_id",
    "seed": "random_seed",
    "seeds": "num_seeds n_seeds",
    "total_timesteps": "total_steps timesteps n_timesteps num_timesteps max_timesteps num_train_steps max_steps "
                       "train_steps n_train_steps n_updates",
    "output_dir": "log_dir logdir save_dir save_path out_dir run_dir results_dir work_dir checkpoints_path",
    "device": "cuda use_gpu gpu",
    "num_envs": "n_envs n_env num_env n_training_threads",
    "eval_episodes": "n_eval_episodes num_eval_episodes n_episodes eval_runs",
    "eval_interval": "eval_freq eval_frequency eval_every evaluation_interval n_steps_per_epoch",
    "log_interval": "log_freq log_frequency log_every",
    "checkpoint_interval": "save_freq save_frequency save_interval checkpoint_freq checkpoint_every",
    "run_name": "exp_name experiment_name tb_log_name",
    "tensorboard": "tensorboard_log tensorboard_dir",
    "writers": "track use_wandb wandb use_mlflow mlflow loggers logger log_with",
    "writers.wandb.project": "wandb_project wandb_project_name",
    "writers.wandb.entity": "wandb_entity",
    "video": "capture_video save_video record_video",
    "compile": "jit torch_compile",
    "threads": "num_threads n_threads torch_threads",
    "workers": "num_workers n_workers",
    "buffer_capacity": "buffer_size replay_size replay_buffer_size replay_buffer_capacity memory_size capacity",
    "batch_size": "minibatch_size mini_batch_size",
    "learning_starts": "start_timesteps start_steps warmup_steps update_after random_steps initial_random_steps "
                       "num_seed_steps min_replay_history start_training",
    "train_frequency": "train_freq update_every update_freq update_period update_interval",
    "gradient_updates_per_step": "gradient_steps utd utd_ratio updates_per_step gradient_updates",
    "hidden_sizes": "net_arch policy_kwargs hidden_dim hidden_dims hidden_size hidden_units layers actor_hidden_dims "
                    "actor_encoder_factory critic_encoder_factory encoder_factory",
    "critic_hidden_sizes": "critic_hidden_dims",
    "actor_learning_rate": "policy_lr actor_lr pi_lr policy_learning_rate",
    "learning_rate": "lr q_lr critic_lr vf_lr critic_learning_rate qf_lr policy_lr actor_lr pi_lr policy_learning_rate "
                     "actor_learning_rate temp_learning_rate alpha_lr ent_coef_lr",
    "learning_rate_schedule": "lr_schedule anneal_lr lr_decay learning_rate_decay",
    "schedule_steps": "lr_decay_steps decay_steps schedule_timesteps total_schedule_steps",
    "learning_rate_kl": "desired_kl kl_threshold adaptive_lr",
    "max_grad_norm": "max_gradient_norm grad_clip clip_grad grad_norm_clip clip_grad_norm",
    "adam_eps": "adam_epsilon optimizer_eps opt_eps",
    "gamma": "discount discount_factor",
    "normalize_observations": "normalize normalize_obs normalize_states normalize_state obs_norm observation_scaler",
    "precision": "mixed_precision use_amp amp dtype",
    "rollout_steps": "n_steps num_steps rollout_length horizon horizon_length step_per_collect steps_per_epoch "
                     "num_steps_per_env",
    "epochs": "n_epochs update_epochs repeat_per_collect num_learning_epochs noptepochs num_epochs ppo_epochs "
              "train_pi_iters",
    "gae_lambda": "lam gae_lam",
    "q_lambda": "",
    "clip_range": "clip_coef eps_clip clip_ratio clip_param cliprange",
    "value_clip_range": "clip_range_vf clip_vloss value_clip clip_value_loss cliprange_vf",
    "value_weight": "vf_coef value_coef value_loss_coef vf_weight critic_coef",
    "normalize_advantages": "normalize_advantage norm_adv advantage_normalization normalize_adv",
    "normalize_returns": "norm_reward normalize_reward normalize_rewards rew_norm reward_normalization ret_rms",
    "recompute_advantages": "recompute_adv recompute_advantage",
    "shared_network": "share_features_extractor shared_backbone",
    "initial_log_std": "log_std_init init_log_std init_noise_std",
    "target_kl": "max_kl",
    "recurrent": "use_lstm use_recurrent rnn_type lstm",
    "recurrent_size": "lstm_hidden_size rnn_hidden_dim rnn_hidden_size rnn_size",
    "sequence_length": "seq_len bptt_steps bptt_horizon",
    "alpha": "ent_coef entropy_coef entropy_coefficient temperature initial_temperature autotune "
             "automatic_entropy_tuning",
    "entropy_weight": "ent_coef entropy_coef entropy_coefficient ent_weight",
    "target_entropy": "",
    "target_entropy_share": "target_entropy_scale target_entropy_ratio target_entropy_coef",
    "initial_alpha": "init_temperature init_alpha",
    "tau": "polyak target_tau soft_target_tau soft_update_tau target_update_tau critic_target_tau",
    "target_update_interval": "target_network_frequency target_update_freq target_update_frequency tau polyak",
    "policy_delay": "policy_freq policy_frequency actor_update_interval update_actor_interval actor_update_freq "
                    "actor_update_frequency",
    "batch_norm_momentum": "bn_momentum",
    "normalize_rewards": "normalize_reward norm_reward",
    "noise_steps": "actor_noise_zeta_max",
    "noise_exponent": "actor_noise_zeta_mu",
    "target_std": "temp_target_sigma",
    "renorm_warmup": "renorm_warmup_steps",
    "exploration_noise": "action_noise expl_noise act_noise noise_std",
    "policy_noise": "target_policy_noise target_noise target_smoothing_sigma",
    "noise_clip": "target_noise_clip target_smoothing_clip",
    "std_start": "stddev_schedule",
    "num_critics": "n_critics num_qs num_q ensemble_size n_nets n_q_networks",
    "num_quantiles": "n_quantiles quantiles n_quants",
    "num_target_quantiles": "n_target_quantiles",
    "num_atoms": "n_atoms atoms",
    "top_quantiles_to_drop_per_net": "top_quantiles_to_drop",
    "subset_size": "num_min num_min_qs m_critics",
    "epsilon_start": "exploration_initial_eps start_e epsilon_init initial_epsilon epsilon eps_start",
    "epsilon_end": "exploration_final_eps end_e epsilon_final final_epsilon epsilon_min eps_end",
    "n_step": "n_steps nstep multistep multi_step",
    "double": "double_q double_dqn",
    "prioritized": "prioritized_replay per use_per",
    "prioritized_alpha": "prioritized_replay_alpha per_alpha",
    "prioritized_beta_start": "prioritized_replay_beta0 per_beta prioritized_replay_beta",
    "noisy": "noisy_net noisy_nets use_noisy",
    "her": "replay_buffer_class replay_buffer_kwargs n_sampled_goal goal_selection_strategy her_ratio replay_k",
    "features_dim": "feature_dim",
    "her.n": "n_sampled_goal",
    "her.strategy": "goal_selection_strategy",
    "network.activation": "activation_fn activation",
    "network.layer_norm": "layer_norm use_layer_norm",
    "network.dropout": "dropout dropout_rate",
    "network.features": "features_extractor features_extractor_class features_extractor_kwargs",
    "network.initial_weights": "ortho_init",
    "optimizer": "optimizer_class optimizer_kwargs optim optimizer_type",
    "optimizer.weight_decay": "weight_decay",
    "augmentation_pad": "image_pad pad",
    "expectile": "iql_tau quantile",
    "beta": "weight_temp temperature inverse_temperature",
    "max_advantage_weight": "max_weight exp_adv_max",
    "bc_alpha": "alpha",
    "cql_alpha": "conservative_weight cql_weight min_q_weight cql_min_q_weight",
    "num_cql_samples": "n_action_samples cql_n_actions num_random",
    "lagrange_threshold": "cql_target_action_gap alpha_threshold",
    "backup_entropy": "soft_q_backup",
    "dataset_path": "dataset_name dataset_id dataset_file data_path data_file",
    "reward_scale": "reward_scaler scale_rewards",
    "offline_steps": "offline_iterations num_offline_steps pretrain_steps",
    "env_kwargs": "env_args env_options make_kwargs",
    "env_kwargs.max_episode_steps": "max_episode_steps time_limit",
    "env_kwargs.render_mode": "render_mode",
    "env_kwargs.wrappers": "wrappers wrapper env_wrapper env_wrappers",
    "env_kwargs.wrappers.action_repeat": "action_repeat frame_skip",
    "env_kwargs.wrappers.pixels": "pixels from_pixels frame_stack",
    "env_kwargs.wrappers.atari": "atari atari_wrapper",
}  # fmt: skip

# Settings of other libraries without a counterpart here, and why.
ABSENT = {
    "verbose": "there is no setting for it: progress is shown or hidden by the call (show_progress, quiet)",
    "policy": "there is no setting for it: the network follows from the observations; network changes it",
    "policy_class": "there is no setting for it: the network follows from the observations; network changes it",
    "optimize_memory_usage": "there is no setting for it: a replay of images stores every frame once",
    "use_sde": "state-dependent exploration is not supported",
    "use_sde_at_warmup": "state-dependent exploration is not supported",
    "sde_sample_freq": "state-dependent exploration is not supported",
    "replay_buffer_class": "there is no setting for it: the replay follows from the observations",
    "replay_buffer_kwargs": "there is no setting for it: the replay follows from the observations",
    "normalize_images": "there is no setting for it: images are always scaled",
    "torch_deterministic": "there is no setting for it: runs are always deterministic",
    "action_scaler": "there is no setting for it: actions are always scaled to the environment's bounds",
    "n_steps": "this algorithm has no n-step returns; the length of a run is total_timesteps",
    "num_minibatches": "there is no setting for it: batch_size is the size of a minibatch",
    "n_minibatch": "there is no setting for it: batch_size is the size of a minibatch",
    "nminibatches": "there is no setting for it: batch_size is the size of a minibatch",
    "rms_prop_eps": "there is no setting for it: it is adam_eps, or eps of the optimizer",
    "use_rms_prop": "there is no setting for it: optimizer names one",
    "stats_window_size": "there is no setting for it",
    "monitor_wrapper": "there is no setting for it: returns are always logged",
}  # fmt: skip

_by_theirs: dict[str, list[str]] = {}
for _ours, _theirs in OURS.items():
    for _name in _theirs.split():
        _by_theirs.setdefault(_name, []).append(_ours)


def plain_name(name: str) -> str:
    """A name in snake case: `--Buffer-Size` as `buffer_size`."""
    return name.strip().lstrip("-").replace("-", "_").lower()


def explain_unknown(
    name: str, fields: Collection[str], settings: Collection[str] | None, algo: str, in_settings: bool
) -> str:
    """The end of `unknown key 'x'`: our name for it, why there is none, or the nearest name.

    `fields` are those of the config, `settings` those of the algorithm (None: unknown algorithm); `in_settings`:
    the key is in `algo_kwargs`.
    """
    key, prefix = plain_name(name), "" if in_settings else "algo_kwargs."
    of_config = ", a field of the config itself" if in_settings else ""
    if settings is not None and key in settings:
        return f"; here it is {key}" if in_settings else f"; it is a setting of {algo}: algo_kwargs.{key}"
    if key in fields:
        return "; it is a field of the config itself, beside algo_kwargs" if in_settings else f"; here it is {key}"
    theirs = _by_theirs.get(key, [])
    for ours in theirs:
        section = ours.partition(".")[0]
        if section in fields:
            return f"; here it is {ours}{of_config if ours in fields else ''}"
        if settings is None or section in settings:
            return f"; here it is {prefix}{ours}"
    if key in ABSENT:
        return f"; {ABSENT[key]}"
    if theirs and key not in OURS:
        return f"; {algo} has no such setting, elsewhere it is {theirs[0]}"
    if key in OURS:
        return (
            f"; it is a setting of other algorithms, not of {algo}"
            if settings is not None
            else f"; here it is {prefix}{key}"
        )
    close = nearest(key, [*fields, *(settings or ())])
    if close is None:
        return ""
    return f"; did you mean {close if close in fields else prefix + close}?"
