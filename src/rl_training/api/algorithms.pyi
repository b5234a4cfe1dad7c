# Written by scripts/stubs.py from the registry of algorithms: `make stubs`.

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from rl_training.api.managed import ManagedAlgorithm
from rl_training.config.objects import Objects
from rl_training.config.train_config import TrainConfig
from rl_training.data.datasets.memory import Dataset
from rl_training.envs.host.factory import EnvFactory

class DQN(ManagedAlgorithm):
    """Deep Q-network, with switches for double, dueling, n-step, prioritised and noisy.

    Args:
        env: an environment's id, a function that makes one, or a `TrainConfig`
        seed (int, default 0): determines all random numbers of the run (>= 0 and < 2**31)
        total_timesteps (int, default 100000): environment steps per seed; offline, updates (>= 1)
        output_dir (str | Path, default "runs"): the directory in which the run's directory is made
        device (str, default "auto"): auto: a GPU if there is one (one of auto, cpu, cuda, cuda:N)
        num_envs (int, default 1): environments per seed (>= 1)
        eval_episodes (int, default 5): episodes of an evaluation, per seed; 0: no evaluations (>= 0)
        log_interval (int, default 1000): steps between rows of metrics (>= 1)
        checkpoint_interval (int, default 10000): steps between checkpoints (>= 1)
        tags (Sequence[str], default ()): words of your own, stored with the run
        env_kwargs (Mapping[str, Any], default {}): arguments of the environment; `wrappers`
        eval_interval (int | None, default None): steps between evaluations; null: a tenth of the run
            (>= 1)
        keep_checkpoints (int, default 2): checkpoints that stay, the newest ones (>= 1)
        seeds (Sequence[int], default ()): trained together as one program; empty: `seed` alone (>= 0
            and < 2**31)
        compile (str, default "auto"): compile the update; auto: where that saves time (one of auto, on,
            off)
        threads (int | None, default None): threads of one process; null: chosen for the networks (>= 1)
        env_timeout (float, default 300.0): seconds after which a step counts as hung (> 0)
        workers (int | None, default None): environment worker processes; null: chosen for the machine
            (>= 0)
        video (bool, default True): record a video of the agent at the end
        report (bool, default True): write report.html at the end
        tensorboard (bool, default False): write TensorBoard files too: the same as the writer
            tensorboard
        started_from (Mapping[str, Any] | None, default None): the agent file or run whose weights a new
            run starts from: its `path`, perhaps `groups` of weights; a run's own config has its
            `sha256`, `step` and `seeds` too
        eval_episode_limit (int, default 10000): steps after which an episode of an evaluation, a video
            or a recording is cut where the environment has no limit (>= 1)
        run_name (str | None, default None): name of its directory; null: `<algo>-<env>-seed<k>` (a name
            of at most 200 letters, digits and -_.=+ that starts with a letter or digit)
        writers (Mapping[str, Any] | Sequence[str], default ()): places of the metric rows besides
            metrics.jsonl: names, or a mapping from names to options
        info_metrics (Sequence[str], default ("is_success",)): numbers in the info of an episode's last
            step that become metrics; is_success becomes success_rate (a name that is not one of the
            library's)
        schedule_steps (int | None, default None): steps over which all schedules run, at least the
            run's; null: total_timesteps. Extending a run does not change it (>= 1)

    Settings of dqn. Defaults: RL Baselines3 Zoo's dqn.yml, LunarLander and Acrobot rows, which also
    solve CartPole:
        batch_size (int, default 128): transitions of one update, per seed (>= 1)
        hidden_sizes (Sequence[int], default (256, 256)): sizes of the hidden layers of the networks
        learning_rate (float, default 0.00063): step size of the optimizer (> 0)
        learning_rate_schedule (Literal["constant", "linear", "cosine"] | Callable[[float], float],
            default "constant"): of the rate over the run; a Python function returns the rate, given the
            share of the run that is done
        learning_rate_end (float, default 0.0): linear, cosine: the share of the rate at the end (in [0,
            1])
        learning_rate_warmup (float, default 0.0): share of the run in which it rises from 0 (in [0, 1))
        max_grad_norm (float | None, default 10.0): clips the norm of gradients (Stable-Baselines3's
            default) (> 0)
        optimizer (str | Mapping[str, Any], default {}): by its name in torch.optim, with options
        adam_eps (float, default 1e-08): the default of the optimizer's `eps` (> 0)
        gamma (float, default 0.99): discount of future rewards (in [0, 1])
        normalize_observations (bool, default False): standardise them by their running mean and
            variance
        network (str | Mapping[str, Any], default {}): layers, and networks of one's own
        buffer_capacity (int, default 50000): transitions in the replay, per seed (>= 1)
        learning_starts (int, default 1000): uniformly random actions and no updates until then (>= 0)
        train_frequency (int, default 4): transitions between trainings (>= 1)
        gradient_updates_per_step (int, default 4): updates per training (>= 1)
        epsilon_start (float, default 1.0): share of random actions at the start (in [0, 1])
        epsilon_end (float, default 0.1): share of random actions after `exploration_fraction` (in [0,
            1])
        exploration_fraction (float, default 0.12): share of the run over which epsilon falls (in [0,
            1])
        target_update_interval (int, default 250): environment steps between copies to the target
            network (>= 1)
        double (bool, default False): the online network chooses the next action (van Hasselt et al.
            2016)
        dueling (bool, default False): separate value and advantages (Wang et al. 2016)
        n_step (int, default 1): rewards in a return before it is bootstrapped (>= 1)
        prioritized (bool, default False): draw transitions in proportion to their errors (Schaul et al.
            2016)
        prioritized_alpha (float, default 0.6): exponent of the priorities; 0: uniform sampling (in [0,
            1])
        prioritized_beta_start (float, default 0.4): exponent of importance weights, 1 at the end (in
            [0, 1])
        noisy (bool, default False): explore by noisy weights, without epsilon (Fortunato et al. 2018)
        her (Mapping[str, Any] | None, default None): relabel goals in hindsight (Andrychowicz et al.
            2017); null: never
    """

    def __init__(
        self,
        env: str | TrainConfig | EnvFactory,
        *,
        seed: int = 0,
        total_timesteps: int = 100000,
        output_dir: str | Path = ...,
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 5,
        log_interval: int = 1000,
        checkpoint_interval: int = 10000,
        tags: Sequence[str] = (),
        env_kwargs: Mapping[str, Any] = ...,
        eval_interval: int | None = None,
        keep_checkpoints: int = 2,
        seeds: Sequence[int] = (),
        compile: str = "auto",
        threads: int | None = None,
        env_timeout: float = 300.0,
        workers: int | None = None,
        video: bool = True,
        report: bool = True,
        tensorboard: bool = False,
        started_from: Mapping[str, Any] | None = None,
        eval_episode_limit: int = 10000,
        run_name: str | None = None,
        writers: Mapping[str, Any] | Sequence[str] = (),
        info_metrics: Sequence[str] = ("is_success",),
        schedule_steps: int | None = None,
        batch_size: int = 128,
        hidden_sizes: Sequence[int] = (256, 256),
        learning_rate: float = 0.00063,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] | Callable[[float], float] = "constant",
        learning_rate_end: float = 0.0,
        learning_rate_warmup: float = 0.0,
        max_grad_norm: float | None = 10.0,
        optimizer: str | Mapping[str, Any] = ...,
        adam_eps: float = 1e-08,
        gamma: float = 0.99,
        normalize_observations: bool = False,
        network: str | Mapping[str, Any] = ...,
        buffer_capacity: int = 50000,
        learning_starts: int = 1000,
        train_frequency: int = 4,
        gradient_updates_per_step: int = 4,
        epsilon_start: float = 1.0,
        epsilon_end: float = 0.1,
        exploration_fraction: float = 0.12,
        target_update_interval: int = 250,
        double: bool = False,
        dueling: bool = False,
        n_step: int = 1,
        prioritized: bool = False,
        prioritized_alpha: float = 0.6,
        prioritized_beta_start: float = 0.4,
        noisy: bool = False,
        her: Mapping[str, Any] | None = None,
    ) -> None: ...

class C51DQN(ManagedAlgorithm):
    """Categorical DQN (C51).

    Args:
        env: an environment's id, a function that makes one, or a `TrainConfig`
        seed (int, default 0): determines all random numbers of the run (>= 0 and < 2**31)
        total_timesteps (int, default 100000): environment steps per seed; offline, updates (>= 1)
        output_dir (str | Path, default "runs"): the directory in which the run's directory is made
        device (str, default "auto"): auto: a GPU if there is one (one of auto, cpu, cuda, cuda:N)
        num_envs (int, default 1): environments per seed (>= 1)
        eval_episodes (int, default 5): episodes of an evaluation, per seed; 0: no evaluations (>= 0)
        log_interval (int, default 1000): steps between rows of metrics (>= 1)
        checkpoint_interval (int, default 10000): steps between checkpoints (>= 1)
        tags (Sequence[str], default ()): words of your own, stored with the run
        env_kwargs (Mapping[str, Any], default {}): arguments of the environment; `wrappers`
        eval_interval (int | None, default None): steps between evaluations; null: a tenth of the run
            (>= 1)
        keep_checkpoints (int, default 2): checkpoints that stay, the newest ones (>= 1)
        seeds (Sequence[int], default ()): trained together as one program; empty: `seed` alone (>= 0
            and < 2**31)
        compile (str, default "auto"): compile the update; auto: where that saves time (one of auto, on,
            off)
        threads (int | None, default None): threads of one process; null: chosen for the networks (>= 1)
        env_timeout (float, default 300.0): seconds after which a step counts as hung (> 0)
        workers (int | None, default None): environment worker processes; null: chosen for the machine
            (>= 0)
        video (bool, default True): record a video of the agent at the end
        report (bool, default True): write report.html at the end
        tensorboard (bool, default False): write TensorBoard files too: the same as the writer
            tensorboard
        started_from (Mapping[str, Any] | None, default None): the agent file or run whose weights a new
            run starts from: its `path`, perhaps `groups` of weights; a run's own config has its
            `sha256`, `step` and `seeds` too
        eval_episode_limit (int, default 10000): steps after which an episode of an evaluation, a video
            or a recording is cut where the environment has no limit (>= 1)
        run_name (str | None, default None): name of its directory; null: `<algo>-<env>-seed<k>` (a name
            of at most 200 letters, digits and -_.=+ that starts with a letter or digit)
        writers (Mapping[str, Any] | Sequence[str], default ()): places of the metric rows besides
            metrics.jsonl: names, or a mapping from names to options
        info_metrics (Sequence[str], default ("is_success",)): numbers in the info of an episode's last
            step that become metrics; is_success becomes success_rate (a name that is not one of the
            library's)
        schedule_steps (int | None, default None): steps over which all schedules run, at least the
            run's; null: total_timesteps. Extending a run does not change it (>= 1)

    Settings of c51_dqn. Defaults: the paper's 51 atoms from -10 to 10 (for clipped rewards); the rest
    as in DQN:
        batch_size (int, default 128): transitions of one update, per seed (>= 1)
        hidden_sizes (Sequence[int], default (256, 256)): sizes of the hidden layers of the networks
        learning_rate (float, default 0.00063): step size of the optimizer (> 0)
        learning_rate_schedule (Literal["constant", "linear", "cosine"] | Callable[[float], float],
            default "constant"): of the rate over the run; a Python function returns the rate, given the
            share of the run that is done
        learning_rate_end (float, default 0.0): linear, cosine: the share of the rate at the end (in [0,
            1])
        learning_rate_warmup (float, default 0.0): share of the run in which it rises from 0 (in [0, 1))
        max_grad_norm (float | None, default 10.0): clips the norm of gradients (Stable-Baselines3's
            default) (> 0)
        optimizer (str | Mapping[str, Any], default {}): by its name in torch.optim, with options
        adam_eps (float, default 1e-08): the default of the optimizer's `eps` (> 0)
        gamma (float, default 0.99): discount of future rewards (in [0, 1])
        normalize_observations (bool, default False): standardise them by their running mean and
            variance
        network (str | Mapping[str, Any], default {}): layers, and networks of one's own
        buffer_capacity (int, default 50000): transitions in the replay, per seed (>= 1)
        learning_starts (int, default 1000): uniformly random actions and no updates until then (>= 0)
        train_frequency (int, default 4): transitions between trainings (>= 1)
        gradient_updates_per_step (int, default 4): updates per training (>= 1)
        epsilon_start (float, default 1.0): share of random actions at the start (in [0, 1])
        epsilon_end (float, default 0.1): share of random actions after `exploration_fraction` (in [0,
            1])
        exploration_fraction (float, default 0.12): share of the run over which epsilon falls (in [0,
            1])
        target_update_interval (int, default 250): environment steps between copies to the target
            network (>= 1)
        double (bool, default False): the online network chooses the next action (van Hasselt et al.
            2016)
        dueling (bool, default False): separate value and advantages (Wang et al. 2016)
        n_step (int, default 1): rewards in a return before it is bootstrapped (>= 1)
        prioritized (bool, default False): draw transitions in proportion to their errors (Schaul et al.
            2016)
        prioritized_alpha (float, default 0.6): exponent of the priorities; 0: uniform sampling (in [0,
            1])
        prioritized_beta_start (float, default 0.4): exponent of importance weights, 1 at the end (in
            [0, 1])
        noisy (bool, default False): explore by noisy weights, without epsilon (Fortunato et al. 2018)
        her (Mapping[str, Any] | None, default None): relabel goals in hindsight (Andrychowicz et al.
            2017); null: never
        num_atoms (int, default 51): atoms of the distribution of returns (>= 2 and <= 2000)
        v_min (float, default -10.0): the smallest atom (in [-1e+30, 1e+30])
        v_max (float, default 10.0): the largest atom (in [-1e+30, 1e+30])
    """

    def __init__(
        self,
        env: str | TrainConfig | EnvFactory,
        *,
        seed: int = 0,
        total_timesteps: int = 100000,
        output_dir: str | Path = ...,
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 5,
        log_interval: int = 1000,
        checkpoint_interval: int = 10000,
        tags: Sequence[str] = (),
        env_kwargs: Mapping[str, Any] = ...,
        eval_interval: int | None = None,
        keep_checkpoints: int = 2,
        seeds: Sequence[int] = (),
        compile: str = "auto",
        threads: int | None = None,
        env_timeout: float = 300.0,
        workers: int | None = None,
        video: bool = True,
        report: bool = True,
        tensorboard: bool = False,
        started_from: Mapping[str, Any] | None = None,
        eval_episode_limit: int = 10000,
        run_name: str | None = None,
        writers: Mapping[str, Any] | Sequence[str] = (),
        info_metrics: Sequence[str] = ("is_success",),
        schedule_steps: int | None = None,
        batch_size: int = 128,
        hidden_sizes: Sequence[int] = (256, 256),
        learning_rate: float = 0.00063,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] | Callable[[float], float] = "constant",
        learning_rate_end: float = 0.0,
        learning_rate_warmup: float = 0.0,
        max_grad_norm: float | None = 10.0,
        optimizer: str | Mapping[str, Any] = ...,
        adam_eps: float = 1e-08,
        gamma: float = 0.99,
        normalize_observations: bool = False,
        network: str | Mapping[str, Any] = ...,
        buffer_capacity: int = 50000,
        learning_starts: int = 1000,
        train_frequency: int = 4,
        gradient_updates_per_step: int = 4,
        epsilon_start: float = 1.0,
        epsilon_end: float = 0.1,
        exploration_fraction: float = 0.12,
        target_update_interval: int = 250,
        double: bool = False,
        dueling: bool = False,
        n_step: int = 1,
        prioritized: bool = False,
        prioritized_alpha: float = 0.6,
        prioritized_beta_start: float = 0.4,
        noisy: bool = False,
        her: Mapping[str, Any] | None = None,
        num_atoms: int = 51,
        v_min: float = -10.0,
        v_max: float = 10.0,
    ) -> None: ...

class QRDQN(ManagedAlgorithm):
    """Quantile-regression DQN.

    Args:
        env: an environment's id, a function that makes one, or a `TrainConfig`
        seed (int, default 0): determines all random numbers of the run (>= 0 and < 2**31)
        total_timesteps (int, default 100000): environment steps per seed; offline, updates (>= 1)
        output_dir (str | Path, default "runs"): the directory in which the run's directory is made
        device (str, default "auto"): auto: a GPU if there is one (one of auto, cpu, cuda, cuda:N)
        num_envs (int, default 1): environments per seed (>= 1)
        eval_episodes (int, default 5): episodes of an evaluation, per seed; 0: no evaluations (>= 0)
        log_interval (int, default 1000): steps between rows of metrics (>= 1)
        checkpoint_interval (int, default 10000): steps between checkpoints (>= 1)
        tags (Sequence[str], default ()): words of your own, stored with the run
        env_kwargs (Mapping[str, Any], default {}): arguments of the environment; `wrappers`
        eval_interval (int | None, default None): steps between evaluations; null: a tenth of the run
            (>= 1)
        keep_checkpoints (int, default 2): checkpoints that stay, the newest ones (>= 1)
        seeds (Sequence[int], default ()): trained together as one program; empty: `seed` alone (>= 0
            and < 2**31)
        compile (str, default "auto"): compile the update; auto: where that saves time (one of auto, on,
            off)
        threads (int | None, default None): threads of one process; null: chosen for the networks (>= 1)
        env_timeout (float, default 300.0): seconds after which a step counts as hung (> 0)
        workers (int | None, default None): environment worker processes; null: chosen for the machine
            (>= 0)
        video (bool, default True): record a video of the agent at the end
        report (bool, default True): write report.html at the end
        tensorboard (bool, default False): write TensorBoard files too: the same as the writer
            tensorboard
        started_from (Mapping[str, Any] | None, default None): the agent file or run whose weights a new
            run starts from: its `path`, perhaps `groups` of weights; a run's own config has its
            `sha256`, `step` and `seeds` too
        eval_episode_limit (int, default 10000): steps after which an episode of an evaluation, a video
            or a recording is cut where the environment has no limit (>= 1)
        run_name (str | None, default None): name of its directory; null: `<algo>-<env>-seed<k>` (a name
            of at most 200 letters, digits and -_.=+ that starts with a letter or digit)
        writers (Mapping[str, Any] | Sequence[str], default ()): places of the metric rows besides
            metrics.jsonl: names, or a mapping from names to options
        info_metrics (Sequence[str], default ("is_success",)): numbers in the info of an episode's last
            step that become metrics; is_success becomes success_rate (a name that is not one of the
            library's)
        schedule_steps (int | None, default None): steps over which all schedules run, at least the
            run's; null: total_timesteps. Extending a run does not change it (>= 1)

    Settings of qr_dqn. Defaults: the paper's 200 quantiles and kappa 1; the rest as in DQN:
        batch_size (int, default 128): transitions of one update, per seed (>= 1)
        hidden_sizes (Sequence[int], default (256, 256)): sizes of the hidden layers of the networks
        learning_rate (float, default 0.00063): step size of the optimizer (> 0)
        learning_rate_schedule (Literal["constant", "linear", "cosine"] | Callable[[float], float],
            default "constant"): of the rate over the run; a Python function returns the rate, given the
            share of the run that is done
        learning_rate_end (float, default 0.0): linear, cosine: the share of the rate at the end (in [0,
            1])
        learning_rate_warmup (float, default 0.0): share of the run in which it rises from 0 (in [0, 1))
        max_grad_norm (float | None, default 10.0): clips the norm of gradients (Stable-Baselines3's
            default) (> 0)
        optimizer (str | Mapping[str, Any], default {}): by its name in torch.optim, with options
        adam_eps (float, default 1e-08): the default of the optimizer's `eps` (> 0)
        gamma (float, default 0.99): discount of future rewards (in [0, 1])
        normalize_observations (bool, default False): standardise them by their running mean and
            variance
        network (str | Mapping[str, Any], default {}): layers, and networks of one's own
        buffer_capacity (int, default 50000): transitions in the replay, per seed (>= 1)
        learning_starts (int, default 1000): uniformly random actions and no updates until then (>= 0)
        train_frequency (int, default 4): transitions between trainings (>= 1)
        gradient_updates_per_step (int, default 4): updates per training (>= 1)
        epsilon_start (float, default 1.0): share of random actions at the start (in [0, 1])
        epsilon_end (float, default 0.1): share of random actions after `exploration_fraction` (in [0,
            1])
        exploration_fraction (float, default 0.12): share of the run over which epsilon falls (in [0,
            1])
        target_update_interval (int, default 250): environment steps between copies to the target
            network (>= 1)
        double (bool, default False): the online network chooses the next action (van Hasselt et al.
            2016)
        dueling (bool, default False): separate value and advantages (Wang et al. 2016)
        n_step (int, default 1): rewards in a return before it is bootstrapped (>= 1)
        prioritized (bool, default False): draw transitions in proportion to their errors (Schaul et al.
            2016)
        prioritized_alpha (float, default 0.6): exponent of the priorities; 0: uniform sampling (in [0,
            1])
        prioritized_beta_start (float, default 0.4): exponent of importance weights, 1 at the end (in
            [0, 1])
        noisy (bool, default False): explore by noisy weights, without epsilon (Fortunato et al. 2018)
        her (Mapping[str, Any] | None, default None): relabel goals in hindsight (Andrychowicz et al.
            2017); null: never
        num_quantiles (int, default 200): quantiles of the distribution of returns (>= 1 and <= 2000)
        kappa (float, default 1.0): errors above it count linearly (Huber) (> 0)
    """

    def __init__(
        self,
        env: str | TrainConfig | EnvFactory,
        *,
        seed: int = 0,
        total_timesteps: int = 100000,
        output_dir: str | Path = ...,
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 5,
        log_interval: int = 1000,
        checkpoint_interval: int = 10000,
        tags: Sequence[str] = (),
        env_kwargs: Mapping[str, Any] = ...,
        eval_interval: int | None = None,
        keep_checkpoints: int = 2,
        seeds: Sequence[int] = (),
        compile: str = "auto",
        threads: int | None = None,
        env_timeout: float = 300.0,
        workers: int | None = None,
        video: bool = True,
        report: bool = True,
        tensorboard: bool = False,
        started_from: Mapping[str, Any] | None = None,
        eval_episode_limit: int = 10000,
        run_name: str | None = None,
        writers: Mapping[str, Any] | Sequence[str] = (),
        info_metrics: Sequence[str] = ("is_success",),
        schedule_steps: int | None = None,
        batch_size: int = 128,
        hidden_sizes: Sequence[int] = (256, 256),
        learning_rate: float = 0.00063,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] | Callable[[float], float] = "constant",
        learning_rate_end: float = 0.0,
        learning_rate_warmup: float = 0.0,
        max_grad_norm: float | None = 10.0,
        optimizer: str | Mapping[str, Any] = ...,
        adam_eps: float = 1e-08,
        gamma: float = 0.99,
        normalize_observations: bool = False,
        network: str | Mapping[str, Any] = ...,
        buffer_capacity: int = 50000,
        learning_starts: int = 1000,
        train_frequency: int = 4,
        gradient_updates_per_step: int = 4,
        epsilon_start: float = 1.0,
        epsilon_end: float = 0.1,
        exploration_fraction: float = 0.12,
        target_update_interval: int = 250,
        double: bool = False,
        dueling: bool = False,
        n_step: int = 1,
        prioritized: bool = False,
        prioritized_alpha: float = 0.6,
        prioritized_beta_start: float = 0.4,
        noisy: bool = False,
        her: Mapping[str, Any] | None = None,
        num_quantiles: int = 200,
        kappa: float = 1.0,
    ) -> None: ...

class IQN(ManagedAlgorithm):
    """Implicit quantile network.

    Args:
        env: an environment's id, a function that makes one, or a `TrainConfig`
        seed (int, default 0): determines all random numbers of the run (>= 0 and < 2**31)
        total_timesteps (int, default 100000): environment steps per seed; offline, updates (>= 1)
        output_dir (str | Path, default "runs"): the directory in which the run's directory is made
        device (str, default "auto"): auto: a GPU if there is one (one of auto, cpu, cuda, cuda:N)
        num_envs (int, default 1): environments per seed (>= 1)
        eval_episodes (int, default 5): episodes of an evaluation, per seed; 0: no evaluations (>= 0)
        log_interval (int, default 1000): steps between rows of metrics (>= 1)
        checkpoint_interval (int, default 10000): steps between checkpoints (>= 1)
        tags (Sequence[str], default ()): words of your own, stored with the run
        env_kwargs (Mapping[str, Any], default {}): arguments of the environment; `wrappers`
        eval_interval (int | None, default None): steps between evaluations; null: a tenth of the run
            (>= 1)
        keep_checkpoints (int, default 2): checkpoints that stay, the newest ones (>= 1)
        seeds (Sequence[int], default ()): trained together as one program; empty: `seed` alone (>= 0
            and < 2**31)
        compile (str, default "auto"): compile the update; auto: where that saves time (one of auto, on,
            off)
        threads (int | None, default None): threads of one process; null: chosen for the networks (>= 1)
        env_timeout (float, default 300.0): seconds after which a step counts as hung (> 0)
        workers (int | None, default None): environment worker processes; null: chosen for the machine
            (>= 0)
        video (bool, default True): record a video of the agent at the end
        report (bool, default True): write report.html at the end
        tensorboard (bool, default False): write TensorBoard files too: the same as the writer
            tensorboard
        started_from (Mapping[str, Any] | None, default None): the agent file or run whose weights a new
            run starts from: its `path`, perhaps `groups` of weights; a run's own config has its
            `sha256`, `step` and `seeds` too
        eval_episode_limit (int, default 10000): steps after which an episode of an evaluation, a video
            or a recording is cut where the environment has no limit (>= 1)
        run_name (str | None, default None): name of its directory; null: `<algo>-<env>-seed<k>` (a name
            of at most 200 letters, digits and -_.=+ that starts with a letter or digit)
        writers (Mapping[str, Any] | Sequence[str], default ()): places of the metric rows besides
            metrics.jsonl: names, or a mapping from names to options
        info_metrics (Sequence[str], default ("is_success",)): numbers in the info of an episode's last
            step that become metrics; is_success becomes success_rate (a name that is not one of the
            library's)
        schedule_steps (int | None, default None): steps over which all schedules run, at least the
            run's; null: total_timesteps. Extending a run does not change it (>= 1)

    Settings of iqn. Defaults: the paper's as in Dopamine, 64 levels on both sides of the loss, 32 for
    acting; the rest as in QR-DQN:
        batch_size (int, default 128): transitions of one update, per seed (>= 1)
        hidden_sizes (Sequence[int], default (256, 256)): sizes of the hidden layers of the networks
        learning_rate (float, default 0.00063): step size of the optimizer (> 0)
        learning_rate_schedule (Literal["constant", "linear", "cosine"] | Callable[[float], float],
            default "constant"): of the rate over the run; a Python function returns the rate, given the
            share of the run that is done
        learning_rate_end (float, default 0.0): linear, cosine: the share of the rate at the end (in [0,
            1])
        learning_rate_warmup (float, default 0.0): share of the run in which it rises from 0 (in [0, 1))
        max_grad_norm (float | None, default 10.0): clips the norm of gradients (Stable-Baselines3's
            default) (> 0)
        optimizer (str | Mapping[str, Any], default {}): by its name in torch.optim, with options
        adam_eps (float, default 1e-08): the default of the optimizer's `eps` (> 0)
        gamma (float, default 0.99): discount of future rewards (in [0, 1])
        normalize_observations (bool, default False): standardise them by their running mean and
            variance
        network (str | Mapping[str, Any], default {}): layers, and networks of one's own
        buffer_capacity (int, default 50000): transitions in the replay, per seed (>= 1)
        learning_starts (int, default 1000): uniformly random actions and no updates until then (>= 0)
        train_frequency (int, default 4): transitions between trainings (>= 1)
        gradient_updates_per_step (int, default 4): updates per training (>= 1)
        epsilon_start (float, default 1.0): share of random actions at the start (in [0, 1])
        epsilon_end (float, default 0.1): share of random actions after `exploration_fraction` (in [0,
            1])
        exploration_fraction (float, default 0.12): share of the run over which epsilon falls (in [0,
            1])
        target_update_interval (int, default 250): environment steps between copies to the target
            network (>= 1)
        double (bool, default False): the online network chooses the next action (van Hasselt et al.
            2016)
        dueling (bool, default False): separate value and advantages (Wang et al. 2016)
        n_step (int, default 1): rewards in a return before it is bootstrapped (>= 1)
        prioritized (bool, default False): draw transitions in proportion to their errors (Schaul et al.
            2016)
        prioritized_alpha (float, default 0.6): exponent of the priorities; 0: uniform sampling (in [0,
            1])
        prioritized_beta_start (float, default 0.4): exponent of importance weights, 1 at the end (in
            [0, 1])
        noisy (bool, default False): explore by noisy weights, without epsilon (Fortunato et al. 2018)
        her (Mapping[str, Any] | None, default None): relabel goals in hindsight (Andrychowicz et al.
            2017); null: never
        num_quantiles (int, default 64): N, random levels per row (>= 1 and <= 2000)
        kappa (float, default 1.0): errors above it count linearly (Huber) (> 0)
        num_target_quantiles (int, default 64): N', random levels per row of the target (>= 1 and <=
            2000)
        num_policy_quantiles (int, default 32): K: evenly spaced, random in the paper (>= 1 and <= 2000)
        num_cosines (int, default 64): cosines that encode a level (>= 1 and <= 2000)
    """

    def __init__(
        self,
        env: str | TrainConfig | EnvFactory,
        *,
        seed: int = 0,
        total_timesteps: int = 100000,
        output_dir: str | Path = ...,
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 5,
        log_interval: int = 1000,
        checkpoint_interval: int = 10000,
        tags: Sequence[str] = (),
        env_kwargs: Mapping[str, Any] = ...,
        eval_interval: int | None = None,
        keep_checkpoints: int = 2,
        seeds: Sequence[int] = (),
        compile: str = "auto",
        threads: int | None = None,
        env_timeout: float = 300.0,
        workers: int | None = None,
        video: bool = True,
        report: bool = True,
        tensorboard: bool = False,
        started_from: Mapping[str, Any] | None = None,
        eval_episode_limit: int = 10000,
        run_name: str | None = None,
        writers: Mapping[str, Any] | Sequence[str] = (),
        info_metrics: Sequence[str] = ("is_success",),
        schedule_steps: int | None = None,
        batch_size: int = 128,
        hidden_sizes: Sequence[int] = (256, 256),
        learning_rate: float = 0.00063,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] | Callable[[float], float] = "constant",
        learning_rate_end: float = 0.0,
        learning_rate_warmup: float = 0.0,
        max_grad_norm: float | None = 10.0,
        optimizer: str | Mapping[str, Any] = ...,
        adam_eps: float = 1e-08,
        gamma: float = 0.99,
        normalize_observations: bool = False,
        network: str | Mapping[str, Any] = ...,
        buffer_capacity: int = 50000,
        learning_starts: int = 1000,
        train_frequency: int = 4,
        gradient_updates_per_step: int = 4,
        epsilon_start: float = 1.0,
        epsilon_end: float = 0.1,
        exploration_fraction: float = 0.12,
        target_update_interval: int = 250,
        double: bool = False,
        dueling: bool = False,
        n_step: int = 1,
        prioritized: bool = False,
        prioritized_alpha: float = 0.6,
        prioritized_beta_start: float = 0.4,
        noisy: bool = False,
        her: Mapping[str, Any] | None = None,
        num_quantiles: int = 64,
        kappa: float = 1.0,
        num_target_quantiles: int = 64,
        num_policy_quantiles: int = 32,
        num_cosines: int = 64,
    ) -> None: ...

class RainbowDQN(ManagedAlgorithm):
    """Rainbow: C51, double, dueling, n-step, prioritised and noisy.

    Args:
        env: an environment's id, a function that makes one, or a `TrainConfig`
        seed (int, default 0): determines all random numbers of the run (>= 0 and < 2**31)
        total_timesteps (int, default 100000): environment steps per seed; offline, updates (>= 1)
        output_dir (str | Path, default "runs"): the directory in which the run's directory is made
        device (str, default "auto"): auto: a GPU if there is one (one of auto, cpu, cuda, cuda:N)
        num_envs (int, default 1): environments per seed (>= 1)
        eval_episodes (int, default 5): episodes of an evaluation, per seed; 0: no evaluations (>= 0)
        log_interval (int, default 1000): steps between rows of metrics (>= 1)
        checkpoint_interval (int, default 10000): steps between checkpoints (>= 1)
        tags (Sequence[str], default ()): words of your own, stored with the run
        env_kwargs (Mapping[str, Any], default {}): arguments of the environment; `wrappers`
        eval_interval (int | None, default None): steps between evaluations; null: a tenth of the run
            (>= 1)
        keep_checkpoints (int, default 2): checkpoints that stay, the newest ones (>= 1)
        seeds (Sequence[int], default ()): trained together as one program; empty: `seed` alone (>= 0
            and < 2**31)
        compile (str, default "auto"): compile the update; auto: where that saves time (one of auto, on,
            off)
        threads (int | None, default None): threads of one process; null: chosen for the networks (>= 1)
        env_timeout (float, default 300.0): seconds after which a step counts as hung (> 0)
        workers (int | None, default None): environment worker processes; null: chosen for the machine
            (>= 0)
        video (bool, default True): record a video of the agent at the end
        report (bool, default True): write report.html at the end
        tensorboard (bool, default False): write TensorBoard files too: the same as the writer
            tensorboard
        started_from (Mapping[str, Any] | None, default None): the agent file or run whose weights a new
            run starts from: its `path`, perhaps `groups` of weights; a run's own config has its
            `sha256`, `step` and `seeds` too
        eval_episode_limit (int, default 10000): steps after which an episode of an evaluation, a video
            or a recording is cut where the environment has no limit (>= 1)
        run_name (str | None, default None): name of its directory; null: `<algo>-<env>-seed<k>` (a name
            of at most 200 letters, digits and -_.=+ that starts with a letter or digit)
        writers (Mapping[str, Any] | Sequence[str], default ()): places of the metric rows besides
            metrics.jsonl: names, or a mapping from names to options
        info_metrics (Sequence[str], default ("is_success",)): numbers in the info of an episode's last
            step that become metrics; is_success becomes success_rate (a name that is not one of the
            library's)
        schedule_steps (int | None, default None): steps over which all schedules run, at least the
            run's; null: total_timesteps. Extending a run does not change it (>= 1)

    Settings of rainbow_dqn. Defaults: the paper's (table 1); the rest as in DQN:
        batch_size (int, default 128): transitions of one update, per seed (>= 1)
        hidden_sizes (Sequence[int], default (256, 256)): sizes of the hidden layers of the networks
        learning_rate (float, default 0.00063): step size of the optimizer (> 0)
        learning_rate_schedule (Literal["constant", "linear", "cosine"] | Callable[[float], float],
            default "constant"): of the rate over the run; a Python function returns the rate, given the
            share of the run that is done
        learning_rate_end (float, default 0.0): linear, cosine: the share of the rate at the end (in [0,
            1])
        learning_rate_warmup (float, default 0.0): share of the run in which it rises from 0 (in [0, 1))
        max_grad_norm (float | None, default 10.0): clips the norm of gradients (Stable-Baselines3's
            default) (> 0)
        optimizer (str | Mapping[str, Any], default {}): by its name in torch.optim, with options
        adam_eps (float, default 0.00015): the default of the optimizer's `eps` (> 0)
        gamma (float, default 0.99): discount of future rewards (in [0, 1])
        normalize_observations (bool, default False): standardise them by their running mean and
            variance
        network (str | Mapping[str, Any], default {}): layers, and networks of one's own
        buffer_capacity (int, default 50000): transitions in the replay, per seed (>= 1)
        learning_starts (int, default 1000): uniformly random actions and no updates until then (>= 0)
        train_frequency (int, default 4): transitions between trainings (>= 1)
        gradient_updates_per_step (int, default 4): updates per training (>= 1)
        epsilon_start (float, default 1.0): share of random actions at the start (in [0, 1])
        epsilon_end (float, default 0.1): share of random actions after `exploration_fraction` (in [0,
            1])
        exploration_fraction (float, default 0.12): share of the run over which epsilon falls (in [0,
            1])
        target_update_interval (int, default 250): environment steps between copies to the target
            network (>= 1)
        double (bool, default True): the online network chooses the next action (van Hasselt et al.
            2016)
        dueling (bool, default True): separate value and advantages (Wang et al. 2016)
        n_step (int, default 3): rewards in a return before it is bootstrapped (>= 1)
        prioritized (bool, default True): draw transitions in proportion to their errors (Schaul et al.
            2016)
        prioritized_alpha (float, default 0.5): exponent of the priorities; 0: uniform sampling (in [0,
            1])
        prioritized_beta_start (float, default 0.4): exponent of importance weights, 1 at the end (in
            [0, 1])
        noisy (bool, default True): explore by noisy weights, without epsilon (Fortunato et al. 2018)
        her (Mapping[str, Any] | None, default None): relabel goals in hindsight (Andrychowicz et al.
            2017); null: never
        num_atoms (int, default 51): atoms of the distribution of returns (>= 2 and <= 2000)
        v_min (float, default -10.0): the smallest atom (in [-1e+30, 1e+30])
        v_max (float, default 10.0): the largest atom (in [-1e+30, 1e+30])
    """

    def __init__(
        self,
        env: str | TrainConfig | EnvFactory,
        *,
        seed: int = 0,
        total_timesteps: int = 100000,
        output_dir: str | Path = ...,
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 5,
        log_interval: int = 1000,
        checkpoint_interval: int = 10000,
        tags: Sequence[str] = (),
        env_kwargs: Mapping[str, Any] = ...,
        eval_interval: int | None = None,
        keep_checkpoints: int = 2,
        seeds: Sequence[int] = (),
        compile: str = "auto",
        threads: int | None = None,
        env_timeout: float = 300.0,
        workers: int | None = None,
        video: bool = True,
        report: bool = True,
        tensorboard: bool = False,
        started_from: Mapping[str, Any] | None = None,
        eval_episode_limit: int = 10000,
        run_name: str | None = None,
        writers: Mapping[str, Any] | Sequence[str] = (),
        info_metrics: Sequence[str] = ("is_success",),
        schedule_steps: int | None = None,
        batch_size: int = 128,
        hidden_sizes: Sequence[int] = (256, 256),
        learning_rate: float = 0.00063,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] | Callable[[float], float] = "constant",
        learning_rate_end: float = 0.0,
        learning_rate_warmup: float = 0.0,
        max_grad_norm: float | None = 10.0,
        optimizer: str | Mapping[str, Any] = ...,
        adam_eps: float = 0.00015,
        gamma: float = 0.99,
        normalize_observations: bool = False,
        network: str | Mapping[str, Any] = ...,
        buffer_capacity: int = 50000,
        learning_starts: int = 1000,
        train_frequency: int = 4,
        gradient_updates_per_step: int = 4,
        epsilon_start: float = 1.0,
        epsilon_end: float = 0.1,
        exploration_fraction: float = 0.12,
        target_update_interval: int = 250,
        double: bool = True,
        dueling: bool = True,
        n_step: int = 3,
        prioritized: bool = True,
        prioritized_alpha: float = 0.5,
        prioritized_beta_start: float = 0.4,
        noisy: bool = True,
        her: Mapping[str, Any] | None = None,
        num_atoms: int = 51,
        v_min: float = -10.0,
        v_max: float = 10.0,
    ) -> None: ...

class PPO(ManagedAlgorithm):
    """Proximal policy optimisation, with masks, memory and every action space.

    Args:
        env: an environment's id, a function that makes one, or a `TrainConfig`
        seed (int, default 0): determines all random numbers of the run (>= 0 and < 2**31)
        total_timesteps (int, default 100000): environment steps per seed; offline, updates (>= 1)
        output_dir (str | Path, default "runs"): the directory in which the run's directory is made
        device (str, default "auto"): auto: a GPU if there is one (one of auto, cpu, cuda, cuda:N)
        num_envs (int, default 1): environments per seed (>= 1)
        eval_episodes (int, default 5): episodes of an evaluation, per seed; 0: no evaluations (>= 0)
        log_interval (int, default 1000): steps between rows of metrics (>= 1)
        checkpoint_interval (int, default 10000): steps between checkpoints (>= 1)
        tags (Sequence[str], default ()): words of your own, stored with the run
        env_kwargs (Mapping[str, Any], default {}): arguments of the environment; `wrappers`
        eval_interval (int | None, default None): steps between evaluations; null: a tenth of the run
            (>= 1)
        keep_checkpoints (int, default 2): checkpoints that stay, the newest ones (>= 1)
        seeds (Sequence[int], default ()): trained together as one program; empty: `seed` alone (>= 0
            and < 2**31)
        compile (str, default "auto"): compile the update; auto: where that saves time (one of auto, on,
            off)
        threads (int | None, default None): threads of one process; null: chosen for the networks (>= 1)
        env_timeout (float, default 300.0): seconds after which a step counts as hung (> 0)
        workers (int | None, default None): environment worker processes; null: chosen for the machine
            (>= 0)
        video (bool, default True): record a video of the agent at the end
        report (bool, default True): write report.html at the end
        tensorboard (bool, default False): write TensorBoard files too: the same as the writer
            tensorboard
        started_from (Mapping[str, Any] | None, default None): the agent file or run whose weights a new
            run starts from: its `path`, perhaps `groups` of weights; a run's own config has its
            `sha256`, `step` and `seeds` too
        eval_episode_limit (int, default 10000): steps after which an episode of an evaluation, a video
            or a recording is cut where the environment has no limit (>= 1)
        run_name (str | None, default None): name of its directory; null: `<algo>-<env>-seed<k>` (a name
            of at most 200 letters, digits and -_.=+ that starts with a letter or digit)
        writers (Mapping[str, Any] | Sequence[str], default ()): places of the metric rows besides
            metrics.jsonl: names, or a mapping from names to options
        info_metrics (Sequence[str], default ("is_success",)): numbers in the info of an episode's last
            step that become metrics; is_success becomes success_rate (a name that is not one of the
            library's)
        schedule_steps (int | None, default None): steps over which all schedules run, at least the
            run's; null: total_timesteps. Extending a run does not change it (>= 1)

    Settings of ppo. Defaults: Stable-Baselines3's PPO:
        batch_size (int, default 64): transitions of a minibatch: of one update, per seed (>= 1)
        hidden_sizes (Sequence[int], default (64, 64)): sizes of the hidden layers of the networks
        learning_rate (float, default 0.0003): step size of the optimizer (> 0)
        learning_rate_schedule (Literal["constant", "linear", "cosine"] | Callable[[float], float],
            default "constant"): of the rate over the run; a Python function returns the rate, given the
            share of the run that is done
        learning_rate_end (float, default 0.0): linear, cosine: the share of the rate at the end (in [0,
            1])
        learning_rate_warmup (float, default 0.0): share of the run in which it rises from 0 (in [0, 1))
        max_grad_norm (float | None, default 0.5): clips the norm of gradients; null: not (> 0)
        optimizer (str | Mapping[str, Any], default {}): by its name in torch.optim, with options
        adam_eps (float, default 1e-05): the default of the optimizer's `eps` (> 0)
        gamma (float, default 0.99): discount of future rewards (in [0, 1])
        normalize_observations (bool, default False): standardise them by their running mean and
            variance
        network (str | Mapping[str, Any], default {}): layers, and networks of one's own
        rollout_steps (int, default 2048): steps of each environment between two trainings (>= 1)
        epochs (int, default 10): passes over a rollout, each in another order (>= 1)
        gae_lambda (float, default 0.95): of advantages: 0 one step, 1 whole returns (in [0, 1])
        value_weight (float, default 0.5): of the mean squared error of the value function (>= 0)
        entropy_weight (float, default 0.0): of the entropy, which keeps the policy random (>= 0)
        normalize_advantages (str, default "minibatch"): to mean 0, deviation 1 (one of minibatch,
            batch, off)
        normalize_returns (bool, default False): the value function predicts them divided by their
            running deviation
        shared_network (bool | None, default None): of actor and critic, but their last layers; null:
            with images only
        predicted_log_std (bool, default False): of Box actions: computed from the observation; else a
            parameter
        initial_log_std (float, default 0.0): of Box actions in [-1, 1] (in [-20, 2])
        recurrent (Literal["lstm", "gru"] | None, default None): memory of earlier steps in the episode
        recurrent_size (int, default 128): numbers in the memory (>= 1)
        sequence_length (int, default 16): with memory: consecutive steps of a row in a minibatch (>= 1)
        clip_range (float, default 0.2): the probability of an action changes by this share at most (>
            0)
        value_clip_range (float | None, default None): the value changes by this at most; null: any
            amount (> 0)
        recompute_advantages (bool, default False): before every epoch, with the values learned so far
        target_kl (float | None, default None): a seed's update of a rollout stops at 1.5 times this
            divergence (> 0)
        learning_rate_kl (float | None, default None): the learning rate adapts to this divergence;
            null: not (> 0)
    """

    def __init__(
        self,
        env: str | TrainConfig | EnvFactory,
        *,
        seed: int = 0,
        total_timesteps: int = 100000,
        output_dir: str | Path = ...,
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 5,
        log_interval: int = 1000,
        checkpoint_interval: int = 10000,
        tags: Sequence[str] = (),
        env_kwargs: Mapping[str, Any] = ...,
        eval_interval: int | None = None,
        keep_checkpoints: int = 2,
        seeds: Sequence[int] = (),
        compile: str = "auto",
        threads: int | None = None,
        env_timeout: float = 300.0,
        workers: int | None = None,
        video: bool = True,
        report: bool = True,
        tensorboard: bool = False,
        started_from: Mapping[str, Any] | None = None,
        eval_episode_limit: int = 10000,
        run_name: str | None = None,
        writers: Mapping[str, Any] | Sequence[str] = (),
        info_metrics: Sequence[str] = ("is_success",),
        schedule_steps: int | None = None,
        batch_size: int = 64,
        hidden_sizes: Sequence[int] = (64, 64),
        learning_rate: float = 0.0003,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] | Callable[[float], float] = "constant",
        learning_rate_end: float = 0.0,
        learning_rate_warmup: float = 0.0,
        max_grad_norm: float | None = 0.5,
        optimizer: str | Mapping[str, Any] = ...,
        adam_eps: float = 1e-05,
        gamma: float = 0.99,
        normalize_observations: bool = False,
        network: str | Mapping[str, Any] = ...,
        rollout_steps: int = 2048,
        epochs: int = 10,
        gae_lambda: float = 0.95,
        value_weight: float = 0.5,
        entropy_weight: float = 0.0,
        normalize_advantages: str = "minibatch",
        normalize_returns: bool = False,
        shared_network: bool | None = None,
        predicted_log_std: bool = False,
        initial_log_std: float = 0.0,
        recurrent: Literal["lstm", "gru"] | None = None,
        recurrent_size: int = 128,
        sequence_length: int = 16,
        clip_range: float = 0.2,
        value_clip_range: float | None = None,
        recompute_advantages: bool = False,
        target_kl: float | None = None,
        learning_rate_kl: float | None = None,
    ) -> None: ...

class A2C(ManagedAlgorithm):
    """Advantage actor-critic: one update on every rollout.

    Args:
        env: an environment's id, a function that makes one, or a `TrainConfig`
        seed (int, default 0): determines all random numbers of the run (>= 0 and < 2**31)
        total_timesteps (int, default 100000): environment steps per seed; offline, updates (>= 1)
        output_dir (str | Path, default "runs"): the directory in which the run's directory is made
        device (str, default "auto"): auto: a GPU if there is one (one of auto, cpu, cuda, cuda:N)
        num_envs (int, default 1): environments per seed (>= 1)
        eval_episodes (int, default 5): episodes of an evaluation, per seed; 0: no evaluations (>= 0)
        log_interval (int, default 1000): steps between rows of metrics (>= 1)
        checkpoint_interval (int, default 10000): steps between checkpoints (>= 1)
        tags (Sequence[str], default ()): words of your own, stored with the run
        env_kwargs (Mapping[str, Any], default {}): arguments of the environment; `wrappers`
        eval_interval (int | None, default None): steps between evaluations; null: a tenth of the run
            (>= 1)
        keep_checkpoints (int, default 2): checkpoints that stay, the newest ones (>= 1)
        seeds (Sequence[int], default ()): trained together as one program; empty: `seed` alone (>= 0
            and < 2**31)
        compile (str, default "auto"): compile the update; auto: where that saves time (one of auto, on,
            off)
        threads (int | None, default None): threads of one process; null: chosen for the networks (>= 1)
        env_timeout (float, default 300.0): seconds after which a step counts as hung (> 0)
        workers (int | None, default None): environment worker processes; null: chosen for the machine
            (>= 0)
        video (bool, default True): record a video of the agent at the end
        report (bool, default True): write report.html at the end
        tensorboard (bool, default False): write TensorBoard files too: the same as the writer
            tensorboard
        started_from (Mapping[str, Any] | None, default None): the agent file or run whose weights a new
            run starts from: its `path`, perhaps `groups` of weights; a run's own config has its
            `sha256`, `step` and `seeds` too
        eval_episode_limit (int, default 10000): steps after which an episode of an evaluation, a video
            or a recording is cut where the environment has no limit (>= 1)
        run_name (str | None, default None): name of its directory; null: `<algo>-<env>-seed<k>` (a name
            of at most 200 letters, digits and -_.=+ that starts with a letter or digit)
        writers (Mapping[str, Any] | Sequence[str], default ()): places of the metric rows besides
            metrics.jsonl: names, or a mapping from names to options
        info_metrics (Sequence[str], default ("is_success",)): numbers in the info of an episode's last
            step that become metrics; is_success becomes success_rate (a name that is not one of the
            library's)
        schedule_steps (int | None, default None): steps over which all schedules run, at least the
            run's; null: total_timesteps. Extending a run does not change it (>= 1)

    Settings of a2c. Defaults: Stable-Baselines3's A2C. One update on every rollout, with all its
    transitions:
        hidden_sizes (Sequence[int], default (64, 64)): sizes of the hidden layers of the networks
        learning_rate (float, default 0.0007): step size of the optimizer (> 0)
        learning_rate_schedule (Literal["constant", "linear", "cosine"] | Callable[[float], float],
            default "constant"): of the rate over the run; a Python function returns the rate, given the
            share of the run that is done
        learning_rate_end (float, default 0.0): linear, cosine: the share of the rate at the end (in [0,
            1])
        learning_rate_warmup (float, default 0.0): share of the run in which it rises from 0 (in [0, 1))
        max_grad_norm (float | None, default 0.5): clips the norm of gradients; null: not (> 0)
        optimizer (str | Mapping[str, Any], default {'name': 'RMSprop'}): by its name in torch.optim,
            with options
        adam_eps (float, default 1e-05): the default of the optimizer's `eps` (> 0)
        gamma (float, default 0.99): discount of future rewards (in [0, 1])
        normalize_observations (bool, default False): standardise them by their running mean and
            variance
        network (str | Mapping[str, Any], default {}): layers, and networks of one's own
        rollout_steps (int, default 5): steps of each environment between two trainings (>= 1)
        gae_lambda (float, default 1.0): of advantages: 0 one step, 1 whole returns (in [0, 1])
        value_weight (float, default 0.5): of the mean squared error of the value function (>= 0)
        entropy_weight (float, default 0.0): of the entropy, which keeps the policy random (>= 0)
        normalize_advantages (str, default "off"): to mean 0, deviation 1 (one of minibatch, batch, off)
        normalize_returns (bool, default False): the value function predicts them divided by their
            running deviation
        shared_network (bool | None, default None): of actor and critic, but their last layers; null:
            with images only
        predicted_log_std (bool, default False): of Box actions: computed from the observation; else a
            parameter
        initial_log_std (float, default 0.0): of Box actions in [-1, 1] (in [-20, 2])
        recurrent (Literal["lstm", "gru"] | None, default None): memory of earlier steps in the episode
        recurrent_size (int, default 128): numbers in the memory (>= 1)
        sequence_length (int, default 5): with memory: consecutive steps of a row in a minibatch (>= 1)
    """

    def __init__(
        self,
        env: str | TrainConfig | EnvFactory,
        *,
        seed: int = 0,
        total_timesteps: int = 100000,
        output_dir: str | Path = ...,
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 5,
        log_interval: int = 1000,
        checkpoint_interval: int = 10000,
        tags: Sequence[str] = (),
        env_kwargs: Mapping[str, Any] = ...,
        eval_interval: int | None = None,
        keep_checkpoints: int = 2,
        seeds: Sequence[int] = (),
        compile: str = "auto",
        threads: int | None = None,
        env_timeout: float = 300.0,
        workers: int | None = None,
        video: bool = True,
        report: bool = True,
        tensorboard: bool = False,
        started_from: Mapping[str, Any] | None = None,
        eval_episode_limit: int = 10000,
        run_name: str | None = None,
        writers: Mapping[str, Any] | Sequence[str] = (),
        info_metrics: Sequence[str] = ("is_success",),
        schedule_steps: int | None = None,
        hidden_sizes: Sequence[int] = (64, 64),
        learning_rate: float = 0.0007,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] | Callable[[float], float] = "constant",
        learning_rate_end: float = 0.0,
        learning_rate_warmup: float = 0.0,
        max_grad_norm: float | None = 0.5,
        optimizer: str | Mapping[str, Any] = ...,
        adam_eps: float = 1e-05,
        gamma: float = 0.99,
        normalize_observations: bool = False,
        network: str | Mapping[str, Any] = ...,
        rollout_steps: int = 5,
        gae_lambda: float = 1.0,
        value_weight: float = 0.5,
        entropy_weight: float = 0.0,
        normalize_advantages: str = "off",
        normalize_returns: bool = False,
        shared_network: bool | None = None,
        predicted_log_std: bool = False,
        initial_log_std: float = 0.0,
        recurrent: Literal["lstm", "gru"] | None = None,
        recurrent_size: int = 128,
        sequence_length: int = 5,
    ) -> None: ...

class PQN(ManagedAlgorithm):
    """Parallelised Q-network: Q(lambda) with layer norm, without replay or target network.

    Args:
        env: an environment's id, a function that makes one, or a `TrainConfig`
        seed (int, default 0): determines all random numbers of the run (>= 0 and < 2**31)
        total_timesteps (int, default 100000): environment steps per seed; offline, updates (>= 1)
        output_dir (str | Path, default "runs"): the directory in which the run's directory is made
        device (str, default "auto"): auto: a GPU if there is one (one of auto, cpu, cuda, cuda:N)
        num_envs (int, default 1): environments per seed (>= 1)
        eval_episodes (int, default 5): episodes of an evaluation, per seed; 0: no evaluations (>= 0)
        log_interval (int, default 1000): steps between rows of metrics (>= 1)
        checkpoint_interval (int, default 10000): steps between checkpoints (>= 1)
        tags (Sequence[str], default ()): words of your own, stored with the run
        env_kwargs (Mapping[str, Any], default {}): arguments of the environment; `wrappers`
        eval_interval (int | None, default None): steps between evaluations; null: a tenth of the run
            (>= 1)
        keep_checkpoints (int, default 2): checkpoints that stay, the newest ones (>= 1)
        seeds (Sequence[int], default ()): trained together as one program; empty: `seed` alone (>= 0
            and < 2**31)
        compile (str, default "auto"): compile the update; auto: where that saves time (one of auto, on,
            off)
        threads (int | None, default None): threads of one process; null: chosen for the networks (>= 1)
        env_timeout (float, default 300.0): seconds after which a step counts as hung (> 0)
        workers (int | None, default None): environment worker processes; null: chosen for the machine
            (>= 0)
        video (bool, default True): record a video of the agent at the end
        report (bool, default True): write report.html at the end
        tensorboard (bool, default False): write TensorBoard files too: the same as the writer
            tensorboard
        started_from (Mapping[str, Any] | None, default None): the agent file or run whose weights a new
            run starts from: its `path`, perhaps `groups` of weights; a run's own config has its
            `sha256`, `step` and `seeds` too
        eval_episode_limit (int, default 10000): steps after which an episode of an evaluation, a video
            or a recording is cut where the environment has no limit (>= 1)
        run_name (str | None, default None): name of its directory; null: `<algo>-<env>-seed<k>` (a name
            of at most 200 letters, digits and -_.=+ that starts with a letter or digit)
        writers (Mapping[str, Any] | Sequence[str], default ()): places of the metric rows besides
            metrics.jsonl: names, or a mapping from names to options
        info_metrics (Sequence[str], default ("is_success",)): numbers in the info of an episode's last
            step that become metrics; is_success becomes success_rate (a name that is not one of the
            library's)
        schedule_steps (int | None, default None): steps over which all schedules run, at least the
            run's; null: total_timesteps. Extending a run does not change it (>= 1)

    Settings of pqn. Defaults: CleanRL's pqn.py, with the optimizer of its Atari version for every task:
        batch_size (int, default 128): transitions of a minibatch: of one update, per seed (>= 1)
        hidden_sizes (Sequence[int], default (120, 84)): sizes of the hidden layers of the networks
        learning_rate (float, default 0.00025): step size of the optimizer (> 0)
        learning_rate_schedule (Literal["constant", "linear", "cosine"] | Callable[[float], float],
            default "linear"): of the rate over the run; a Python function returns the rate, given the
            share of the run that is done
        learning_rate_end (float, default 0.0): linear, cosine: the share of the rate at the end (in [0,
            1])
        learning_rate_warmup (float, default 0.0): share of the run in which it rises from 0 (in [0, 1))
        max_grad_norm (float | None, default 10.0): clips the norm of gradients; null: not (> 0)
        optimizer (str | Mapping[str, Any], default {'name': 'RAdam'}): by its name in torch.optim, with
            options
        adam_eps (float, default 1e-08): the default of the optimizer's `eps` (> 0)
        gamma (float, default 0.99): discount of future rewards (in [0, 1])
        normalize_observations (bool, default False): standardise them by their running mean and
            variance
        network (str | Mapping[str, Any], default {}): layers, or one's own
        rollout_steps (int, default 128): steps of each environment between two trainings (>= 1)
        epochs (int, default 4): passes over a rollout, each in another order (>= 1)
        epsilon_start (float, default 1.0): share of random actions at the start (in [0, 1])
        epsilon_end (float, default 0.05): share of random actions after `exploration_fraction` (in [0,
            1])
        exploration_fraction (float, default 0.5): share of the run over which epsilon falls (in [0, 1])
        q_lambda (float, default 0.65): of returns: 0 one step, 1 whole episodes (in [0, 1])
    """

    def __init__(
        self,
        env: str | TrainConfig | EnvFactory,
        *,
        seed: int = 0,
        total_timesteps: int = 100000,
        output_dir: str | Path = ...,
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 5,
        log_interval: int = 1000,
        checkpoint_interval: int = 10000,
        tags: Sequence[str] = (),
        env_kwargs: Mapping[str, Any] = ...,
        eval_interval: int | None = None,
        keep_checkpoints: int = 2,
        seeds: Sequence[int] = (),
        compile: str = "auto",
        threads: int | None = None,
        env_timeout: float = 300.0,
        workers: int | None = None,
        video: bool = True,
        report: bool = True,
        tensorboard: bool = False,
        started_from: Mapping[str, Any] | None = None,
        eval_episode_limit: int = 10000,
        run_name: str | None = None,
        writers: Mapping[str, Any] | Sequence[str] = (),
        info_metrics: Sequence[str] = ("is_success",),
        schedule_steps: int | None = None,
        batch_size: int = 128,
        hidden_sizes: Sequence[int] = (120, 84),
        learning_rate: float = 0.00025,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] | Callable[[float], float] = "linear",
        learning_rate_end: float = 0.0,
        learning_rate_warmup: float = 0.0,
        max_grad_norm: float | None = 10.0,
        optimizer: str | Mapping[str, Any] = ...,
        adam_eps: float = 1e-08,
        gamma: float = 0.99,
        normalize_observations: bool = False,
        network: str | Mapping[str, Any] = ...,
        rollout_steps: int = 128,
        epochs: int = 4,
        epsilon_start: float = 1.0,
        epsilon_end: float = 0.05,
        exploration_fraction: float = 0.5,
        q_lambda: float = 0.65,
    ) -> None: ...

class SAC(ManagedAlgorithm):
    """Soft actor-critic with a tuned or fixed temperature and any number of critics.

    Args:
        env: an environment's id, a function that makes one, or a `TrainConfig`
        seed (int, default 0): determines all random numbers of the run (>= 0 and < 2**31)
        total_timesteps (int, default 100000): environment steps per seed; offline, updates (>= 1)
        output_dir (str | Path, default "runs"): the directory in which the run's directory is made
        device (str, default "auto"): auto: a GPU if there is one (one of auto, cpu, cuda, cuda:N)
        num_envs (int, default 1): environments per seed (>= 1)
        eval_episodes (int, default 5): episodes of an evaluation, per seed; 0: no evaluations (>= 0)
        log_interval (int, default 1000): steps between rows of metrics (>= 1)
        checkpoint_interval (int, default 10000): steps between checkpoints (>= 1)
        tags (Sequence[str], default ()): words of your own, stored with the run
        env_kwargs (Mapping[str, Any], default {}): arguments of the environment; `wrappers`
        eval_interval (int | None, default None): steps between evaluations; null: a tenth of the run
            (>= 1)
        keep_checkpoints (int, default 2): checkpoints that stay, the newest ones (>= 1)
        seeds (Sequence[int], default ()): trained together as one program; empty: `seed` alone (>= 0
            and < 2**31)
        compile (str, default "auto"): compile the update; auto: where that saves time (one of auto, on,
            off)
        threads (int | None, default None): threads of one process; null: chosen for the networks (>= 1)
        env_timeout (float, default 300.0): seconds after which a step counts as hung (> 0)
        workers (int | None, default None): environment worker processes; null: chosen for the machine
            (>= 0)
        video (bool, default True): record a video of the agent at the end
        report (bool, default True): write report.html at the end
        tensorboard (bool, default False): write TensorBoard files too: the same as the writer
            tensorboard
        started_from (Mapping[str, Any] | None, default None): the agent file or run whose weights a new
            run starts from: its `path`, perhaps `groups` of weights; a run's own config has its
            `sha256`, `step` and `seeds` too
        eval_episode_limit (int, default 10000): steps after which an episode of an evaluation, a video
            or a recording is cut where the environment has no limit (>= 1)
        run_name (str | None, default None): name of its directory; null: `<algo>-<env>-seed<k>` (a name
            of at most 200 letters, digits and -_.=+ that starts with a letter or digit)
        writers (Mapping[str, Any] | Sequence[str], default ()): places of the metric rows besides
            metrics.jsonl: names, or a mapping from names to options
        info_metrics (Sequence[str], default ("is_success",)): numbers in the info of an episode's last
            step that become metrics; is_success becomes success_rate (a name that is not one of the
            library's)
        schedule_steps (int | None, default None): steps over which all schedules run, at least the
            run's; null: total_timesteps. Extending a run does not change it (>= 1)

    Settings of sac. Defaults: Stable-Baselines3 sac.py (the paper's table, with the tuned temperature):
        batch_size (int, default 256): transitions of one update, per seed (>= 1)
        hidden_sizes (Sequence[int], default (256, 256)): sizes of the hidden layers of the networks
        learning_rate (float, default 0.0003): step size of the optimizer (> 0)
        learning_rate_schedule (Literal["constant", "linear", "cosine"] | Callable[[float], float],
            default "constant"): of the rate over the run; a Python function returns the rate, given the
            share of the run that is done
        learning_rate_end (float, default 0.0): linear, cosine: the share of the rate at the end (in [0,
            1])
        learning_rate_warmup (float, default 0.0): share of the run in which it rises from 0 (in [0, 1))
        max_grad_norm (float | None, default None): clips the norm of gradients; null: not (> 0)
        optimizer (str | Mapping[str, Any], default {}): by its name in torch.optim, with options
        adam_eps (float, default 1e-08): the default of the optimizer's `eps` (> 0)
        gamma (float, default 0.99): discount of future rewards (in [0, 1])
        normalize_observations (bool, default False): standardise them by their running mean and
            variance
        network (str | Mapping[str, Any], default {}): layers, and networks of one's own
        buffer_capacity (int, default 1000000): transitions in the replay, per seed (>= 1)
        learning_starts (int, default 100): uniformly random actions and no updates until then (>= 0)
        train_frequency (int, default 1): transitions between trainings (>= 1)
        gradient_updates_per_step (int, default 1): updates per training (>= 1)
        tau (float, default 0.005): share of a network that its target takes over at each update (in [0,
            1])
        alpha (float | Literal["auto"], default "auto"): entropy temperature; auto: tuned (>= 0)
        initial_alpha (float, default 1.0): the initial value of a tuned temperature (>= 1e-08)
        target_entropy (float | Literal["auto"], default "auto"): of a tuned one; auto: minus the action
            dimensions
        num_critics (int, default 2): critics; the smallest value counts (>= 1)
        precision (str, default "float32"): of matrix products and convolutions (one of float32,
            bfloat16)
        her (Mapping[str, Any] | None, default None): relabel goals in hindsight (Andrychowicz et al.
            2017); null: never
    """

    def __init__(
        self,
        env: str | TrainConfig | EnvFactory,
        *,
        seed: int = 0,
        total_timesteps: int = 100000,
        output_dir: str | Path = ...,
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 5,
        log_interval: int = 1000,
        checkpoint_interval: int = 10000,
        tags: Sequence[str] = (),
        env_kwargs: Mapping[str, Any] = ...,
        eval_interval: int | None = None,
        keep_checkpoints: int = 2,
        seeds: Sequence[int] = (),
        compile: str = "auto",
        threads: int | None = None,
        env_timeout: float = 300.0,
        workers: int | None = None,
        video: bool = True,
        report: bool = True,
        tensorboard: bool = False,
        started_from: Mapping[str, Any] | None = None,
        eval_episode_limit: int = 10000,
        run_name: str | None = None,
        writers: Mapping[str, Any] | Sequence[str] = (),
        info_metrics: Sequence[str] = ("is_success",),
        schedule_steps: int | None = None,
        batch_size: int = 256,
        hidden_sizes: Sequence[int] = (256, 256),
        learning_rate: float = 0.0003,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] | Callable[[float], float] = "constant",
        learning_rate_end: float = 0.0,
        learning_rate_warmup: float = 0.0,
        max_grad_norm: float | None = None,
        optimizer: str | Mapping[str, Any] = ...,
        adam_eps: float = 1e-08,
        gamma: float = 0.99,
        normalize_observations: bool = False,
        network: str | Mapping[str, Any] = ...,
        buffer_capacity: int = 1000000,
        learning_starts: int = 100,
        train_frequency: int = 1,
        gradient_updates_per_step: int = 1,
        tau: float = 0.005,
        alpha: float | Literal["auto"] = "auto",
        initial_alpha: float = 1.0,
        target_entropy: float | Literal["auto"] = "auto",
        num_critics: int = 2,
        precision: str = "float32",
        her: Mapping[str, Any] | None = None,
    ) -> None: ...

class DiscreteSAC(ManagedAlgorithm):
    """Soft actor-critic for discrete actions.

    Args:
        env: an environment's id, a function that makes one, or a `TrainConfig`
        seed (int, default 0): determines all random numbers of the run (>= 0 and < 2**31)
        total_timesteps (int, default 100000): environment steps per seed; offline, updates (>= 1)
        output_dir (str | Path, default "runs"): the directory in which the run's directory is made
        device (str, default "auto"): auto: a GPU if there is one (one of auto, cpu, cuda, cuda:N)
        num_envs (int, default 1): environments per seed (>= 1)
        eval_episodes (int, default 5): episodes of an evaluation, per seed; 0: no evaluations (>= 0)
        log_interval (int, default 1000): steps between rows of metrics (>= 1)
        checkpoint_interval (int, default 10000): steps between checkpoints (>= 1)
        tags (Sequence[str], default ()): words of your own, stored with the run
        env_kwargs (Mapping[str, Any], default {}): arguments of the environment; `wrappers`
        eval_interval (int | None, default None): steps between evaluations; null: a tenth of the run
            (>= 1)
        keep_checkpoints (int, default 2): checkpoints that stay, the newest ones (>= 1)
        seeds (Sequence[int], default ()): trained together as one program; empty: `seed` alone (>= 0
            and < 2**31)
        compile (str, default "auto"): compile the update; auto: where that saves time (one of auto, on,
            off)
        threads (int | None, default None): threads of one process; null: chosen for the networks (>= 1)
        env_timeout (float, default 300.0): seconds after which a step counts as hung (> 0)
        workers (int | None, default None): environment worker processes; null: chosen for the machine
            (>= 0)
        video (bool, default True): record a video of the agent at the end
        report (bool, default True): write report.html at the end
        tensorboard (bool, default False): write TensorBoard files too: the same as the writer
            tensorboard
        started_from (Mapping[str, Any] | None, default None): the agent file or run whose weights a new
            run starts from: its `path`, perhaps `groups` of weights; a run's own config has its
            `sha256`, `step` and `seeds` too
        eval_episode_limit (int, default 10000): steps after which an episode of an evaluation, a video
            or a recording is cut where the environment has no limit (>= 1)
        run_name (str | None, default None): name of its directory; null: `<algo>-<env>-seed<k>` (a name
            of at most 200 letters, digits and -_.=+ that starts with a letter or digit)
        writers (Mapping[str, Any] | Sequence[str], default ()): places of the metric rows besides
            metrics.jsonl: names, or a mapping from names to options
        info_metrics (Sequence[str], default ("is_success",)): numbers in the info of an episode's last
            step that become metrics; is_success becomes success_rate (a name that is not one of the
            library's)
        schedule_steps (int | None, default None): steps over which all schedules run, at least the
            run's; null: total_timesteps. Extending a run does not change it (>= 1)

    Settings of discrete_sac. Defaults: those of SAC, with the replay of DQN. The paper's share of 0.98
    keeps the policy nearly uniform; a lower one learns better:
        batch_size (int, default 256): transitions of one update, per seed (>= 1)
        hidden_sizes (Sequence[int], default (256, 256)): sizes of the hidden layers of the networks
        learning_rate (float, default 0.0003): step size of the optimizer (> 0)
        learning_rate_schedule (Literal["constant", "linear", "cosine"] | Callable[[float], float],
            default "constant"): of the rate over the run; a Python function returns the rate, given the
            share of the run that is done
        learning_rate_end (float, default 0.0): linear, cosine: the share of the rate at the end (in [0,
            1])
        learning_rate_warmup (float, default 0.0): share of the run in which it rises from 0 (in [0, 1))
        max_grad_norm (float | None, default None): clips the norm of gradients; null: not (> 0)
        optimizer (str | Mapping[str, Any], default {}): by its name in torch.optim, with options
        adam_eps (float, default 1e-08): the default of the optimizer's `eps` (> 0)
        gamma (float, default 0.99): discount of future rewards (in [0, 1])
        normalize_observations (bool, default False): standardise them by their running mean and
            variance
        network (str | Mapping[str, Any], default {}): layers, and networks of one's own
        buffer_capacity (int, default 100000): transitions in the replay, per seed (>= 1)
        learning_starts (int, default 1000): uniformly random actions and no updates until then (>= 0)
        train_frequency (int, default 1): transitions between trainings (>= 1)
        gradient_updates_per_step (int, default 1): updates per training (>= 1)
        tau (float, default 0.005): share of a network that its target takes over at each update (in [0,
            1])
        alpha (float | Literal["auto"], default "auto"): entropy temperature; auto: tuned (>= 0)
        initial_alpha (float, default 1.0): the initial value of a tuned temperature (>= 1e-08)
        target_entropy (float | Literal["auto"], default "auto"): of a tuned one; auto: minus the action
            dimensions
        num_critics (int, default 2): critics; the smallest value counts (>= 1)
        precision (str, default "float32"): of matrix products and convolutions (one of float32,
            bfloat16)
        her (Mapping[str, Any] | None, default None): relabel goals in hindsight (Andrychowicz et al.
            2017); null: never
        target_entropy_share (float, default 0.5): of log(actions): `target_entropy: auto` (in [0, 1])
    """

    def __init__(
        self,
        env: str | TrainConfig | EnvFactory,
        *,
        seed: int = 0,
        total_timesteps: int = 100000,
        output_dir: str | Path = ...,
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 5,
        log_interval: int = 1000,
        checkpoint_interval: int = 10000,
        tags: Sequence[str] = (),
        env_kwargs: Mapping[str, Any] = ...,
        eval_interval: int | None = None,
        keep_checkpoints: int = 2,
        seeds: Sequence[int] = (),
        compile: str = "auto",
        threads: int | None = None,
        env_timeout: float = 300.0,
        workers: int | None = None,
        video: bool = True,
        report: bool = True,
        tensorboard: bool = False,
        started_from: Mapping[str, Any] | None = None,
        eval_episode_limit: int = 10000,
        run_name: str | None = None,
        writers: Mapping[str, Any] | Sequence[str] = (),
        info_metrics: Sequence[str] = ("is_success",),
        schedule_steps: int | None = None,
        batch_size: int = 256,
        hidden_sizes: Sequence[int] = (256, 256),
        learning_rate: float = 0.0003,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] | Callable[[float], float] = "constant",
        learning_rate_end: float = 0.0,
        learning_rate_warmup: float = 0.0,
        max_grad_norm: float | None = None,
        optimizer: str | Mapping[str, Any] = ...,
        adam_eps: float = 1e-08,
        gamma: float = 0.99,
        normalize_observations: bool = False,
        network: str | Mapping[str, Any] = ...,
        buffer_capacity: int = 100000,
        learning_starts: int = 1000,
        train_frequency: int = 1,
        gradient_updates_per_step: int = 1,
        tau: float = 0.005,
        alpha: float | Literal["auto"] = "auto",
        initial_alpha: float = 1.0,
        target_entropy: float | Literal["auto"] = "auto",
        num_critics: int = 2,
        precision: str = "float32",
        her: Mapping[str, Any] | None = None,
        target_entropy_share: float = 0.5,
    ) -> None: ...

class TD3(ManagedAlgorithm):
    """Twin delayed deep deterministic policy gradient.

    Args:
        env: an environment's id, a function that makes one, or a `TrainConfig`
        seed (int, default 0): determines all random numbers of the run (>= 0 and < 2**31)
        total_timesteps (int, default 100000): environment steps per seed; offline, updates (>= 1)
        output_dir (str | Path, default "runs"): the directory in which the run's directory is made
        device (str, default "auto"): auto: a GPU if there is one (one of auto, cpu, cuda, cuda:N)
        num_envs (int, default 1): environments per seed (>= 1)
        eval_episodes (int, default 5): episodes of an evaluation, per seed; 0: no evaluations (>= 0)
        log_interval (int, default 1000): steps between rows of metrics (>= 1)
        checkpoint_interval (int, default 10000): steps between checkpoints (>= 1)
        tags (Sequence[str], default ()): words of your own, stored with the run
        env_kwargs (Mapping[str, Any], default {}): arguments of the environment; `wrappers`
        eval_interval (int | None, default None): steps between evaluations; null: a tenth of the run
            (>= 1)
        keep_checkpoints (int, default 2): checkpoints that stay, the newest ones (>= 1)
        seeds (Sequence[int], default ()): trained together as one program; empty: `seed` alone (>= 0
            and < 2**31)
        compile (str, default "auto"): compile the update; auto: where that saves time (one of auto, on,
            off)
        threads (int | None, default None): threads of one process; null: chosen for the networks (>= 1)
        env_timeout (float, default 300.0): seconds after which a step counts as hung (> 0)
        workers (int | None, default None): environment worker processes; null: chosen for the machine
            (>= 0)
        video (bool, default True): record a video of the agent at the end
        report (bool, default True): write report.html at the end
        tensorboard (bool, default False): write TensorBoard files too: the same as the writer
            tensorboard
        started_from (Mapping[str, Any] | None, default None): the agent file or run whose weights a new
            run starts from: its `path`, perhaps `groups` of weights; a run's own config has its
            `sha256`, `step` and `seeds` too
        eval_episode_limit (int, default 10000): steps after which an episode of an evaluation, a video
            or a recording is cut where the environment has no limit (>= 1)
        run_name (str | None, default None): name of its directory; null: `<algo>-<env>-seed<k>` (a name
            of at most 200 letters, digits and -_.=+ that starts with a letter or digit)
        writers (Mapping[str, Any] | Sequence[str], default ()): places of the metric rows besides
            metrics.jsonl: names, or a mapping from names to options
        info_metrics (Sequence[str], default ("is_success",)): numbers in the info of an episode's last
            step that become metrics; is_success becomes success_rate (a name that is not one of the
            library's)
        schedule_steps (int | None, default None): steps over which all schedules run, at least the
            run's; null: total_timesteps. Extending a run does not change it (>= 1)

    Settings of td3. Defaults: the authors' code (sfujim/TD3 TD3.py, main.py). Noise is in units of half
    the action range:
        batch_size (int, default 256): transitions of one update, per seed (>= 1)
        hidden_sizes (Sequence[int], default (256, 256)): sizes of the hidden layers of the networks
        learning_rate (float, default 0.0003): step size of the optimizer (> 0)
        learning_rate_schedule (Literal["constant", "linear", "cosine"] | Callable[[float], float],
            default "constant"): of the rate over the run; a Python function returns the rate, given the
            share of the run that is done
        learning_rate_end (float, default 0.0): linear, cosine: the share of the rate at the end (in [0,
            1])
        learning_rate_warmup (float, default 0.0): share of the run in which it rises from 0 (in [0, 1))
        max_grad_norm (float | None, default None): clips the norm of gradients; null: not (> 0)
        optimizer (str | Mapping[str, Any], default {}): by its name in torch.optim, with options
        adam_eps (float, default 1e-08): the default of the optimizer's `eps` (> 0)
        gamma (float, default 0.99): discount of future rewards (in [0, 1])
        normalize_observations (bool, default False): standardise them by their running mean and
            variance
        network (str | Mapping[str, Any], default {}): layers, and networks of one's own
        buffer_capacity (int, default 1000000): transitions in the replay, per seed (>= 1)
        learning_starts (int, default 25000): uniformly random actions and no updates until then (>= 0)
        train_frequency (int, default 1): transitions between trainings (>= 1)
        gradient_updates_per_step (int, default 1): updates per training (>= 1)
        tau (float, default 0.005): share of a network that its target takes over at each update (in [0,
            1])
        exploration_noise (float, default 0.1): standard deviation of the noise added to actions (>= 0)
        policy_noise (float, default 0.2): standard deviation of the noise that smooths the target
            policy (>= 0)
        noise_clip (float, default 0.5): bound of that noise (>= 0)
        policy_delay (int, default 2): updates of the critics for each of the actor and the targets (>=
            1)
        her (Mapping[str, Any] | None, default None): relabel goals in hindsight (Andrychowicz et al.
            2017); null: never
    """

    def __init__(
        self,
        env: str | TrainConfig | EnvFactory,
        *,
        seed: int = 0,
        total_timesteps: int = 100000,
        output_dir: str | Path = ...,
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 5,
        log_interval: int = 1000,
        checkpoint_interval: int = 10000,
        tags: Sequence[str] = (),
        env_kwargs: Mapping[str, Any] = ...,
        eval_interval: int | None = None,
        keep_checkpoints: int = 2,
        seeds: Sequence[int] = (),
        compile: str = "auto",
        threads: int | None = None,
        env_timeout: float = 300.0,
        workers: int | None = None,
        video: bool = True,
        report: bool = True,
        tensorboard: bool = False,
        started_from: Mapping[str, Any] | None = None,
        eval_episode_limit: int = 10000,
        run_name: str | None = None,
        writers: Mapping[str, Any] | Sequence[str] = (),
        info_metrics: Sequence[str] = ("is_success",),
        schedule_steps: int | None = None,
        batch_size: int = 256,
        hidden_sizes: Sequence[int] = (256, 256),
        learning_rate: float = 0.0003,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] | Callable[[float], float] = "constant",
        learning_rate_end: float = 0.0,
        learning_rate_warmup: float = 0.0,
        max_grad_norm: float | None = None,
        optimizer: str | Mapping[str, Any] = ...,
        adam_eps: float = 1e-08,
        gamma: float = 0.99,
        normalize_observations: bool = False,
        network: str | Mapping[str, Any] = ...,
        buffer_capacity: int = 1000000,
        learning_starts: int = 25000,
        train_frequency: int = 1,
        gradient_updates_per_step: int = 1,
        tau: float = 0.005,
        exploration_noise: float = 0.1,
        policy_noise: float = 0.2,
        noise_clip: float = 0.5,
        policy_delay: int = 2,
        her: Mapping[str, Any] | None = None,
    ) -> None: ...

class TQC(ManagedAlgorithm):
    """Truncated quantile critics.

    Args:
        env: an environment's id, a function that makes one, or a `TrainConfig`
        seed (int, default 0): determines all random numbers of the run (>= 0 and < 2**31)
        total_timesteps (int, default 100000): environment steps per seed; offline, updates (>= 1)
        output_dir (str | Path, default "runs"): the directory in which the run's directory is made
        device (str, default "auto"): auto: a GPU if there is one (one of auto, cpu, cuda, cuda:N)
        num_envs (int, default 1): environments per seed (>= 1)
        eval_episodes (int, default 5): episodes of an evaluation, per seed; 0: no evaluations (>= 0)
        log_interval (int, default 1000): steps between rows of metrics (>= 1)
        checkpoint_interval (int, default 10000): steps between checkpoints (>= 1)
        tags (Sequence[str], default ()): words of your own, stored with the run
        env_kwargs (Mapping[str, Any], default {}): arguments of the environment; `wrappers`
        eval_interval (int | None, default None): steps between evaluations; null: a tenth of the run
            (>= 1)
        keep_checkpoints (int, default 2): checkpoints that stay, the newest ones (>= 1)
        seeds (Sequence[int], default ()): trained together as one program; empty: `seed` alone (>= 0
            and < 2**31)
        compile (str, default "auto"): compile the update; auto: where that saves time (one of auto, on,
            off)
        threads (int | None, default None): threads of one process; null: chosen for the networks (>= 1)
        env_timeout (float, default 300.0): seconds after which a step counts as hung (> 0)
        workers (int | None, default None): environment worker processes; null: chosen for the machine
            (>= 0)
        video (bool, default True): record a video of the agent at the end
        report (bool, default True): write report.html at the end
        tensorboard (bool, default False): write TensorBoard files too: the same as the writer
            tensorboard
        started_from (Mapping[str, Any] | None, default None): the agent file or run whose weights a new
            run starts from: its `path`, perhaps `groups` of weights; a run's own config has its
            `sha256`, `step` and `seeds` too
        eval_episode_limit (int, default 10000): steps after which an episode of an evaluation, a video
            or a recording is cut where the environment has no limit (>= 1)
        run_name (str | None, default None): name of its directory; null: `<algo>-<env>-seed<k>` (a name
            of at most 200 letters, digits and -_.=+ that starts with a letter or digit)
        writers (Mapping[str, Any] | Sequence[str], default ()): places of the metric rows besides
            metrics.jsonl: names, or a mapping from names to options
        info_metrics (Sequence[str], default ("is_success",)): numbers in the info of an episode's last
            step that become metrics; is_success becomes success_rate (a name that is not one of the
            library's)
        schedule_steps (int | None, default None): steps over which all schedules run, at least the
            run's; null: total_timesteps. Extending a run does not change it (>= 1)

    Settings of tqc. Defaults: the authors' code (tqc_pytorch main.py, structures.py). It trains from
    the first full batch on, and acts with the untrained policy until then, where we act at random:
        batch_size (int, default 256): transitions of one update, per seed (>= 1)
        hidden_sizes (Sequence[int], default (256, 256)): sizes of the hidden layers of the networks
        learning_rate (float, default 0.0003): step size of the optimizer (> 0)
        learning_rate_schedule (Literal["constant", "linear", "cosine"] | Callable[[float], float],
            default "constant"): of the rate over the run; a Python function returns the rate, given the
            share of the run that is done
        learning_rate_end (float, default 0.0): linear, cosine: the share of the rate at the end (in [0,
            1])
        learning_rate_warmup (float, default 0.0): share of the run in which it rises from 0 (in [0, 1))
        max_grad_norm (float | None, default None): clips the norm of gradients; null: not (> 0)
        optimizer (str | Mapping[str, Any], default {}): by its name in torch.optim, with options
        adam_eps (float, default 1e-08): the default of the optimizer's `eps` (> 0)
        gamma (float, default 0.99): discount of future rewards (in [0, 1])
        normalize_observations (bool, default False): standardise them by their running mean and
            variance
        network (str | Mapping[str, Any], default {}): layers, and networks of one's own
        buffer_capacity (int, default 1000000): transitions in the replay, per seed (>= 1)
        learning_starts (int, default 256): uniformly random actions and no updates until then (>= 0)
        train_frequency (int, default 1): transitions between trainings (>= 1)
        gradient_updates_per_step (int, default 1): updates per training (>= 1)
        tau (float, default 0.005): share of a network that its target takes over at each update (in [0,
            1])
        alpha (float | Literal["auto"], default "auto"): entropy temperature; auto: tuned (>= 0)
        initial_alpha (float, default 1.0): the initial value of a tuned temperature (>= 1e-08)
        target_entropy (float | Literal["auto"], default "auto"): of a tuned one; auto: minus the action
            dimensions
        num_critics (int, default 5): critics whose quantiles are pooled (>= 1)
        precision (str, default "float32"): of matrix products and convolutions (one of float32,
            bfloat16)
        her (Mapping[str, Any] | None, default None): relabel goals in hindsight (Andrychowicz et al.
            2017); null: never
        critic_hidden_sizes (Sequence[int] | None, default (512, 512, 512)): of the critics; null:
            `hidden_sizes`
        num_quantiles (int, default 25): quantiles of each critic (>= 1)
        top_quantiles_to_drop_per_net (int, default 2): largest quantiles left out of the target, per
            critic (>= 0)
        kappa (float, default 1.0): errors above it count linearly (Huber) (> 0)
    """

    def __init__(
        self,
        env: str | TrainConfig | EnvFactory,
        *,
        seed: int = 0,
        total_timesteps: int = 100000,
        output_dir: str | Path = ...,
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 5,
        log_interval: int = 1000,
        checkpoint_interval: int = 10000,
        tags: Sequence[str] = (),
        env_kwargs: Mapping[str, Any] = ...,
        eval_interval: int | None = None,
        keep_checkpoints: int = 2,
        seeds: Sequence[int] = (),
        compile: str = "auto",
        threads: int | None = None,
        env_timeout: float = 300.0,
        workers: int | None = None,
        video: bool = True,
        report: bool = True,
        tensorboard: bool = False,
        started_from: Mapping[str, Any] | None = None,
        eval_episode_limit: int = 10000,
        run_name: str | None = None,
        writers: Mapping[str, Any] | Sequence[str] = (),
        info_metrics: Sequence[str] = ("is_success",),
        schedule_steps: int | None = None,
        batch_size: int = 256,
        hidden_sizes: Sequence[int] = (256, 256),
        learning_rate: float = 0.0003,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] | Callable[[float], float] = "constant",
        learning_rate_end: float = 0.0,
        learning_rate_warmup: float = 0.0,
        max_grad_norm: float | None = None,
        optimizer: str | Mapping[str, Any] = ...,
        adam_eps: float = 1e-08,
        gamma: float = 0.99,
        normalize_observations: bool = False,
        network: str | Mapping[str, Any] = ...,
        buffer_capacity: int = 1000000,
        learning_starts: int = 256,
        train_frequency: int = 1,
        gradient_updates_per_step: int = 1,
        tau: float = 0.005,
        alpha: float | Literal["auto"] = "auto",
        initial_alpha: float = 1.0,
        target_entropy: float | Literal["auto"] = "auto",
        num_critics: int = 5,
        precision: str = "float32",
        her: Mapping[str, Any] | None = None,
        critic_hidden_sizes: Sequence[int] | None = (512, 512, 512),
        num_quantiles: int = 25,
        top_quantiles_to_drop_per_net: int = 2,
        kappa: float = 1.0,
    ) -> None: ...

class REDQ(ManagedAlgorithm):
    """Randomized ensembled double Q-learning, many critic updates per step.

    Args:
        env: an environment's id, a function that makes one, or a `TrainConfig`
        seed (int, default 0): determines all random numbers of the run (>= 0 and < 2**31)
        total_timesteps (int, default 100000): environment steps per seed; offline, updates (>= 1)
        output_dir (str | Path, default "runs"): the directory in which the run's directory is made
        device (str, default "auto"): auto: a GPU if there is one (one of auto, cpu, cuda, cuda:N)
        num_envs (int, default 1): environments per seed (>= 1)
        eval_episodes (int, default 5): episodes of an evaluation, per seed; 0: no evaluations (>= 0)
        log_interval (int, default 1000): steps between rows of metrics (>= 1)
        checkpoint_interval (int, default 10000): steps between checkpoints (>= 1)
        tags (Sequence[str], default ()): words of your own, stored with the run
        env_kwargs (Mapping[str, Any], default {}): arguments of the environment; `wrappers`
        eval_interval (int | None, default None): steps between evaluations; null: a tenth of the run
            (>= 1)
        keep_checkpoints (int, default 2): checkpoints that stay, the newest ones (>= 1)
        seeds (Sequence[int], default ()): trained together as one program; empty: `seed` alone (>= 0
            and < 2**31)
        compile (str, default "auto"): compile the update; auto: where that saves time (one of auto, on,
            off)
        threads (int | None, default None): threads of one process; null: chosen for the networks (>= 1)
        env_timeout (float, default 300.0): seconds after which a step counts as hung (> 0)
        workers (int | None, default None): environment worker processes; null: chosen for the machine
            (>= 0)
        video (bool, default True): record a video of the agent at the end
        report (bool, default True): write report.html at the end
        tensorboard (bool, default False): write TensorBoard files too: the same as the writer
            tensorboard
        started_from (Mapping[str, Any] | None, default None): the agent file or run whose weights a new
            run starts from: its `path`, perhaps `groups` of weights; a run's own config has its
            `sha256`, `step` and `seeds` too
        eval_episode_limit (int, default 10000): steps after which an episode of an evaluation, a video
            or a recording is cut where the environment has no limit (>= 1)
        run_name (str | None, default None): name of its directory; null: `<algo>-<env>-seed<k>` (a name
            of at most 200 letters, digits and -_.=+ that starts with a letter or digit)
        writers (Mapping[str, Any] | Sequence[str], default ()): places of the metric rows besides
            metrics.jsonl: names, or a mapping from names to options
        info_metrics (Sequence[str], default ("is_success",)): numbers in the info of an episode's last
            step that become metrics; is_success becomes success_rate (a name that is not one of the
            library's)
        schedule_steps (int | None, default None): steps over which all schedules run, at least the
            run's; null: total_timesteps. Extending a run does not change it (>= 1)

    Settings of redq. Defaults: the authors' code (train_redq_sac.py, redq_sac.py):
        batch_size (int, default 256): transitions of one update, per seed (>= 1)
        hidden_sizes (Sequence[int], default (256, 256)): sizes of the hidden layers of the networks
        learning_rate (float, default 0.0003): step size of the optimizer (> 0)
        learning_rate_schedule (Literal["constant", "linear", "cosine"] | Callable[[float], float],
            default "constant"): of the rate over the run; a Python function returns the rate, given the
            share of the run that is done
        learning_rate_end (float, default 0.0): linear, cosine: the share of the rate at the end (in [0,
            1])
        learning_rate_warmup (float, default 0.0): share of the run in which it rises from 0 (in [0, 1))
        max_grad_norm (float | None, default None): clips the norm of gradients; null: not (> 0)
        optimizer (str | Mapping[str, Any], default {}): by its name in torch.optim, with options
        adam_eps (float, default 1e-08): the default of the optimizer's `eps` (> 0)
        gamma (float, default 0.99): discount of future rewards (in [0, 1])
        normalize_observations (bool, default False): standardise them by their running mean and
            variance
        network (str | Mapping[str, Any], default {}): layers, and networks of one's own
        buffer_capacity (int, default 1000000): transitions in the replay, per seed (>= 1)
        learning_starts (int, default 5000): uniformly random actions and no updates until then (>= 0)
        train_frequency (int, default 1): transitions between trainings (>= 1)
        gradient_updates_per_step (int, default 20): of the critics; the actor trains at the last one
            (>= 1)
        tau (float, default 0.005): share of a network that its target takes over at each update (in [0,
            1])
        alpha (float | Literal["auto"], default "auto"): entropy temperature; auto: tuned (>= 0)
        initial_alpha (float, default 1.0): the initial value of a tuned temperature (>= 1e-08)
        target_entropy (float | Literal["auto"], default "auto"): of a tuned one; auto: minus the action
            dimensions
        num_critics (int, default 10): critics in the ensemble (>= 1)
        precision (str, default "float32"): of matrix products and convolutions (one of float32,
            bfloat16)
        her (Mapping[str, Any] | None, default None): relabel goals in hindsight (Andrychowicz et al.
            2017); null: never
        subset_size (int, default 2): target critics drawn for each update (>= 1)
    """

    def __init__(
        self,
        env: str | TrainConfig | EnvFactory,
        *,
        seed: int = 0,
        total_timesteps: int = 100000,
        output_dir: str | Path = ...,
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 5,
        log_interval: int = 1000,
        checkpoint_interval: int = 10000,
        tags: Sequence[str] = (),
        env_kwargs: Mapping[str, Any] = ...,
        eval_interval: int | None = None,
        keep_checkpoints: int = 2,
        seeds: Sequence[int] = (),
        compile: str = "auto",
        threads: int | None = None,
        env_timeout: float = 300.0,
        workers: int | None = None,
        video: bool = True,
        report: bool = True,
        tensorboard: bool = False,
        started_from: Mapping[str, Any] | None = None,
        eval_episode_limit: int = 10000,
        run_name: str | None = None,
        writers: Mapping[str, Any] | Sequence[str] = (),
        info_metrics: Sequence[str] = ("is_success",),
        schedule_steps: int | None = None,
        batch_size: int = 256,
        hidden_sizes: Sequence[int] = (256, 256),
        learning_rate: float = 0.0003,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] | Callable[[float], float] = "constant",
        learning_rate_end: float = 0.0,
        learning_rate_warmup: float = 0.0,
        max_grad_norm: float | None = None,
        optimizer: str | Mapping[str, Any] = ...,
        adam_eps: float = 1e-08,
        gamma: float = 0.99,
        normalize_observations: bool = False,
        network: str | Mapping[str, Any] = ...,
        buffer_capacity: int = 1000000,
        learning_starts: int = 5000,
        train_frequency: int = 1,
        gradient_updates_per_step: int = 20,
        tau: float = 0.005,
        alpha: float | Literal["auto"] = "auto",
        initial_alpha: float = 1.0,
        target_entropy: float | Literal["auto"] = "auto",
        num_critics: int = 10,
        precision: str = "float32",
        her: Mapping[str, Any] | None = None,
        subset_size: int = 2,
    ) -> None: ...

class CrossQ(ManagedAlgorithm):
    """CrossQ: batch renormalisation instead of target networks.

    Args:
        env: an environment's id, a function that makes one, or a `TrainConfig`
        seed (int, default 0): determines all random numbers of the run (>= 0 and < 2**31)
        total_timesteps (int, default 100000): environment steps per seed; offline, updates (>= 1)
        output_dir (str | Path, default "runs"): the directory in which the run's directory is made
        device (str, default "auto"): auto: a GPU if there is one (one of auto, cpu, cuda, cuda:N)
        num_envs (int, default 1): environments per seed (>= 1)
        eval_episodes (int, default 5): episodes of an evaluation, per seed; 0: no evaluations (>= 0)
        log_interval (int, default 1000): steps between rows of metrics (>= 1)
        checkpoint_interval (int, default 10000): steps between checkpoints (>= 1)
        tags (Sequence[str], default ()): words of your own, stored with the run
        env_kwargs (Mapping[str, Any], default {}): arguments of the environment; `wrappers`
        eval_interval (int | None, default None): steps between evaluations; null: a tenth of the run
            (>= 1)
        keep_checkpoints (int, default 2): checkpoints that stay, the newest ones (>= 1)
        seeds (Sequence[int], default ()): trained together as one program; empty: `seed` alone (>= 0
            and < 2**31)
        compile (str, default "auto"): compile the update; auto: where that saves time (one of auto, on,
            off)
        threads (int | None, default None): threads of one process; null: chosen for the networks (>= 1)
        env_timeout (float, default 300.0): seconds after which a step counts as hung (> 0)
        workers (int | None, default None): environment worker processes; null: chosen for the machine
            (>= 0)
        video (bool, default True): record a video of the agent at the end
        report (bool, default True): write report.html at the end
        tensorboard (bool, default False): write TensorBoard files too: the same as the writer
            tensorboard
        started_from (Mapping[str, Any] | None, default None): the agent file or run whose weights a new
            run starts from: its `path`, perhaps `groups` of weights; a run's own config has its
            `sha256`, `step` and `seeds` too
        eval_episode_limit (int, default 10000): steps after which an episode of an evaluation, a video
            or a recording is cut where the environment has no limit (>= 1)
        run_name (str | None, default None): name of its directory; null: `<algo>-<env>-seed<k>` (a name
            of at most 200 letters, digits and -_.=+ that starts with a letter or digit)
        writers (Mapping[str, Any] | Sequence[str], default ()): places of the metric rows besides
            metrics.jsonl: names, or a mapping from names to options
        info_metrics (Sequence[str], default ("is_success",)): numbers in the info of an episode's last
            step that become metrics; is_success becomes success_rate (a name that is not one of the
            library's)
        schedule_steps (int | None, default None): steps over which all schedules run, at least the
            run's; null: total_timesteps. Extending a run does not change it (>= 1)

    Settings of crossq. Defaults: sb3-contrib crossq.py and the authors' train.py, whose critics are
    twice as wide (2,048):
        batch_size (int, default 256): batch statistics need two rows (>= 2)
        hidden_sizes (Sequence[int], default (256, 256)): sizes of the hidden layers of the networks
        learning_rate (float, default 0.001): step size of the optimizer (> 0)
        learning_rate_schedule (Literal["constant", "linear", "cosine"] | Callable[[float], float],
            default "constant"): of the rate over the run; a Python function returns the rate, given the
            share of the run that is done
        learning_rate_end (float, default 0.0): linear, cosine: the share of the rate at the end (in [0,
            1])
        learning_rate_warmup (float, default 0.0): share of the run in which it rises from 0 (in [0, 1))
        max_grad_norm (float | None, default None): clips the norm of gradients; null: not (> 0)
        optimizer (str | Mapping[str, Any], default {'betas': (0.5, 0.999)}): of the networks; the
            temperature has Adam with its usual betas
        adam_eps (float, default 1e-08): the default of the optimizer's `eps` (> 0)
        gamma (float, default 0.99): discount of future rewards (in [0, 1])
        normalize_observations (bool, default False): standardise them by their running mean and
            variance
        network (str | Mapping[str, Any], default {}): layers, and networks of one's own
        buffer_capacity (int, default 1000000): transitions in the replay, per seed (>= 1)
        learning_starts (int, default 100): uniformly random actions and no updates until then (>= 0)
        train_frequency (int, default 1): transitions between trainings (>= 1)
        gradient_updates_per_step (int, default 1): updates per training (>= 1)
        alpha (float | Literal["auto"], default "auto"): entropy temperature; auto: tuned (>= 0)
        initial_alpha (float, default 1.0): the initial value of a tuned temperature (>= 1e-08)
        target_entropy (float | Literal["auto"], default "auto"): of a tuned one; auto: minus the action
            dimensions
        num_critics (int, default 2): critics; the smallest value counts (>= 1)
        precision (str, default "float32"): of matrix products and convolutions (one of float32,
            bfloat16)
        her (Mapping[str, Any] | None, default None): relabel goals in hindsight (Andrychowicz et al.
            2017); null: never
        critic_hidden_sizes (Sequence[int] | None, default (1024, 1024)): of the critics; null:
            `hidden_sizes`
        policy_delay (int, default 3): updates of the critics for one of the policy (>= 1)
        batch_norm_momentum (float, default 0.01): share of a batch in the running statistics (in (0,
            1])
        renorm_warmup (int, default 100000): a network's updates with plain batch normalisation (>= 0)
    """

    def __init__(
        self,
        env: str | TrainConfig | EnvFactory,
        *,
        seed: int = 0,
        total_timesteps: int = 100000,
        output_dir: str | Path = ...,
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 5,
        log_interval: int = 1000,
        checkpoint_interval: int = 10000,
        tags: Sequence[str] = (),
        env_kwargs: Mapping[str, Any] = ...,
        eval_interval: int | None = None,
        keep_checkpoints: int = 2,
        seeds: Sequence[int] = (),
        compile: str = "auto",
        threads: int | None = None,
        env_timeout: float = 300.0,
        workers: int | None = None,
        video: bool = True,
        report: bool = True,
        tensorboard: bool = False,
        started_from: Mapping[str, Any] | None = None,
        eval_episode_limit: int = 10000,
        run_name: str | None = None,
        writers: Mapping[str, Any] | Sequence[str] = (),
        info_metrics: Sequence[str] = ("is_success",),
        schedule_steps: int | None = None,
        batch_size: int = 256,
        hidden_sizes: Sequence[int] = (256, 256),
        learning_rate: float = 0.001,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] | Callable[[float], float] = "constant",
        learning_rate_end: float = 0.0,
        learning_rate_warmup: float = 0.0,
        max_grad_norm: float | None = None,
        optimizer: str | Mapping[str, Any] = ...,
        adam_eps: float = 1e-08,
        gamma: float = 0.99,
        normalize_observations: bool = False,
        network: str | Mapping[str, Any] = ...,
        buffer_capacity: int = 1000000,
        learning_starts: int = 100,
        train_frequency: int = 1,
        gradient_updates_per_step: int = 1,
        alpha: float | Literal["auto"] = "auto",
        initial_alpha: float = 1.0,
        target_entropy: float | Literal["auto"] = "auto",
        num_critics: int = 2,
        precision: str = "float32",
        her: Mapping[str, Any] | None = None,
        critic_hidden_sizes: Sequence[int] | None = (1024, 1024),
        policy_delay: int = 3,
        batch_norm_momentum: float = 0.01,
        renorm_warmup: int = 100000,
    ) -> None: ...

class FlashSAC(ManagedAlgorithm):
    """FlashSAC: normalised residual networks, categorical critics, scaled rewards, noise that is held.

    Args:
        env: an environment's id, a function that makes one, or a `TrainConfig`
        seed (int, default 0): determines all random numbers of the run (>= 0 and < 2**31)
        total_timesteps (int, default 100000): environment steps per seed; offline, updates (>= 1)
        output_dir (str | Path, default "runs"): the directory in which the run's directory is made
        device (str, default "auto"): auto: a GPU if there is one (one of auto, cpu, cuda, cuda:N)
        num_envs (int, default 1): environments per seed (>= 1)
        eval_episodes (int, default 5): episodes of an evaluation, per seed; 0: no evaluations (>= 0)
        log_interval (int, default 1000): steps between rows of metrics (>= 1)
        checkpoint_interval (int, default 10000): steps between checkpoints (>= 1)
        tags (Sequence[str], default ()): words of your own, stored with the run
        env_kwargs (Mapping[str, Any], default {}): arguments of the environment; `wrappers`
        eval_interval (int | None, default None): steps between evaluations; null: a tenth of the run
            (>= 1)
        keep_checkpoints (int, default 2): checkpoints that stay, the newest ones (>= 1)
        seeds (Sequence[int], default ()): trained together as one program; empty: `seed` alone (>= 0
            and < 2**31)
        compile (str, default "auto"): compile the update; auto: where that saves time (one of auto, on,
            off)
        threads (int | None, default None): threads of one process; null: chosen for the networks (>= 1)
        env_timeout (float, default 300.0): seconds after which a step counts as hung (> 0)
        workers (int | None, default None): environment worker processes; null: chosen for the machine
            (>= 0)
        video (bool, default True): record a video of the agent at the end
        report (bool, default True): write report.html at the end
        tensorboard (bool, default False): write TensorBoard files too: the same as the writer
            tensorboard
        started_from (Mapping[str, Any] | None, default None): the agent file or run whose weights a new
            run starts from: its `path`, perhaps `groups` of weights; a run's own config has its
            `sha256`, `step` and `seeds` too
        eval_episode_limit (int, default 10000): steps after which an episode of an evaluation, a video
            or a recording is cut where the environment has no limit (>= 1)
        run_name (str | None, default None): name of its directory; null: `<algo>-<env>-seed<k>` (a name
            of at most 200 letters, digits and -_.=+ that starts with a letter or digit)
        writers (Mapping[str, Any] | Sequence[str], default ()): places of the metric rows besides
            metrics.jsonl: names, or a mapping from names to options
        info_metrics (Sequence[str], default ("is_success",)): numbers in the info of an episode's last
            step that become metrics; is_success becomes success_rate (a name that is not one of the
            library's)
        schedule_steps (int | None, default None): steps over which all schedules run, at least the
            run's; null: total_timesteps. Extending a run does not change it (>= 1)

    Settings of flashsac. Defaults: the authors' configs for simulators on a CPU (Holiday-
    Robot/FlashSAC):
        batch_size (int, default 512): batch statistics need two rows (>= 2)
        hidden_sizes (Sequence[int], default (128, 128)): of the actor: a residual block for each, of
            equal sizes
        learning_rate (float, default 0.0003): step size of the optimizer (> 0)
        learning_rate_schedule (Literal["constant", "linear", "cosine"] | Callable[[float], float],
            default "cosine"): of the rate over the run; a Python function returns the rate, given the
            share of the run that is done
        learning_rate_end (float, default 0.5): linear, cosine: the share of the rate at the end (in [0,
            1])
        learning_rate_warmup (float, default 0.0): share of the run in which it rises from 0 (in [0, 1))
        max_grad_norm (float | None, default None): clips the norm of gradients; null: not (> 0)
        optimizer (str | Mapping[str, Any], default {}): by its name in torch.optim, with options
        adam_eps (float, default 1e-08): the default of the optimizer's `eps` (> 0)
        gamma (float, default 0.99): discount of future rewards (in [0, 1])
        normalize_observations (bool, default False): standardise them by their running mean and
            variance
        network (str | Mapping[str, Any], default {}): layers, and networks of one's own
        buffer_capacity (int, default 1000000): transitions in the replay, per seed (>= 1)
        learning_starts (int, default 10000): uniformly random actions and no updates until then (>= 0)
        train_frequency (int, default 1): transitions between trainings (>= 1)
        gradient_updates_per_step (int, default 1): updates per training (>= 1)
        tau (float, default 0.01): share of a network that its target takes over at each update (in [0,
            1])
        alpha (float | Literal["auto"], default "auto"): entropy temperature; auto: tuned (>= 0)
        initial_alpha (float, default 0.01): the initial value of a tuned temperature (>= 1e-08)
        target_entropy (float | Literal["auto"], default "auto"): of a tuned one; auto: minus the action
            dimensions
        num_critics (int, default 2): critics; the smallest value counts (>= 1)
        precision (str, default "float32"): of matrix products and convolutions (one of float32,
            bfloat16)
        her (Mapping[str, Any] | None, default None): relabel goals in hindsight (Andrychowicz et al.
            2017); null: never
        critic_hidden_sizes (Sequence[int] | None, default (256, 256)): of the critics; null:
            `hidden_sizes`
        target_std (float, default 0.15): with `target_entropy: auto`: that of a Gaussian with this
            deviation (> 0)
        policy_delay (int, default 2): updates of the critics for one of the policy (>= 1)
        num_atoms (int, default 101): atoms of the distribution of returns (>= 2 and <= 2000)
        v_max (float, default 5.0): the largest atom; the smallest is its negative (> 0)
        normalize_rewards (bool, default True): scale them by running returns, so that returns fit the
            atoms
        noise_steps (int, default 16): the longest time that exploration noise is held; 1: never (>= 1
            and <= 1000)
        noise_exponent (float, default 2.0): n steps have a probability in proportion to 1 / n to this
            power (> 0)
        batch_norm_momentum (float, default 0.01): share of a batch in the running statistics (in (0,
            1])
    """

    def __init__(
        self,
        env: str | TrainConfig | EnvFactory,
        *,
        seed: int = 0,
        total_timesteps: int = 100000,
        output_dir: str | Path = ...,
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 5,
        log_interval: int = 1000,
        checkpoint_interval: int = 10000,
        tags: Sequence[str] = (),
        env_kwargs: Mapping[str, Any] = ...,
        eval_interval: int | None = None,
        keep_checkpoints: int = 2,
        seeds: Sequence[int] = (),
        compile: str = "auto",
        threads: int | None = None,
        env_timeout: float = 300.0,
        workers: int | None = None,
        video: bool = True,
        report: bool = True,
        tensorboard: bool = False,
        started_from: Mapping[str, Any] | None = None,
        eval_episode_limit: int = 10000,
        run_name: str | None = None,
        writers: Mapping[str, Any] | Sequence[str] = (),
        info_metrics: Sequence[str] = ("is_success",),
        schedule_steps: int | None = None,
        batch_size: int = 512,
        hidden_sizes: Sequence[int] = (128, 128),
        learning_rate: float = 0.0003,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] | Callable[[float], float] = "cosine",
        learning_rate_end: float = 0.5,
        learning_rate_warmup: float = 0.0,
        max_grad_norm: float | None = None,
        optimizer: str | Mapping[str, Any] = ...,
        adam_eps: float = 1e-08,
        gamma: float = 0.99,
        normalize_observations: bool = False,
        network: str | Mapping[str, Any] = ...,
        buffer_capacity: int = 1000000,
        learning_starts: int = 10000,
        train_frequency: int = 1,
        gradient_updates_per_step: int = 1,
        tau: float = 0.01,
        alpha: float | Literal["auto"] = "auto",
        initial_alpha: float = 0.01,
        target_entropy: float | Literal["auto"] = "auto",
        num_critics: int = 2,
        precision: str = "float32",
        her: Mapping[str, Any] | None = None,
        critic_hidden_sizes: Sequence[int] | None = (256, 256),
        target_std: float = 0.15,
        policy_delay: int = 2,
        num_atoms: int = 101,
        v_max: float = 5.0,
        normalize_rewards: bool = True,
        noise_steps: int = 16,
        noise_exponent: float = 2.0,
        batch_norm_momentum: float = 0.01,
    ) -> None: ...

class DroQ(ManagedAlgorithm):
    """Dropout Q-functions: REDQ with two critics that have dropout and layer norm.

    Args:
        env: an environment's id, a function that makes one, or a `TrainConfig`
        seed (int, default 0): determines all random numbers of the run (>= 0 and < 2**31)
        total_timesteps (int, default 100000): environment steps per seed; offline, updates (>= 1)
        output_dir (str | Path, default "runs"): the directory in which the run's directory is made
        device (str, default "auto"): auto: a GPU if there is one (one of auto, cpu, cuda, cuda:N)
        num_envs (int, default 1): environments per seed (>= 1)
        eval_episodes (int, default 5): episodes of an evaluation, per seed; 0: no evaluations (>= 0)
        log_interval (int, default 1000): steps between rows of metrics (>= 1)
        checkpoint_interval (int, default 10000): steps between checkpoints (>= 1)
        tags (Sequence[str], default ()): words of your own, stored with the run
        env_kwargs (Mapping[str, Any], default {}): arguments of the environment; `wrappers`
        eval_interval (int | None, default None): steps between evaluations; null: a tenth of the run
            (>= 1)
        keep_checkpoints (int, default 2): checkpoints that stay, the newest ones (>= 1)
        seeds (Sequence[int], default ()): trained together as one program; empty: `seed` alone (>= 0
            and < 2**31)
        compile (str, default "auto"): compile the update; auto: where that saves time (one of auto, on,
            off)
        threads (int | None, default None): threads of one process; null: chosen for the networks (>= 1)
        env_timeout (float, default 300.0): seconds after which a step counts as hung (> 0)
        workers (int | None, default None): environment worker processes; null: chosen for the machine
            (>= 0)
        video (bool, default True): record a video of the agent at the end
        report (bool, default True): write report.html at the end
        tensorboard (bool, default False): write TensorBoard files too: the same as the writer
            tensorboard
        started_from (Mapping[str, Any] | None, default None): the agent file or run whose weights a new
            run starts from: its `path`, perhaps `groups` of weights; a run's own config has its
            `sha256`, `step` and `seeds` too
        eval_episode_limit (int, default 10000): steps after which an episode of an evaluation, a video
            or a recording is cut where the environment has no limit (>= 1)
        run_name (str | None, default None): name of its directory; null: `<algo>-<env>-seed<k>` (a name
            of at most 200 letters, digits and -_.=+ that starts with a letter or digit)
        writers (Mapping[str, Any] | Sequence[str], default ()): places of the metric rows besides
            metrics.jsonl: names, or a mapping from names to options
        info_metrics (Sequence[str], default ("is_success",)): numbers in the info of an episode's last
            step that become metrics; is_success becomes success_rate (a name that is not one of the
            library's)
        schedule_steps (int | None, default None): steps over which all schedules run, at least the
            run's; null: total_timesteps. Extending a run does not change it (>= 1)

    Settings of droq. Defaults: the authors' code, which is REDQ's with two critics; a dropout of 0.01
    on every task, as in Kostrikov's walk_in_the_park (the authors' README has 0.005 for Hopper):
        batch_size (int, default 256): transitions of one update, per seed (>= 1)
        hidden_sizes (Sequence[int], default (256, 256)): sizes of the hidden layers of the networks
        learning_rate (float, default 0.0003): step size of the optimizer (> 0)
        learning_rate_schedule (Literal["constant", "linear", "cosine"] | Callable[[float], float],
            default "constant"): of the rate over the run; a Python function returns the rate, given the
            share of the run that is done
        learning_rate_end (float, default 0.0): linear, cosine: the share of the rate at the end (in [0,
            1])
        learning_rate_warmup (float, default 0.0): share of the run in which it rises from 0 (in [0, 1))
        max_grad_norm (float | None, default None): clips the norm of gradients; null: not (> 0)
        optimizer (str | Mapping[str, Any], default {}): by its name in torch.optim, with options
        adam_eps (float, default 1e-08): the default of the optimizer's `eps` (> 0)
        gamma (float, default 0.99): discount of future rewards (in [0, 1])
        normalize_observations (bool, default False): standardise them by their running mean and
            variance
        network (str | Mapping[str, Any], default {}): layers, and networks of one's own
        buffer_capacity (int, default 1000000): transitions in the replay, per seed (>= 1)
        learning_starts (int, default 5000): uniformly random actions and no updates until then (>= 0)
        train_frequency (int, default 1): transitions between trainings (>= 1)
        gradient_updates_per_step (int, default 20): of the critics; the actor trains at the last one
            (>= 1)
        tau (float, default 0.005): share of a network that its target takes over at each update (in [0,
            1])
        alpha (float | Literal["auto"], default "auto"): entropy temperature; auto: tuned (>= 0)
        initial_alpha (float, default 1.0): the initial value of a tuned temperature (>= 1e-08)
        target_entropy (float | Literal["auto"], default "auto"): of a tuned one; auto: minus the action
            dimensions
        num_critics (int, default 2): critics in the ensemble (>= 1)
        precision (str, default "float32"): of matrix products and convolutions (one of float32,
            bfloat16)
        her (Mapping[str, Any] | None, default None): relabel goals in hindsight (Andrychowicz et al.
            2017); null: never
        subset_size (int, default 2): target critics drawn for each update (>= 1)
    """

    def __init__(
        self,
        env: str | TrainConfig | EnvFactory,
        *,
        seed: int = 0,
        total_timesteps: int = 100000,
        output_dir: str | Path = ...,
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 5,
        log_interval: int = 1000,
        checkpoint_interval: int = 10000,
        tags: Sequence[str] = (),
        env_kwargs: Mapping[str, Any] = ...,
        eval_interval: int | None = None,
        keep_checkpoints: int = 2,
        seeds: Sequence[int] = (),
        compile: str = "auto",
        threads: int | None = None,
        env_timeout: float = 300.0,
        workers: int | None = None,
        video: bool = True,
        report: bool = True,
        tensorboard: bool = False,
        started_from: Mapping[str, Any] | None = None,
        eval_episode_limit: int = 10000,
        run_name: str | None = None,
        writers: Mapping[str, Any] | Sequence[str] = (),
        info_metrics: Sequence[str] = ("is_success",),
        schedule_steps: int | None = None,
        batch_size: int = 256,
        hidden_sizes: Sequence[int] = (256, 256),
        learning_rate: float = 0.0003,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] | Callable[[float], float] = "constant",
        learning_rate_end: float = 0.0,
        learning_rate_warmup: float = 0.0,
        max_grad_norm: float | None = None,
        optimizer: str | Mapping[str, Any] = ...,
        adam_eps: float = 1e-08,
        gamma: float = 0.99,
        normalize_observations: bool = False,
        network: str | Mapping[str, Any] = ...,
        buffer_capacity: int = 1000000,
        learning_starts: int = 5000,
        train_frequency: int = 1,
        gradient_updates_per_step: int = 20,
        tau: float = 0.005,
        alpha: float | Literal["auto"] = "auto",
        initial_alpha: float = 1.0,
        target_entropy: float | Literal["auto"] = "auto",
        num_critics: int = 2,
        precision: str = "float32",
        her: Mapping[str, Any] | None = None,
        subset_size: int = 2,
    ) -> None: ...

class DrQ(ManagedAlgorithm):
    """Data-regularized Q: SAC from pixels with random shifts.

    Args:
        env: an environment's id, a function that makes one, or a `TrainConfig`
        seed (int, default 0): determines all random numbers of the run (>= 0 and < 2**31)
        total_timesteps (int, default 100000): environment steps per seed; offline, updates (>= 1)
        output_dir (str | Path, default "runs"): the directory in which the run's directory is made
        device (str, default "auto"): auto: a GPU if there is one (one of auto, cpu, cuda, cuda:N)
        num_envs (int, default 1): environments per seed (>= 1)
        eval_episodes (int, default 5): episodes of an evaluation, per seed; 0: no evaluations (>= 0)
        log_interval (int, default 1000): steps between rows of metrics (>= 1)
        checkpoint_interval (int, default 10000): steps between checkpoints (>= 1)
        tags (Sequence[str], default ()): words of your own, stored with the run
        env_kwargs (Mapping[str, Any], default {}): arguments of the environment; `wrappers`
        eval_interval (int | None, default None): steps between evaluations; null: a tenth of the run
            (>= 1)
        keep_checkpoints (int, default 2): checkpoints that stay, the newest ones (>= 1)
        seeds (Sequence[int], default ()): trained together as one program; empty: `seed` alone (>= 0
            and < 2**31)
        compile (str, default "auto"): compile the update; auto: where that saves time (one of auto, on,
            off)
        threads (int | None, default None): threads of one process; null: chosen for the networks (>= 1)
        env_timeout (float, default 300.0): seconds after which a step counts as hung (> 0)
        workers (int | None, default None): environment worker processes; null: chosen for the machine
            (>= 0)
        video (bool, default True): record a video of the agent at the end
        report (bool, default True): write report.html at the end
        tensorboard (bool, default False): write TensorBoard files too: the same as the writer
            tensorboard
        started_from (Mapping[str, Any] | None, default None): the agent file or run whose weights a new
            run starts from: its `path`, perhaps `groups` of weights; a run's own config has its
            `sha256`, `step` and `seeds` too
        eval_episode_limit (int, default 10000): steps after which an episode of an evaluation, a video
            or a recording is cut where the environment has no limit (>= 1)
        run_name (str | None, default None): name of its directory; null: `<algo>-<env>-seed<k>` (a name
            of at most 200 letters, digits and -_.=+ that starts with a letter or digit)
        writers (Mapping[str, Any] | Sequence[str], default ()): places of the metric rows besides
            metrics.jsonl: names, or a mapping from names to options
        info_metrics (Sequence[str], default ("is_success",)): numbers in the info of an episode's last
            step that become metrics; is_success becomes success_rate (a name that is not one of the
            library's)
        schedule_steps (int | None, default None): steps over which all schedules run, at least the
            run's; null: total_timesteps. Extending a run does not change it (>= 1)

    Settings of drq. Defaults: the authors' code (denisyarats/drq config.yaml, drq.py), except for the
    temperature: they tune it from this value (`alpha: auto`). Their loss is the sum over the M images,
    ours the paper's mean:
        batch_size (int, default 128): transitions of one update, per seed (>= 1)
        hidden_sizes (Sequence[int], default (1024, 1024)): sizes of the hidden layers behind the
            encoder
        learning_rate (float, default 0.001): step size of the optimizer (> 0)
        learning_rate_schedule (Literal["constant", "linear", "cosine"] | Callable[[float], float],
            default "constant"): of the rate over the run; a Python function returns the rate, given the
            share of the run that is done
        learning_rate_end (float, default 0.0): linear, cosine: the share of the rate at the end (in [0,
            1])
        learning_rate_warmup (float, default 0.0): share of the run in which it rises from 0 (in [0, 1))
        max_grad_norm (float | None, default None): clips the norm of gradients; null: not (> 0)
        optimizer (str | Mapping[str, Any], default {}): by its name in torch.optim, with options
        adam_eps (float, default 1e-08): the default of the optimizer's `eps` (> 0)
        gamma (float, default 0.99): discount of future rewards (in [0, 1])
        normalize_observations (bool, default False): standardise them by their running mean and
            variance
        network (str | Mapping[str, Any], default {}): layers, and networks of one's own
        buffer_capacity (int, default 100000): transitions in the replay, per seed (>= 1)
        learning_starts (int, default 1000): uniformly random actions and no updates until then (>= 0)
        train_frequency (int, default 1): transitions between trainings (>= 1)
        gradient_updates_per_step (int, default 1): updates per training (>= 1)
        tau (float, default 0.01): share of a network that its target takes over at each update (in [0,
            1])
        alpha (float | Literal["auto"], default 0.1): entropy temperature; auto: tuned (>= 0)
        initial_alpha (float, default 0.1): the initial value of a tuned temperature (>= 1e-08)
        target_entropy (float | Literal["auto"], default "auto"): of a tuned one; auto: minus the action
            dimensions
        num_critics (int, default 2): critics; the smallest value counts (>= 1)
        precision (str, default "float32"): of matrix products and convolutions (one of float32,
            bfloat16)
        her (Mapping[str, Any] | None, default None): relabel goals in hindsight (Andrychowicz et al.
            2017); null: never
        actor_hidden_sizes (Sequence[int] | None, default None): null: `hidden_sizes`
        critic_hidden_sizes (Sequence[int] | None, default None): null: `hidden_sizes`
        features_dim (int, default 50): size of the projected features, before a LayerNorm (>= 1)
        augmentation_pad (int, default 4): pixels: the largest shift of an image (>= 0)
        policy_delay (int, default 2): updates of the critics for each of the actor and the targets (>=
            1)
        target_augmentations (int, default 2): copies in the target (the paper's K) (>= 1 and <= 64)
        loss_augmentations (int, default 2): copies in the loss (the paper's M) (>= 1 and <= 64)
        encoder (str, default "drq"): the convolutions: the authors' or the Nature CNN (one of drq,
            nature)
    """

    def __init__(
        self,
        env: str | TrainConfig | EnvFactory,
        *,
        seed: int = 0,
        total_timesteps: int = 100000,
        output_dir: str | Path = ...,
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 5,
        log_interval: int = 1000,
        checkpoint_interval: int = 10000,
        tags: Sequence[str] = (),
        env_kwargs: Mapping[str, Any] = ...,
        eval_interval: int | None = None,
        keep_checkpoints: int = 2,
        seeds: Sequence[int] = (),
        compile: str = "auto",
        threads: int | None = None,
        env_timeout: float = 300.0,
        workers: int | None = None,
        video: bool = True,
        report: bool = True,
        tensorboard: bool = False,
        started_from: Mapping[str, Any] | None = None,
        eval_episode_limit: int = 10000,
        run_name: str | None = None,
        writers: Mapping[str, Any] | Sequence[str] = (),
        info_metrics: Sequence[str] = ("is_success",),
        schedule_steps: int | None = None,
        batch_size: int = 128,
        hidden_sizes: Sequence[int] = (1024, 1024),
        learning_rate: float = 0.001,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] | Callable[[float], float] = "constant",
        learning_rate_end: float = 0.0,
        learning_rate_warmup: float = 0.0,
        max_grad_norm: float | None = None,
        optimizer: str | Mapping[str, Any] = ...,
        adam_eps: float = 1e-08,
        gamma: float = 0.99,
        normalize_observations: bool = False,
        network: str | Mapping[str, Any] = ...,
        buffer_capacity: int = 100000,
        learning_starts: int = 1000,
        train_frequency: int = 1,
        gradient_updates_per_step: int = 1,
        tau: float = 0.01,
        alpha: float | Literal["auto"] = 0.1,
        initial_alpha: float = 0.1,
        target_entropy: float | Literal["auto"] = "auto",
        num_critics: int = 2,
        precision: str = "float32",
        her: Mapping[str, Any] | None = None,
        actor_hidden_sizes: Sequence[int] | None = None,
        critic_hidden_sizes: Sequence[int] | None = None,
        features_dim: int = 50,
        augmentation_pad: int = 4,
        policy_delay: int = 2,
        target_augmentations: int = 2,
        loss_augmentations: int = 2,
        encoder: str = "drq",
    ) -> None: ...

class DrQv2(ManagedAlgorithm):
    """DrQ-v2: deterministic actor from pixels, n-step returns, scheduled noise.

    Args:
        env: an environment's id, a function that makes one, or a `TrainConfig`
        seed (int, default 0): determines all random numbers of the run (>= 0 and < 2**31)
        total_timesteps (int, default 100000): environment steps per seed; offline, updates (>= 1)
        output_dir (str | Path, default "runs"): the directory in which the run's directory is made
        device (str, default "auto"): auto: a GPU if there is one (one of auto, cpu, cuda, cuda:N)
        num_envs (int, default 1): environments per seed (>= 1)
        eval_episodes (int, default 5): episodes of an evaluation, per seed; 0: no evaluations (>= 0)
        log_interval (int, default 1000): steps between rows of metrics (>= 1)
        checkpoint_interval (int, default 10000): steps between checkpoints (>= 1)
        tags (Sequence[str], default ()): words of your own, stored with the run
        env_kwargs (Mapping[str, Any], default {}): arguments of the environment; `wrappers`
        eval_interval (int | None, default None): steps between evaluations; null: a tenth of the run
            (>= 1)
        keep_checkpoints (int, default 2): checkpoints that stay, the newest ones (>= 1)
        seeds (Sequence[int], default ()): trained together as one program; empty: `seed` alone (>= 0
            and < 2**31)
        compile (str, default "auto"): compile the update; auto: where that saves time (one of auto, on,
            off)
        threads (int | None, default None): threads of one process; null: chosen for the networks (>= 1)
        env_timeout (float, default 300.0): seconds after which a step counts as hung (> 0)
        workers (int | None, default None): environment worker processes; null: chosen for the machine
            (>= 0)
        video (bool, default True): record a video of the agent at the end
        report (bool, default True): write report.html at the end
        tensorboard (bool, default False): write TensorBoard files too: the same as the writer
            tensorboard
        started_from (Mapping[str, Any] | None, default None): the agent file or run whose weights a new
            run starts from: its `path`, perhaps `groups` of weights; a run's own config has its
            `sha256`, `step` and `seeds` too
        eval_episode_limit (int, default 10000): steps after which an episode of an evaluation, a video
            or a recording is cut where the environment has no limit (>= 1)
        run_name (str | None, default None): name of its directory; null: `<algo>-<env>-seed<k>` (a name
            of at most 200 letters, digits and -_.=+ that starts with a letter or digit)
        writers (Mapping[str, Any] | Sequence[str], default ()): places of the metric rows besides
            metrics.jsonl: names, or a mapping from names to options
        info_metrics (Sequence[str], default ("is_success",)): numbers in the info of an episode's last
            step that become metrics; is_success becomes success_rate (a name that is not one of the
            library's)
        schedule_steps (int | None, default None): steps over which all schedules run, at least the
            run's; null: total_timesteps. Extending a run does not change it (>= 1)

    Settings of drqv2. Defaults: the authors' code (facebookresearch/drqv2 cfgs/config.yaml,
    cfgs/task/easy.yaml):
        batch_size (int, default 256): transitions of one update, per seed (>= 1)
        hidden_sizes (Sequence[int], default (1024, 1024)): sizes of the hidden layers behind the
            encoder
        learning_rate (float, default 0.0001): step size of the optimizer (> 0)
        learning_rate_schedule (Literal["constant", "linear", "cosine"] | Callable[[float], float],
            default "constant"): of the rate over the run; a Python function returns the rate, given the
            share of the run that is done
        learning_rate_end (float, default 0.0): linear, cosine: the share of the rate at the end (in [0,
            1])
        learning_rate_warmup (float, default 0.0): share of the run in which it rises from 0 (in [0, 1))
        max_grad_norm (float | None, default None): clips the norm of gradients; null: not (> 0)
        optimizer (str | Mapping[str, Any], default {}): by its name in torch.optim, with options
        adam_eps (float, default 1e-08): the default of the optimizer's `eps` (> 0)
        gamma (float, default 0.99): discount of future rewards (in [0, 1])
        normalize_observations (bool, default False): standardise them by their running mean and
            variance
        network (str | Mapping[str, Any], default {}): layers, and networks of one's own
        buffer_capacity (int, default 1000000): transitions in the replay, per seed (>= 1)
        learning_starts (int, default 2000): uniformly random actions and no updates until then (>= 0)
        train_frequency (int, default 2): transitions between trainings (>= 1)
        gradient_updates_per_step (int, default 1): updates per training (>= 1)
        actor_hidden_sizes (Sequence[int] | None, default None): null: `hidden_sizes`
        critic_hidden_sizes (Sequence[int] | None, default None): null: `hidden_sizes`
        features_dim (int, default 50): size of the projected features, before a LayerNorm (>= 1)
        augmentation_pad (int, default 4): pixels: the largest shift of an image (>= 0)
        precision (str, default "float32"): of matrix products and convolutions (one of float32,
            bfloat16)
        tau (float, default 0.01): share of a network that its target takes over at each update (in [0,
            1])
        n_step (int, default 3): rewards in a return before it is bootstrapped (>= 1)
        std_start (float, default 1.0): standard deviation of the noise at the start (>= 0)
        std_end (float, default 0.1): standard deviation of the noise after `std_steps` (>= 0)
        std_steps (int, default 100000): agent steps over which it falls (>= 1)
        noise_clip (float, default 0.3): bound of the noise in the losses, not in the environment (>= 0)
    """

    def __init__(
        self,
        env: str | TrainConfig | EnvFactory,
        *,
        seed: int = 0,
        total_timesteps: int = 100000,
        output_dir: str | Path = ...,
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 5,
        log_interval: int = 1000,
        checkpoint_interval: int = 10000,
        tags: Sequence[str] = (),
        env_kwargs: Mapping[str, Any] = ...,
        eval_interval: int | None = None,
        keep_checkpoints: int = 2,
        seeds: Sequence[int] = (),
        compile: str = "auto",
        threads: int | None = None,
        env_timeout: float = 300.0,
        workers: int | None = None,
        video: bool = True,
        report: bool = True,
        tensorboard: bool = False,
        started_from: Mapping[str, Any] | None = None,
        eval_episode_limit: int = 10000,
        run_name: str | None = None,
        writers: Mapping[str, Any] | Sequence[str] = (),
        info_metrics: Sequence[str] = ("is_success",),
        schedule_steps: int | None = None,
        batch_size: int = 256,
        hidden_sizes: Sequence[int] = (1024, 1024),
        learning_rate: float = 0.0001,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] | Callable[[float], float] = "constant",
        learning_rate_end: float = 0.0,
        learning_rate_warmup: float = 0.0,
        max_grad_norm: float | None = None,
        optimizer: str | Mapping[str, Any] = ...,
        adam_eps: float = 1e-08,
        gamma: float = 0.99,
        normalize_observations: bool = False,
        network: str | Mapping[str, Any] = ...,
        buffer_capacity: int = 1000000,
        learning_starts: int = 2000,
        train_frequency: int = 2,
        gradient_updates_per_step: int = 1,
        actor_hidden_sizes: Sequence[int] | None = None,
        critic_hidden_sizes: Sequence[int] | None = None,
        features_dim: int = 50,
        augmentation_pad: int = 4,
        precision: str = "float32",
        tau: float = 0.01,
        n_step: int = 3,
        std_start: float = 1.0,
        std_end: float = 0.1,
        std_steps: int = 100000,
        noise_clip: float = 0.3,
    ) -> None: ...

class BC(ManagedAlgorithm):
    """Behaviour cloning.

    Args:
        env: an environment's id, a function that makes one, or a `TrainConfig`
        dataset: a mapping of arrays by name or a `TransitionDataset`, with actions in the environment's
            units
        seed (int, default 0): determines all random numbers of the run (>= 0 and < 2**31)
        total_timesteps (int, default 100000): environment steps per seed; offline, updates (>= 1)
        output_dir (str | Path, default "runs"): the directory in which the run's directory is made
        device (str, default "auto"): auto: a GPU if there is one (one of auto, cpu, cuda, cuda:N)
        num_envs (int, default 1): environments per seed (>= 1)
        eval_episodes (int, default 5): episodes of an evaluation, per seed; 0: no evaluations (>= 0)
        log_interval (int, default 1000): steps between rows of metrics (>= 1)
        checkpoint_interval (int, default 10000): steps between checkpoints (>= 1)
        tags (Sequence[str], default ()): words of your own, stored with the run
        env_kwargs (Mapping[str, Any], default {}): arguments of the environment; `wrappers`
        eval_interval (int | None, default None): steps between evaluations; null: a tenth of the run
            (>= 1)
        keep_checkpoints (int, default 2): checkpoints that stay, the newest ones (>= 1)
        seeds (Sequence[int], default ()): trained together as one program; empty: `seed` alone (>= 0
            and < 2**31)
        compile (str, default "auto"): compile the update; auto: where that saves time (one of auto, on,
            off)
        threads (int | None, default None): threads of one process; null: chosen for the networks (>= 1)
        env_timeout (float, default 300.0): seconds after which a step counts as hung (> 0)
        workers (int | None, default None): environment worker processes; null: chosen for the machine
            (>= 0)
        video (bool, default True): record a video of the agent at the end
        report (bool, default True): write report.html at the end
        tensorboard (bool, default False): write TensorBoard files too: the same as the writer
            tensorboard
        started_from (Mapping[str, Any] | None, default None): the agent file or run whose weights a new
            run starts from: its `path`, perhaps `groups` of weights; a run's own config has its
            `sha256`, `step` and `seeds` too
        eval_episode_limit (int, default 10000): steps after which an episode of an evaluation, a video
            or a recording is cut where the environment has no limit (>= 1)
        run_name (str | None, default None): name of its directory; null: `<algo>-<env>-seed<k>` (a name
            of at most 200 letters, digits and -_.=+ that starts with a letter or digit)
        writers (Mapping[str, Any] | Sequence[str], default ()): places of the metric rows besides
            metrics.jsonl: names, or a mapping from names to options
        info_metrics (Sequence[str], default ("is_success",)): numbers in the info of an episode's last
            step that become metrics; is_success becomes success_rate (a name that is not one of the
            library's)
        schedule_steps (int | None, default None): steps over which all schedules run, at least the
            run's; null: total_timesteps. Extending a run does not change it (>= 1)

    Settings of bc. Defaults: CORL's: two layers of 256, batches of 256, rate 3e-4; locomotion on
    normalised states:
        batch_size (int, default 256): transitions of one update, per seed (>= 1)
        hidden_sizes (Sequence[int], default (256, 256)): sizes of the hidden layers of the networks
        learning_rate (float, default 0.0003): step size of the optimizer (> 0)
        learning_rate_schedule (Literal["constant", "linear", "cosine"] | Callable[[float], float],
            default "constant"): of the rate over the run; a Python function returns the rate, given the
            share of the run that is done
        learning_rate_end (float, default 0.0): linear, cosine: the share of the rate at the end (in [0,
            1])
        learning_rate_warmup (float, default 0.0): share of the run in which it rises from 0 (in [0, 1))
        max_grad_norm (float | None, default None): clips the norm of gradients; null: not (> 0)
        optimizer (str | Mapping[str, Any], default {}): by its name in torch.optim, with options
        adam_eps (float, default 1e-08): the default of the optimizer's `eps` (> 0)
        gamma (float, default 0.99): discount of future rewards (in [0, 1])
        normalize_observations (bool, default False): standardise them by the dataset's mean and
            deviation
        network (str | Mapping[str, Any], default {}): layers, and networks of one's own
        buffer_capacity (int, default 1000000): transitions in the replay, per seed (>= 1)
        learning_starts (int, default 256): online: transitions before updates continue (>= 0)
        train_frequency (int, default 1): transitions between trainings (>= 1)
        gradient_updates_per_step (int, default 1): updates per training (>= 1)
        offline_steps (int | None, default None): updates before the run continues online; null: never
            (>= 0)
        online_data_share (float, default 0.5): online, the share of a batch from the dataset (in [0,
            1])
        dataset_kind (str | None, default None): null: `file` where there is a dataset_path, `policy`
            where there is a dataset_agent, else `random`; memory: passed in Python with `dataset=`,
            which a resume of the run needs again (one of random, policy, file)
        dataset_size (int, default 10000): transitions to generate (>= 2)
        dataset_seed (int, default 0): determines the generated transitions (>= 0)
        dataset_path (str | Path | Sequence[str | Path] | None, default None): for `file`: npz, HDF5, a
            Minari dataset, or a run (its replay); several are concatenated
        dataset_agent (str | Path | None, default None): for `policy`: the agent file, e.g. the packaged
            `agents/pendulum.safetensors`
        dataset_noise (float, default 0.0): for `policy`: noise added to the agent's actions (>= 0)
        reward_scale (float | Literal["return_range"], default 1.0): multiplies rewards; return_range:
            by 1000 / (the largest return of a trajectory - the smallest), as IQL's authors do for
            locomotion (> 0)
        reward_shift (float, default 0.0): added after scaling; AntMaze: -1
        drop_nonfinite (bool, default False): leave out rows with NaN or infinity
        clip_actions (bool, default False): actions outside the environment's bounds are clipped
    """

    def __init__(
        self,
        env: str | TrainConfig | EnvFactory,
        *,
        dataset: Dataset | None = None,
        seed: int = 0,
        total_timesteps: int = 100000,
        output_dir: str | Path = ...,
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 5,
        log_interval: int = 1000,
        checkpoint_interval: int = 10000,
        tags: Sequence[str] = (),
        env_kwargs: Mapping[str, Any] = ...,
        eval_interval: int | None = None,
        keep_checkpoints: int = 2,
        seeds: Sequence[int] = (),
        compile: str = "auto",
        threads: int | None = None,
        env_timeout: float = 300.0,
        workers: int | None = None,
        video: bool = True,
        report: bool = True,
        tensorboard: bool = False,
        started_from: Mapping[str, Any] | None = None,
        eval_episode_limit: int = 10000,
        run_name: str | None = None,
        writers: Mapping[str, Any] | Sequence[str] = (),
        info_metrics: Sequence[str] = ("is_success",),
        schedule_steps: int | None = None,
        batch_size: int = 256,
        hidden_sizes: Sequence[int] = (256, 256),
        learning_rate: float = 0.0003,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] | Callable[[float], float] = "constant",
        learning_rate_end: float = 0.0,
        learning_rate_warmup: float = 0.0,
        max_grad_norm: float | None = None,
        optimizer: str | Mapping[str, Any] = ...,
        adam_eps: float = 1e-08,
        gamma: float = 0.99,
        normalize_observations: bool = False,
        network: str | Mapping[str, Any] = ...,
        buffer_capacity: int = 1000000,
        learning_starts: int = 256,
        train_frequency: int = 1,
        gradient_updates_per_step: int = 1,
        offline_steps: int | None = None,
        online_data_share: float = 0.5,
        dataset_kind: str | None = None,
        dataset_size: int = 10000,
        dataset_seed: int = 0,
        dataset_path: str | Path | Sequence[str | Path] | None = None,
        dataset_agent: str | Path | None = None,
        dataset_noise: float = 0.0,
        reward_scale: float | Literal["return_range"] = 1.0,
        reward_shift: float = 0.0,
        drop_nonfinite: bool = False,
        clip_actions: bool = False,
    ) -> None: ...

class IQL(ManagedAlgorithm):
    """Implicit Q-learning.

    Args:
        env: an environment's id, a function that makes one, or a `TrainConfig`
        dataset: a mapping of arrays by name or a `TransitionDataset`, with actions in the environment's
            units
        seed (int, default 0): determines all random numbers of the run (>= 0 and < 2**31)
        total_timesteps (int, default 100000): environment steps per seed; offline, updates (>= 1)
        output_dir (str | Path, default "runs"): the directory in which the run's directory is made
        device (str, default "auto"): auto: a GPU if there is one (one of auto, cpu, cuda, cuda:N)
        num_envs (int, default 1): environments per seed (>= 1)
        eval_episodes (int, default 5): episodes of an evaluation, per seed; 0: no evaluations (>= 0)
        log_interval (int, default 1000): steps between rows of metrics (>= 1)
        checkpoint_interval (int, default 10000): steps between checkpoints (>= 1)
        tags (Sequence[str], default ()): words of your own, stored with the run
        env_kwargs (Mapping[str, Any], default {}): arguments of the environment; `wrappers`
        eval_interval (int | None, default None): steps between evaluations; null: a tenth of the run
            (>= 1)
        keep_checkpoints (int, default 2): checkpoints that stay, the newest ones (>= 1)
        seeds (Sequence[int], default ()): trained together as one program; empty: `seed` alone (>= 0
            and < 2**31)
        compile (str, default "auto"): compile the update; auto: where that saves time (one of auto, on,
            off)
        threads (int | None, default None): threads of one process; null: chosen for the networks (>= 1)
        env_timeout (float, default 300.0): seconds after which a step counts as hung (> 0)
        workers (int | None, default None): environment worker processes; null: chosen for the machine
            (>= 0)
        video (bool, default True): record a video of the agent at the end
        report (bool, default True): write report.html at the end
        tensorboard (bool, default False): write TensorBoard files too: the same as the writer
            tensorboard
        started_from (Mapping[str, Any] | None, default None): the agent file or run whose weights a new
            run starts from: its `path`, perhaps `groups` of weights; a run's own config has its
            `sha256`, `step` and `seeds` too
        eval_episode_limit (int, default 10000): steps after which an episode of an evaluation, a video
            or a recording is cut where the environment has no limit (>= 1)
        run_name (str | None, default None): name of its directory; null: `<algo>-<env>-seed<k>` (a name
            of at most 200 letters, digits and -_.=+ that starts with a letter or digit)
        writers (Mapping[str, Any] | Sequence[str], default ()): places of the metric rows besides
            metrics.jsonl: names, or a mapping from names to options
        info_metrics (Sequence[str], default ("is_success",)): numbers in the info of an episode's last
            step that become metrics; is_success becomes success_rate (a name that is not one of the
            library's)
        schedule_steps (int | None, default None): steps over which all schedules run, at least the
            run's; null: total_timesteps. Extending a run does not change it (>= 1)

    Settings of iql. Defaults: the authors' code for locomotion (implicit_q_learning: mujoco_config.py,
    learner.py):
        batch_size (int, default 256): transitions of one update, per seed (>= 1)
        hidden_sizes (Sequence[int], default (256, 256)): sizes of the hidden layers of the networks
        learning_rate (float, default 0.0003): step size of the optimizer (> 0)
        learning_rate_schedule (Literal["constant", "linear", "cosine"] | Callable[[float], float],
            default "constant"): of the rate over the run; a Python function returns the rate, given the
            share of the run that is done
        learning_rate_end (float, default 0.0): linear, cosine: the share of the rate at the end (in [0,
            1])
        learning_rate_warmup (float, default 0.0): share of the run in which it rises from 0 (in [0, 1))
        max_grad_norm (float | None, default None): clips the norm of gradients; null: not (> 0)
        optimizer (str | Mapping[str, Any], default {}): by its name in torch.optim, with options
        adam_eps (float, default 1e-08): the default of the optimizer's `eps` (> 0)
        gamma (float, default 0.99): discount of future rewards (in [0, 1])
        normalize_observations (bool, default False): standardise them by the dataset's mean and
            deviation
        network (str | Mapping[str, Any], default {}): layers, and networks of one's own
        buffer_capacity (int, default 1000000): transitions in the replay, per seed (>= 1)
        learning_starts (int, default 256): online: transitions before updates continue (>= 0)
        train_frequency (int, default 1): transitions between trainings (>= 1)
        gradient_updates_per_step (int, default 1): updates per training (>= 1)
        offline_steps (int | None, default None): updates before the run continues online; null: never
            (>= 0)
        online_data_share (float, default 0.5): online, the share of a batch from the dataset (in [0,
            1])
        dataset_kind (str | None, default None): null: `file` where there is a dataset_path, `policy`
            where there is a dataset_agent, else `random`; memory: passed in Python with `dataset=`,
            which a resume of the run needs again (one of random, policy, file)
        dataset_size (int, default 10000): transitions to generate (>= 2)
        dataset_seed (int, default 0): determines the generated transitions (>= 0)
        dataset_path (str | Path | Sequence[str | Path] | None, default None): for `file`: npz, HDF5, a
            Minari dataset, or a run (its replay); several are concatenated
        dataset_agent (str | Path | None, default None): for `policy`: the agent file, e.g. the packaged
            `agents/pendulum.safetensors`
        dataset_noise (float, default 0.0): for `policy`: noise added to the agent's actions (>= 0)
        reward_scale (float | Literal["return_range"], default "return_range"): multiplies rewards;
            return_range: by 1000 / (the largest return of a trajectory - the smallest), as IQL's
            authors do for locomotion (> 0)
        reward_shift (float, default 0.0): added after scaling; AntMaze: -1
        drop_nonfinite (bool, default False): leave out rows with NaN or infinity
        clip_actions (bool, default False): actions outside the environment's bounds are clipped
        tau (float, default 0.005): share of a network that its target takes over at each update (in [0,
            1])
        expectile (float, default 0.7): of the values that V estimates; 1: the best (in (0, 1))
        beta (float, default 3.0): multiplies the advantage (the paper's inverse temperature) (> 0)
        max_advantage_weight (float, default 100.0): bound of an action's weight in the actor's loss (>
            0)
        actor_schedule (str, default "cosine"): cosine: the actor's rate decreases to 0 (one of cosine,
            constant)
    """

    def __init__(
        self,
        env: str | TrainConfig | EnvFactory,
        *,
        dataset: Dataset | None = None,
        seed: int = 0,
        total_timesteps: int = 100000,
        output_dir: str | Path = ...,
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 5,
        log_interval: int = 1000,
        checkpoint_interval: int = 10000,
        tags: Sequence[str] = (),
        env_kwargs: Mapping[str, Any] = ...,
        eval_interval: int | None = None,
        keep_checkpoints: int = 2,
        seeds: Sequence[int] = (),
        compile: str = "auto",
        threads: int | None = None,
        env_timeout: float = 300.0,
        workers: int | None = None,
        video: bool = True,
        report: bool = True,
        tensorboard: bool = False,
        started_from: Mapping[str, Any] | None = None,
        eval_episode_limit: int = 10000,
        run_name: str | None = None,
        writers: Mapping[str, Any] | Sequence[str] = (),
        info_metrics: Sequence[str] = ("is_success",),
        schedule_steps: int | None = None,
        batch_size: int = 256,
        hidden_sizes: Sequence[int] = (256, 256),
        learning_rate: float = 0.0003,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] | Callable[[float], float] = "constant",
        learning_rate_end: float = 0.0,
        learning_rate_warmup: float = 0.0,
        max_grad_norm: float | None = None,
        optimizer: str | Mapping[str, Any] = ...,
        adam_eps: float = 1e-08,
        gamma: float = 0.99,
        normalize_observations: bool = False,
        network: str | Mapping[str, Any] = ...,
        buffer_capacity: int = 1000000,
        learning_starts: int = 256,
        train_frequency: int = 1,
        gradient_updates_per_step: int = 1,
        offline_steps: int | None = None,
        online_data_share: float = 0.5,
        dataset_kind: str | None = None,
        dataset_size: int = 10000,
        dataset_seed: int = 0,
        dataset_path: str | Path | Sequence[str | Path] | None = None,
        dataset_agent: str | Path | None = None,
        dataset_noise: float = 0.0,
        reward_scale: float | Literal["return_range"] = "return_range",
        reward_shift: float = 0.0,
        drop_nonfinite: bool = False,
        clip_actions: bool = False,
        tau: float = 0.005,
        expectile: float = 0.7,
        beta: float = 3.0,
        max_advantage_weight: float = 100.0,
        actor_schedule: str = "cosine",
    ) -> None: ...

class CQL(ManagedAlgorithm):
    """Conservative Q-learning.

    Args:
        env: an environment's id, a function that makes one, or a `TrainConfig`
        dataset: a mapping of arrays by name or a `TransitionDataset`, with actions in the environment's
            units
        seed (int, default 0): determines all random numbers of the run (>= 0 and < 2**31)
        total_timesteps (int, default 100000): environment steps per seed; offline, updates (>= 1)
        output_dir (str | Path, default "runs"): the directory in which the run's directory is made
        device (str, default "auto"): auto: a GPU if there is one (one of auto, cpu, cuda, cuda:N)
        num_envs (int, default 1): environments per seed (>= 1)
        eval_episodes (int, default 5): episodes of an evaluation, per seed; 0: no evaluations (>= 0)
        log_interval (int, default 1000): steps between rows of metrics (>= 1)
        checkpoint_interval (int, default 10000): steps between checkpoints (>= 1)
        tags (Sequence[str], default ()): words of your own, stored with the run
        env_kwargs (Mapping[str, Any], default {}): arguments of the environment; `wrappers`
        eval_interval (int | None, default None): steps between evaluations; null: a tenth of the run
            (>= 1)
        keep_checkpoints (int, default 2): checkpoints that stay, the newest ones (>= 1)
        seeds (Sequence[int], default ()): trained together as one program; empty: `seed` alone (>= 0
            and < 2**31)
        compile (str, default "auto"): compile the update; auto: where that saves time (one of auto, on,
            off)
        threads (int | None, default None): threads of one process; null: chosen for the networks (>= 1)
        env_timeout (float, default 300.0): seconds after which a step counts as hung (> 0)
        workers (int | None, default None): environment worker processes; null: chosen for the machine
            (>= 0)
        video (bool, default True): record a video of the agent at the end
        report (bool, default True): write report.html at the end
        tensorboard (bool, default False): write TensorBoard files too: the same as the writer
            tensorboard
        started_from (Mapping[str, Any] | None, default None): the agent file or run whose weights a new
            run starts from: its `path`, perhaps `groups` of weights; a run's own config has its
            `sha256`, `step` and `seeds` too
        eval_episode_limit (int, default 10000): steps after which an episode of an evaluation, a video
            or a recording is cut where the environment has no limit (>= 1)
        run_name (str | None, default None): name of its directory; null: `<algo>-<env>-seed<k>` (a name
            of at most 200 letters, digits and -_.=+ that starts with a letter or digit)
        writers (Mapping[str, Any] | Sequence[str], default ()): places of the metric rows besides
            metrics.jsonl: names, or a mapping from names to options
        info_metrics (Sequence[str], default ("is_success",)): numbers in the info of an episode's last
            step that become metrics; is_success becomes success_rate (a name that is not one of the
            library's)
        schedule_steps (int | None, default None): steps over which all schedules run, at least the
            run's; null: total_timesteps. Extending a run does not change it (>= 1)

    Settings of cql. Defaults: the authors' code for locomotion as CORL runs it (cql_alpha 10, no
    Lagrange, 3 layers, slow actor), on SAC's networks: CORL initialises critics orthogonally, and its
    actor's log-std one lower:
        batch_size (int, default 256): transitions of one update, per seed (>= 1)
        hidden_sizes (Sequence[int], default (256, 256, 256)): sizes of the hidden layers of the
            networks
        learning_rate (float, default 0.0003): step size of the optimizer (> 0)
        learning_rate_schedule (Literal["constant", "linear", "cosine"] | Callable[[float], float],
            default "constant"): of the rate over the run; a Python function returns the rate, given the
            share of the run that is done
        learning_rate_end (float, default 0.0): linear, cosine: the share of the rate at the end (in [0,
            1])
        learning_rate_warmup (float, default 0.0): share of the run in which it rises from 0 (in [0, 1))
        max_grad_norm (float | None, default None): clips the norm of gradients; null: not (> 0)
        optimizer (str | Mapping[str, Any], default {}): by its name in torch.optim, with options
        adam_eps (float, default 1e-08): the default of the optimizer's `eps` (> 0)
        gamma (float, default 0.99): discount of future rewards (in [0, 1])
        normalize_observations (bool, default False): standardise them by the dataset's mean and
            deviation
        network (str | Mapping[str, Any], default {}): layers, and networks of one's own
        buffer_capacity (int, default 1000000): transitions in the replay, per seed (>= 1)
        learning_starts (int, default 256): online: transitions before updates continue (>= 0)
        train_frequency (int, default 1): transitions between trainings (>= 1)
        gradient_updates_per_step (int, default 1): updates per training (>= 1)
        tau (float, default 0.005): share of a network that its target takes over at each update (in [0,
            1])
        alpha (float | Literal["auto"], default "auto"): entropy temperature; auto: tuned (>= 0)
        initial_alpha (float, default 1.0): the initial value of a tuned temperature (>= 1e-08)
        target_entropy (float | Literal["auto"], default "auto"): of a tuned one; auto: minus the action
            dimensions
        num_critics (int, default 2): critics; the smallest value counts (>= 1)
        precision (str, default "float32"): of matrix products and convolutions (one of float32,
            bfloat16)
        her (Mapping[str, Any] | None, default None): relabel goals in hindsight (Andrychowicz et al.
            2017); null: never
        offline_steps (int | None, default None): updates before the run continues online; null: never
            (>= 0)
        online_data_share (float, default 0.5): online, the share of a batch from the dataset (in [0,
            1])
        dataset_kind (str | None, default None): null: `file` where there is a dataset_path, `policy`
            where there is a dataset_agent, else `random`; memory: passed in Python with `dataset=`,
            which a resume of the run needs again (one of random, policy, file)
        dataset_size (int, default 10000): transitions to generate (>= 2)
        dataset_seed (int, default 0): determines the generated transitions (>= 0)
        dataset_path (str | Path | Sequence[str | Path] | None, default None): for `file`: npz, HDF5, a
            Minari dataset, or a run (its replay); several are concatenated
        dataset_agent (str | Path | None, default None): for `policy`: the agent file, e.g. the packaged
            `agents/pendulum.safetensors`
        dataset_noise (float, default 0.0): for `policy`: noise added to the agent's actions (>= 0)
        reward_scale (float | Literal["return_range"], default 1.0): multiplies rewards; return_range:
            by 1000 / (the largest return of a trajectory - the smallest), as IQL's authors do for
            locomotion (> 0)
        reward_shift (float, default 0.0): added after scaling; AntMaze: -1
        drop_nonfinite (bool, default False): leave out rows with NaN or infinity
        clip_actions (bool, default False): actions outside the environment's bounds are clipped
        actor_learning_rate (float | None, default 3e-05): the temperature's too; null: as the critics
            (> 0)
        cql_alpha (float, default 10.0): weight of the conservative penalty (> 0)
        num_cql_samples (int, default 10): actions of each of three kinds in the penalty (>= 1 and <=
            1000)
        cql_temperature (float, default 1.0): of the log-sum-exp in the penalty (> 0)
        lagrange_threshold (float | None, default None): if set, the penalty's weight is tuned to keep
            this gap (> 0)
        bc_updates (int, default 0): updates at the start in which the actor clones the data (>= 0)
        backup_entropy (bool, default False): true: SAC's target; false: the authors', without entropy
        max_backup (bool, default False): the maximum over `num_cql_samples` next actions, for each
            critic
    """

    def __init__(
        self,
        env: str | TrainConfig | EnvFactory,
        *,
        dataset: Dataset | None = None,
        seed: int = 0,
        total_timesteps: int = 100000,
        output_dir: str | Path = ...,
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 5,
        log_interval: int = 1000,
        checkpoint_interval: int = 10000,
        tags: Sequence[str] = (),
        env_kwargs: Mapping[str, Any] = ...,
        eval_interval: int | None = None,
        keep_checkpoints: int = 2,
        seeds: Sequence[int] = (),
        compile: str = "auto",
        threads: int | None = None,
        env_timeout: float = 300.0,
        workers: int | None = None,
        video: bool = True,
        report: bool = True,
        tensorboard: bool = False,
        started_from: Mapping[str, Any] | None = None,
        eval_episode_limit: int = 10000,
        run_name: str | None = None,
        writers: Mapping[str, Any] | Sequence[str] = (),
        info_metrics: Sequence[str] = ("is_success",),
        schedule_steps: int | None = None,
        batch_size: int = 256,
        hidden_sizes: Sequence[int] = (256, 256, 256),
        learning_rate: float = 0.0003,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] | Callable[[float], float] = "constant",
        learning_rate_end: float = 0.0,
        learning_rate_warmup: float = 0.0,
        max_grad_norm: float | None = None,
        optimizer: str | Mapping[str, Any] = ...,
        adam_eps: float = 1e-08,
        gamma: float = 0.99,
        normalize_observations: bool = False,
        network: str | Mapping[str, Any] = ...,
        buffer_capacity: int = 1000000,
        learning_starts: int = 256,
        train_frequency: int = 1,
        gradient_updates_per_step: int = 1,
        tau: float = 0.005,
        alpha: float | Literal["auto"] = "auto",
        initial_alpha: float = 1.0,
        target_entropy: float | Literal["auto"] = "auto",
        num_critics: int = 2,
        precision: str = "float32",
        her: Mapping[str, Any] | None = None,
        offline_steps: int | None = None,
        online_data_share: float = 0.5,
        dataset_kind: str | None = None,
        dataset_size: int = 10000,
        dataset_seed: int = 0,
        dataset_path: str | Path | Sequence[str | Path] | None = None,
        dataset_agent: str | Path | None = None,
        dataset_noise: float = 0.0,
        reward_scale: float | Literal["return_range"] = 1.0,
        reward_shift: float = 0.0,
        drop_nonfinite: bool = False,
        clip_actions: bool = False,
        actor_learning_rate: float | None = 3e-05,
        cql_alpha: float = 10.0,
        num_cql_samples: int = 10,
        cql_temperature: float = 1.0,
        lagrange_threshold: float | None = None,
        bc_updates: int = 0,
        backup_entropy: bool = False,
        max_backup: bool = False,
    ) -> None: ...

class TD3BC(ManagedAlgorithm):
    """TD3 with behaviour cloning.

    Args:
        env: an environment's id, a function that makes one, or a `TrainConfig`
        dataset: a mapping of arrays by name or a `TransitionDataset`, with actions in the environment's
            units
        seed (int, default 0): determines all random numbers of the run (>= 0 and < 2**31)
        total_timesteps (int, default 100000): environment steps per seed; offline, updates (>= 1)
        output_dir (str | Path, default "runs"): the directory in which the run's directory is made
        device (str, default "auto"): auto: a GPU if there is one (one of auto, cpu, cuda, cuda:N)
        num_envs (int, default 1): environments per seed (>= 1)
        eval_episodes (int, default 5): episodes of an evaluation, per seed; 0: no evaluations (>= 0)
        log_interval (int, default 1000): steps between rows of metrics (>= 1)
        checkpoint_interval (int, default 10000): steps between checkpoints (>= 1)
        tags (Sequence[str], default ()): words of your own, stored with the run
        env_kwargs (Mapping[str, Any], default {}): arguments of the environment; `wrappers`
        eval_interval (int | None, default None): steps between evaluations; null: a tenth of the run
            (>= 1)
        keep_checkpoints (int, default 2): checkpoints that stay, the newest ones (>= 1)
        seeds (Sequence[int], default ()): trained together as one program; empty: `seed` alone (>= 0
            and < 2**31)
        compile (str, default "auto"): compile the update; auto: where that saves time (one of auto, on,
            off)
        threads (int | None, default None): threads of one process; null: chosen for the networks (>= 1)
        env_timeout (float, default 300.0): seconds after which a step counts as hung (> 0)
        workers (int | None, default None): environment worker processes; null: chosen for the machine
            (>= 0)
        video (bool, default True): record a video of the agent at the end
        report (bool, default True): write report.html at the end
        tensorboard (bool, default False): write TensorBoard files too: the same as the writer
            tensorboard
        started_from (Mapping[str, Any] | None, default None): the agent file or run whose weights a new
            run starts from: its `path`, perhaps `groups` of weights; a run's own config has its
            `sha256`, `step` and `seeds` too
        eval_episode_limit (int, default 10000): steps after which an episode of an evaluation, a video
            or a recording is cut where the environment has no limit (>= 1)
        run_name (str | None, default None): name of its directory; null: `<algo>-<env>-seed<k>` (a name
            of at most 200 letters, digits and -_.=+ that starts with a letter or digit)
        writers (Mapping[str, Any] | Sequence[str], default ()): places of the metric rows besides
            metrics.jsonl: names, or a mapping from names to options
        info_metrics (Sequence[str], default ("is_success",)): numbers in the info of an episode's last
            step that become metrics; is_success becomes success_rate (a name that is not one of the
            library's)
        schedule_steps (int | None, default None): steps over which all schedules run, at least the
            run's; null: total_timesteps. Extending a run does not change it (>= 1)

    Settings of td3_bc. Defaults: the authors' code (sfujim/TD3_BC TD3_BC.py, main.py):
        batch_size (int, default 256): transitions of one update, per seed (>= 1)
        hidden_sizes (Sequence[int], default (256, 256)): sizes of the hidden layers of the networks
        learning_rate (float, default 0.0003): step size of the optimizer (> 0)
        learning_rate_schedule (Literal["constant", "linear", "cosine"] | Callable[[float], float],
            default "constant"): of the rate over the run; a Python function returns the rate, given the
            share of the run that is done
        learning_rate_end (float, default 0.0): linear, cosine: the share of the rate at the end (in [0,
            1])
        learning_rate_warmup (float, default 0.0): share of the run in which it rises from 0 (in [0, 1))
        max_grad_norm (float | None, default None): clips the norm of gradients; null: not (> 0)
        optimizer (str | Mapping[str, Any], default {}): by its name in torch.optim, with options
        adam_eps (float, default 1e-08): the default of the optimizer's `eps` (> 0)
        gamma (float, default 0.99): discount of future rewards (in [0, 1])
        normalize_observations (bool, default True): standardise them by the dataset's mean and
            deviation
        network (str | Mapping[str, Any], default {}): layers, and networks of one's own
        buffer_capacity (int, default 1000000): transitions in the replay, per seed (>= 1)
        learning_starts (int, default 256): online: transitions before updates continue (>= 0)
        train_frequency (int, default 1): transitions between trainings (>= 1)
        gradient_updates_per_step (int, default 1): updates per training (>= 1)
        tau (float, default 0.005): share of a network that its target takes over at each update (in [0,
            1])
        exploration_noise (float, default 0.1): standard deviation of the noise added to actions (>= 0)
        policy_noise (float, default 0.2): standard deviation of the noise that smooths the target
            policy (>= 0)
        noise_clip (float, default 0.5): bound of that noise (>= 0)
        policy_delay (int, default 2): updates of the critics for each of the actor and the targets (>=
            1)
        her (Mapping[str, Any] | None, default None): relabel goals in hindsight (Andrychowicz et al.
            2017); null: never
        offline_steps (int | None, default None): updates before the run continues online; null: never
            (>= 0)
        online_data_share (float, default 0.5): online, the share of a batch from the dataset (in [0,
            1])
        dataset_kind (str | None, default None): null: `file` where there is a dataset_path, `policy`
            where there is a dataset_agent, else `random`; memory: passed in Python with `dataset=`,
            which a resume of the run needs again (one of random, policy, file)
        dataset_size (int, default 10000): transitions to generate (>= 2)
        dataset_seed (int, default 0): determines the generated transitions (>= 0)
        dataset_path (str | Path | Sequence[str | Path] | None, default None): for `file`: npz, HDF5, a
            Minari dataset, or a run (its replay); several are concatenated
        dataset_agent (str | Path | None, default None): for `policy`: the agent file, e.g. the packaged
            `agents/pendulum.safetensors`
        dataset_noise (float, default 0.0): for `policy`: noise added to the agent's actions (>= 0)
        reward_scale (float | Literal["return_range"], default 1.0): multiplies rewards; return_range:
            by 1000 / (the largest return of a trajectory - the smallest), as IQL's authors do for
            locomotion (> 0)
        reward_shift (float, default 0.0): added after scaling; AntMaze: -1
        drop_nonfinite (bool, default False): leave out rows with NaN or infinity
        clip_actions (bool, default False): actions outside the environment's bounds are clipped
        bc_alpha (float, default 2.5): the weight of the critic's value against cloning (> 0)
    """

    def __init__(
        self,
        env: str | TrainConfig | EnvFactory,
        *,
        dataset: Dataset | None = None,
        seed: int = 0,
        total_timesteps: int = 100000,
        output_dir: str | Path = ...,
        device: str = "auto",
        num_envs: int = 1,
        eval_episodes: int = 5,
        log_interval: int = 1000,
        checkpoint_interval: int = 10000,
        tags: Sequence[str] = (),
        env_kwargs: Mapping[str, Any] = ...,
        eval_interval: int | None = None,
        keep_checkpoints: int = 2,
        seeds: Sequence[int] = (),
        compile: str = "auto",
        threads: int | None = None,
        env_timeout: float = 300.0,
        workers: int | None = None,
        video: bool = True,
        report: bool = True,
        tensorboard: bool = False,
        started_from: Mapping[str, Any] | None = None,
        eval_episode_limit: int = 10000,
        run_name: str | None = None,
        writers: Mapping[str, Any] | Sequence[str] = (),
        info_metrics: Sequence[str] = ("is_success",),
        schedule_steps: int | None = None,
        batch_size: int = 256,
        hidden_sizes: Sequence[int] = (256, 256),
        learning_rate: float = 0.0003,
        learning_rate_schedule: Literal["constant", "linear", "cosine"] | Callable[[float], float] = "constant",
        learning_rate_end: float = 0.0,
        learning_rate_warmup: float = 0.0,
        max_grad_norm: float | None = None,
        optimizer: str | Mapping[str, Any] = ...,
        adam_eps: float = 1e-08,
        gamma: float = 0.99,
        normalize_observations: bool = True,
        network: str | Mapping[str, Any] = ...,
        buffer_capacity: int = 1000000,
        learning_starts: int = 256,
        train_frequency: int = 1,
        gradient_updates_per_step: int = 1,
        tau: float = 0.005,
        exploration_noise: float = 0.1,
        policy_noise: float = 0.2,
        noise_clip: float = 0.5,
        policy_delay: int = 2,
        her: Mapping[str, Any] | None = None,
        offline_steps: int | None = None,
        online_data_share: float = 0.5,
        dataset_kind: str | None = None,
        dataset_size: int = 10000,
        dataset_seed: int = 0,
        dataset_path: str | Path | Sequence[str | Path] | None = None,
        dataset_agent: str | Path | None = None,
        dataset_noise: float = 0.0,
        reward_scale: float | Literal["return_range"] = 1.0,
        reward_shift: float = 0.0,
        drop_nonfinite: bool = False,
        clip_actions: bool = False,
        bc_alpha: float = 2.5,
    ) -> None: ...

def managed_class(algo: str) -> type[ManagedAlgorithm]: ...
def load(
    path: str | Path,
    env: str | EnvFactory | None = None,
    device: str = "cpu",
    *,
    env_id: str | None = None,
    env_factory: EnvFactory | None = None,
    dataset: Dataset | None = None,
    objects: Objects | None = None,
    **changes: Any,
) -> ManagedAlgorithm: ...
