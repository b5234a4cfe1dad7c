"""The config of a run: algorithm, environment, length, output and settings."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_training.config.fields import Condition, above, at_least, check, one_of, parse, setting
from rl_training.config.writers import parse_writers
from rl_training.config.yaml_loading import LoadedYaml, plain_values
from rl_training.core.checks import ConfigError, Problem, UserError, require, shown

MAX_SEEDS = 1024
EPISODE_LIMIT = 10_000
NO_ENVIRONMENT = "none"  # the `env_id` of an offline run without an environment

_non_empty = Condition("a non-empty string", bool)
_is_seed = Condition(">= 0 and < 2**31", lambda value: 0 <= value < 2**31)
# Metrics of the library in rollout/, eval/, eval_ and evaluations.jsonl
_TAKEN = """ep_rew_mean ep_len_mean exploration_rate mean_reward mean_ep_length success_rate return_mean return_std
return_means episodes episodes_cut d4rl_score step seed returns lengths"""
_is_info_metric = Condition("a name that is not one of the library's", lambda v: bool(v) and v not in _TAKEN.split())
_is_run_name = Condition(
    "a name of at most 200 letters, digits and -_.=+ that starts with a letter or digit",
    lambda value: re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._=+-]{0,199}", value) is not None,
)
_is_device = Condition(
    "one of auto, cpu, cuda, cuda:N",
    lambda value: re.fullmatch(r"auto|cpu|cuda(:[0-9]{1,4})?", value) is not None,
    options=("auto", "cuda"),  # not cpu, which would be suggested for gpu
)


@dataclass(frozen=True)
class TrainConfig:
    """The config of one run. `algo_kwargs` holds the settings as plain values, which the algorithm parses."""

    algo: str = setting(must=_non_empty)  # the algorithm: `sac`, `dqn` …
    env_id: str = setting(must=_non_empty)  # a Gymnasium id, `torch/…` on the device, `none` offline
    seed: int = setting(0, _is_seed)  # determines all random numbers of the run
    total_timesteps: int = setting(100_000, at_least(1))  # environment steps per seed; offline, updates
    output_dir: Path = Path("runs")  # the directory in which the run's directory is made
    device: str = setting("auto", _is_device)  # auto: a GPU if there is one
    num_envs: int = setting(1, at_least(1))  # environments per seed
    eval_episodes: int = setting(5, at_least(0))  # episodes of an evaluation, per seed; 0: no evaluations
    log_interval: int = setting(1000, at_least(1))  # steps between rows of metrics
    checkpoint_interval: int = setting(10_000, at_least(1))  # steps between checkpoints
    tags: tuple[str, ...] = ()  # words of your own, stored with the run
    algo_kwargs: dict[str, Any] = dataclasses.field(default_factory=dict)  # settings of the algorithm
    env_kwargs: dict[str, Any] = dataclasses.field(default_factory=dict)  # arguments of the environment; `wrappers`
    eval_interval: int | None = setting(None, at_least(1))  # steps between evaluations; null: a tenth of the run
    keep_checkpoints: int = setting(2, at_least(1))  # checkpoints that stay, the newest ones
    seeds: tuple[int, ...] = setting((), _is_seed)  # trained together as one program; empty: `seed` alone
    compile: str = setting("auto", one_of("auto", "on", "off"))  # compile the update; auto: where that saves time
    threads: int | None = setting(None, at_least(1))  # threads of one process; null: chosen for the networks
    env_timeout: float = setting(300.0, above(0))  # seconds after which a step counts as hung
    workers: int | None = setting(None, at_least(0))  # environment worker processes; null: chosen for the machine
    video: bool = True  # record a video of the agent at the end
    report: bool = True  # write report.html at the end
    tensorboard: bool = False  # write TensorBoard files too: the same as the writer tensorboard
    # the agent file or run whose weights a new run starts from: its `path`, perhaps `groups` of weights; a run's own
    # config has its `sha256`, `step` and `seeds` too
    started_from: dict[str, Any] | None = None
    # steps after which an episode of an evaluation, a video or a recording is cut where the environment has no limit
    eval_episode_limit: int = setting(EPISODE_LIMIT, at_least(1))
    run_name: str | None = setting(None, _is_run_name)  # name of its directory; null: `<algo>-<env>-seed<k>`
    # places of the metric rows besides metrics.jsonl: names, or a mapping from names to options
    writers: dict[str, Any] | tuple[str, ...] = ()
    # numbers in the info of an episode's last step that become metrics; is_success becomes success_rate
    info_metrics: tuple[str, ...] = setting(("is_success",), _is_info_metric)
    # steps over which all schedules run, at least the run's; null: total_timesteps. Extending a run does not change it
    schedule_steps: int | None = setting(None, at_least(1))

    def __post_init__(self) -> None:
        check(self)
        require(len(set(self.seeds)) == len(self.seeds), "seeds", f"distinct, got {shown(list(self.seeds))}")
        require(len(self.seeds) <= MAX_SEEDS, "seeds", f"at most {MAX_SEEDS} seeds, got {len(self.seeds)}")
        object.__setattr__(self, "writers", parse_writers(self.writers))
        require(len(set(self.info_metrics)) == len(self.info_metrics), "info_metrics", "distinct names")
        if self.started_from is not None:
            given = self.started_from
            kinds = {"path": str, "sha256": str, "step": int, "seeds": list, "groups": list}
            ok = "path" in given and all(isinstance(given[name], kinds.get(name, ())) for name in given)
            require(ok, "started_from", f"a mapping with the path of an agent file or a run, got {shown(given)}")
            entries = [*given.get("seeds", ()), *given.get("groups", ())]
            ok = all(isinstance(one, (int, str)) for one in entries) and given.get("groups") != []
            require(ok, "started_from", f"with names of groups, got {shown(given)}")

    @property
    def writer_options(self) -> dict[str, dict[str, Any]]:
        """The options of every writer besides metrics.jsonl, by its name."""
        assert isinstance(self.writers, dict)
        return {**({"tensorboard": {}} if self.tensorboard else {}), **self.writers}

    @property
    def seed_list(self) -> tuple[int, ...]:
        return self.seeds or (self.seed,)

    @property
    def starts_from_all_weights(self) -> bool:
        """Whether a new run starts with a trained policy, which acts from the first step."""
        return self.started_from is not None and "groups" not in self.started_from

    @property
    def steps_between_evaluations(self) -> int:
        return self.eval_interval or max(self.total_timesteps // 10, 1)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for `config_from_dict`, JSON and YAML."""
        return plain_values({field.name: getattr(self, field.name) for field in dataclasses.fields(self)})


FIELD_NAMES = tuple(field.name for field in dataclasses.fields(TrainConfig))


def config_from_dict(
    values: Mapping[str, Any],
    source: LoadedYaml | None = None,
    allow_module_env: bool = False,
    explain: Callable[[str], str] | None = None,
) -> TrainConfig:
    """Build a config and report all problems at once; with a `source`, each with its file and line.

    An `env_id` such as `my_package:MyEnv-v0` imports a module, so only the command line may name one, not a file.
    `explain` completes the message about an unknown key.
    """
    if source is not None and isinstance(values, Mapping):
        source = source.with_values(values)
    problems: list[Problem] = []
    try:
        config = parse(TrainConfig, values, explain=explain)
    except ConfigError as error:
        problems = error.problems
    env_id = values.get("env_id") if isinstance(values, Mapping) else None
    if isinstance(env_id, str) and ":" in env_id and not allow_module_env:
        message = f"env_id with a module is only allowed on the command line, got {shown(env_id)}"
        problems.append(Problem(("env_id",), message))
    if problems:
        raise located(problems, source)
    return config


def located(
    problems: Iterable[Problem], source: LoadedYaml | None = None, base_path: tuple[str, ...] = ()
) -> ConfigError:
    """An error with the problems as `file:line: message`, in the order of the file.

    `base_path` is where the problems' paths start, e.g. `("algo_kwargs",)` for an algorithm's settings.
    """
    if source is None:
        return ConfigError(Problem(base_path + problem.path, problem.message) for problem in problems)
    lines_and_problems: list[tuple[int, Problem]] = []
    for problem in problems:
        path = base_path + problem.path
        line = source.line(path)
        place = "" if line is None else f"{source.source}:{line}: "
        lines_and_problems.append((line or 0, Problem(path, place + problem.message)))
    lines_and_problems.sort(key=lambda line_and_problem: line_and_problem[0])
    return ConfigError(problem for _, problem in lines_and_problems)


def parse_seeds(text: str) -> tuple[int, ...]:
    """Parse seeds written as `0-7`, `0,3,5` or `0-3,8`."""
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*([0-9]{1,10})\s*(?:-\s*([0-9]{1,10})\s*)?", part)
        if match is None:
            raise UserError(f"seeds must be written like 0-7, 0,3,5 or 0-3,8, got {shown(text)}", field_name="seeds")
        first, last = int(match[1]), int(match[2] or match[1])
        require(first <= last, "seeds", f"ranges from low to high, got {shown(part.strip())}")
        require(last < 2**31, "seeds", f">= 0 and < 2**31, got {last}")
        require(len(seeds) + last - first < MAX_SEEDS, "seeds", f"at most {MAX_SEEDS} seeds, got {shown(text)}")
        seeds.extend(range(first, last + 1))
    require(len(set(seeds)) == len(seeds), "seeds", f"distinct, got {shown(text)}")
    return tuple(seeds)
