"""The Python API: agents that train, evaluate, predict, save and load."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from rl_training.algorithms.base import Learner
from rl_training.algorithms.registry import learner_class
from rl_training.checkpoint.read import list_checkpoints
from rl_training.checkpoint.schema import find_checkpoint
from rl_training.config.objects import Objects, python_objects, with_objects
from rl_training.config.train_config import TrainConfig
from rl_training.core.checks import UserError, did_you_mean, require, shown
from rl_training.core.results import TrainResult
from rl_training.data.datasets.memory import Dataset
from rl_training.envs.host.factory import EnvFactory, EnvSource, env_name, env_source, split_env
from rl_training.files.run_directory import RunRecord
from rl_training.run.agent import Agent, load_agent, new_run_config
from rl_training.run.callbacks import Callback, Callbacks, as_callbacks
from rl_training.run.validate import parse_settings, with_dataset

if TYPE_CHECKING:
    from rl_training.data.replay.buffer import ReplayBuffer
    from rl_training.deploy.export.exporting import Exported

# What trains and evaluates is imported by the methods that need it: an agent that only acts starts sooner.
Self = TypeVar("Self", bound="ManagedAlgorithm")
CONFIG_FIELDS = {field.name for field in fields(TrainConfig)} - {"algo", "env_id", "algo_kwargs"}


class ManagedAlgorithm:
    """An agent that manages its runs: `SAC("Pendulum-v1", seed=0, total_timesteps=20_000, gamma=0.98)`.

    Keywords are fields of the config or settings of the algorithm. Instead of an environment id, the first argument may
    be a `TrainConfig` or a function that makes the environment. An offline algorithm also takes `dataset`, a mapping of
    arrays by name or a `TransitionDataset`, with actions in the environment's units; to resume the run, pass it again:
    it is recognised by its digest.
    """

    algo_name: ClassVar[str]

    def __init__(
        self, env: str | TrainConfig | EnvFactory, *others: Any, dataset: Dataset | None = None, **keywords: Any
    ) -> None:
        if others:  # a policy's name first, as elsewhere
            name = type(self).__name__
            raise UserError(f"{name} takes one positional argument, the environment: {name}({shown(others[0])}, ...)")
        # A module named in a file is not imported; one named by the caller is.
        self.env_id: str | None
        self.env_factory: EnvFactory | None
        if isinstance(env, TrainConfig):
            self.env_id, self.env_factory = env.env_id, None
            config = self._from_config(env, keywords)
        else:
            self.env_id, self.env_factory = split_env(env)
            config = _changed(TrainConfig(algo=self.algo_name, env_id=env_name(env)), keywords)
        self.config = with_dataset(config, dataset)
        parse_settings(self.config)
        self.dataset = dataset
        self.objects = python_objects(self.config.algo_kwargs)  # which its checkpoints only name
        self.agent: Agent | None = None
        self.result: TrainResult | None = None
        self._first_config = self.config  # the config of a run with `reset`
        self._run: Path | None = None  # the run or checkpoint that `learn` and `resume` continue
        self._env_name: str | None = None  # of the environment set by `set_env`
        self._replay: ReplayBuffer | None = None  # read from the newest checkpoint on first use

    def _from_config(self, config: TrainConfig, keywords: dict[str, Any]) -> TrainConfig:
        if config.algo != self.algo_name:
            raise UserError(f"algo must be {self.algo_name}, got {config.algo!r}")
        if keywords:
            raise UserError(f"with a TrainConfig no further settings are taken, got {', '.join(keywords)}")
        return config

    @property
    def run_dir(self) -> Path | None:
        """The directory of the last run, even a failed one, or of the loaded run."""
        return self.result.run_dir if self.result is not None else self._run

    @property
    def checkpoint_path(self) -> Path | None:
        """The newest checkpoint of the last or loaded run."""
        return self.result.checkpoint_path if self.result is not None else None

    @property
    def learner(self) -> Learner:
        """The learner of the newest checkpoint: networks, optimizer state and statistics of every seed."""
        return self._trained("learner").learner

    @property
    def replay(self) -> ReplayBuffer:
        """The replay of the newest checkpoint, read into host memory on first use and freed by the next `learn`."""
        if self._replay is None:
            from rl_training.run.read_back import read_replay

            agent = self._trained("replay")
            self._replay = read_replay(agent, self._env_source(agent.config))
        return self._replay

    @property
    def best_agent(self: Self) -> Self:
        """The agent of the run's best evaluation; of several seeds, the best seed's."""
        from rl_training.run.read_back import best_agent_file

        agent = self._trained("best_agent")
        if agent.file is not None or agent.path is None:
            raise UserError(f"{agent.path}: an agent file has no best agent; load its run instead")
        path = best_agent_file(agent.path)
        best = load_agent(path, objects=self.objects)
        return self.of(best, path, self.env_factory or self.env_id, self.dataset, self.objects)

    def set_env(self, env: str | EnvFactory) -> None:
        """Set another environment with equal spaces, an id or a function that makes one, for `learn` and `evaluate`.

        A run that `learn` continues in it starts new episodes, and is recorded as resumed inexactly.
        """
        env_id, factory = split_env(env)
        if self.agent is not None:
            from rl_training.envs.make import check_for_agent

            source = EnvSource(env_name(env), dict(self.config.env_kwargs), factory)
            check_for_agent(self.agent.spec, source, self.agent.learner.device)
        self.env_id, self.env_factory, self._replay, self._env_name = env_id, factory, None, env_name(env)
        self._first_config = replace(self._first_config, env_id=env_name(env))
        if self._run is None:
            self.config = replace(self.config, env_id=env_name(env))

    def _env_source(self, config: TrainConfig, env: str | EnvFactory | None = None) -> EnvSource:
        env_id, factory = (self.env_id, self.env_factory) if env is None else split_env(env)
        return env_source(config, env_id, factory)

    def learn(
        self: Self,
        total_timesteps: int | None = None,
        callbacks: Callbacks | None = None,
        show_progress: bool = True,
        *,
        reset: bool = False,
        from_agent: str | Path | Agent | ManagedAlgorithm | None = None,
        from_groups: Sequence[str] | None = None,
    ) -> Self:
        """Train, and return the agent itself; `result`, `run_dir` and `checkpoint_path` describe its run.

        The first call starts a run of `total_timesteps` (default: the config's). A later call, or the first after
        loading a run, resumes the run for `total_timesteps` more steps; without a number it completes a stopped run,
        and trains a finished one for the config's `total_timesteps` more. An agent loaded from a file starts a new run
        from its weights. With `reset`, a new run starts from fresh weights.

        With `from_agent` (an agent file, a run, or an agent) a new run starts from its weights: all of them, or the
        named groups, such as `from_groups=["actor"]`. Of a run with several seeds each seed starts from its own if this
        run has the same seeds, else every seed starts from the first.
        """
        from rl_training.run.algorithm_spec import get_algorithm_spec
        from rl_training.run.start_weights import as_agent, start_entry

        config = self._first_config
        if total_timesteps is not None:
            config = replace(config, total_timesteps=total_timesteps)
        require(from_agent is None or not reset, "reset", "left out with from_agent, which starts a new run too")
        start = None if reset else self.agent
        if from_agent is not None:
            given = from_agent.agent if isinstance(from_agent, ManagedAlgorithm) else from_agent
            start = as_agent(given, config)
        resumes = self._run is not None and not reset and from_agent is None
        starts = start is not None and not resumes
        require(from_groups is None or starts, "from_groups", "left out without from_agent")
        if resumes:
            total = self._new_total(None if total_timesteps is None else config.total_timesteps)
            return self.resume(self._run, total, callbacks=callbacks, show_progress=show_progress)
        self._env_source(config)  # a file must not name a module to import
        if start is not None:
            config = replace(config, started_from=start_entry(start.path, from_groups))
        elif reset:
            config = replace(config, started_from=None)
        train = partial(get_algorithm_spec(self.algo_name).train_fn, config, dataset=self.dataset, start=start)
        return self._train(lambda hooks: train(None, hooks, self.env_factory, show_progress), callbacks)

    def _new_total(self, more: int | None) -> int | None:
        """The new total of a resumed run; None: its own."""
        assert self._run is not None and self.run_dir is not None
        step, planned = 0, self.config.total_timesteps
        with suppress(UserError):  # nothing is saved, or it is damaged, which `resume` reports
            checkpoint, _ = find_checkpoint(self._run, only=())
            step, planned = checkpoint.step, int(checkpoint.state["config"]["total_timesteps"])
        if more is not None:
            return step + more
        record = RunRecord.read(self.run_dir) if (self.run_dir / "run.json").exists() else None
        # of a resume that was cut short
        override = record.resume_overrides.get("total_timesteps") if record is not None else None
        planned = override if isinstance(override, int) else planned
        return None if step < planned else step + self._first_config.total_timesteps

    def resume(
        self: Self,
        checkpoint: str | Path | None = None,
        total_timesteps: int | None = None,
        *,
        env: str | EnvFactory | None = None,
        callbacks: Callbacks | None = None,
        **keywords: Any,
    ) -> Self:
        """Resume a run directory or checkpoint (default: this agent's run), up to `total_timesteps` in total.

        `env` is needed where it came from Python or a module. Other keywords: the fields of `ResumeRequest`.
        """
        from rl_training.run.manager import DefaultExperimentManager
        from rl_training.run.resume import ResumeRequest

        names = [field.name for field in fields(ResumeRequest)]
        for name in keywords:
            require(name in names, "resume", f"called without {name!r}{did_you_mean(name, [*names, 'env'])}")
        if env is not None:
            self.env_id, self.env_factory = split_env(env)
        checkpoint = checkpoint if checkpoint is not None else self._run
        if checkpoint is None and self.agent is not None:
            raise UserError("resume needs a run directory or a checkpoint: an agent file starts a new run with learn()")
        if checkpoint is None:
            raise UserError("resume needs a run directory or a checkpoint: this agent has not been trained")
        named = {"env_id": self.env_id or self._env_name, "env_factory": self.env_factory, "objects": self.objects}
        keywords = {**named, **keywords}
        self.objects = keywords["objects"]
        if "data" not in keywords and self.config.algo_kwargs.get("dataset_kind") == "memory":
            keywords = {"dataset": self.dataset, **keywords}
        manager = DefaultExperimentManager()
        self._train(
            lambda hooks: manager.resume(checkpoint, total_timesteps, callbacks=hooks, **keywords).train(), callbacks
        )
        self.dataset = keywords.get("dataset", self.dataset)
        return self

    def _train(self: Self, start: Callable[[list[Callback]], TrainResult], callbacks: Callbacks | None) -> Self:
        """Train; the agent becomes the one of the newest checkpoint, even if training raises."""
        self._replay = None
        started = _StartedRun()
        try:
            return self._adopt(start([started, *as_callbacks(callbacks)]))
        except BaseException as error:  # a KeyboardInterrupt too
            if started.run_dir is not None:
                self._adopt_saved(started.run_dir, getattr(error, "result", None))
            raise

    def _adopt(self: Self, result: TrainResult) -> Self:
        self.agent = load_agent(result.checkpoint_path, objects=self.objects)
        self.config, self.result, self._run = self.agent.config, result, result.run_dir
        return self

    def _adopt_saved(self, run_dir: Path, result: Any) -> None:
        """Adopt the newest checkpoint, if any, of a run that ended in an exception."""
        self.result, self._run = None, run_dir
        saved = list_checkpoints(run_dir / "checkpoints")
        with suppress(UserError):  # a damaged checkpoint must not hide the exception
            if isinstance(result, TrainResult):
                self._adopt(result)
            elif saved:
                self._adopt(TrainResult(run_dir, saved[-1]))

    def evaluate(
        self,
        num_episodes: int | None = None,
        *,
        env: str | EnvFactory | None = None,
        deterministic: bool = True,
        return_episodes: bool = False,
    ) -> dict[str, Any]:
        """Evaluate the policy on fresh episodes: `eval_return_mean`, `eval_return_std`, `eval_episodes`.

        `env` is another environment with equal spaces. `return_episodes` adds `eval_returns` and `eval_lengths` of all
        episodes, one seed's after the other's. With `deterministic=False` the policy explores as at the end of
        training, with random numbers of its own: training is not changed, and the same call gives the same result.
        """
        from rl_training.run.workflows import evaluate_agent

        agent = self._trained("evaluate")
        options = {"deterministic": deterministic, "return_episodes": return_episodes}
        return evaluate_agent(agent, self._env_source(agent.config, env), num_episodes, **options)

    def predict(
        self,
        obs: Any,
        deterministic: bool = True,
        *,
        state: Any = None,
        episode_start: Any = None,
        action_mask: Any = None,
        seed_index: int = 0,
    ) -> Any:
        """The action for one observation, or the actions for a batch, in the environment's units.

        With a `state`, `(action, state)`: a recurrent policy's, `{}` at the start of an episode; a policy without one
        returns what it was given. `seed_index` chooses among the seeds of a run.
        """
        options = {"state": state, "episode_start": episode_start, "action_mask": action_mask}
        return self._trained("predict").predict(obs, deterministic, **options, seed_index=seed_index)

    def save(self, path: str | Path, seed_index: int = 0) -> Path:
        """Save one seed's agent as a portable file; parent directories are created."""
        return self._trained("save").save(path, seed_index)

    def export(self, path: str | Path, to: str | None = None, seed_index: int = 0) -> Exported:
        """Export one seed's policy as a file that runs without this library: "onnx", "torch" or "numpy".

        Without `to` the suffix decides: .onnx, .pt2 or .npz. The file is compared with the agent on 1,000 observations
        before it is written, with a contract beside it that describes its inputs and outputs.
        """
        from rl_training.deploy.export.exporting import (
            export_agent,  # imports torch's exporter, which others do not need
        )

        return export_agent(self._trained("export"), path, to, seed_index)

    @classmethod
    def load(
        cls: type[Self],
        path: str | Path,
        env: str | EnvFactory | None = None,
        device: str = "cpu",
        *,
        env_id: str | None = None,
        env_factory: EnvFactory | None = None,
        dataset: Dataset | None = None,
        objects: Objects | None = None,
        **changes: Any,
    ) -> Self:
        """Load an agent from an agent file, a checkpoint or a run directory.

        Classes and functions of its settings are passed again, as `network={"features": MyFeatures}` or in `objects`.
        `env` (or `env_id`, `env_factory`) is needed where it came from Python or a module. `learn` then resumes the
        run. From a file it starts a new run, whose settings may be changed here, such as `output_dir` or
        `learning_rate`; `eval_interval` defaults to a tenth of the new run.
        """
        env, objects, changes = load_arguments(env, env_id, env_factory, objects, changes)
        return cls.of(load_agent(path, device, objects), path, env, dataset, objects, **changes)

    @classmethod
    def of(
        cls: type[Self],
        agent: Agent,
        path: str | Path,
        env: str | EnvFactory | None = None,
        dataset: Dataset | None = None,
        objects: Objects | None = None,
        **changes: Any,
    ) -> Self:
        """The managed agent of one that was loaded from `path`."""
        if agent.config.algo != cls.algo_name:
            raise UserError(f"{path}: holds a {agent.config.algo} agent, not {cls.algo_name}")
        is_file = agent.file is not None
        if changes and not is_file:
            raise UserError(f"{path}: a run keeps its settings, got {', '.join(changes)}; load one of its agent files")
        config = new_run_config(agent.config) if is_file else agent.config
        config = replace(config, algo_kwargs=with_objects(config.algo_kwargs, objects))
        if is_file and dataset is not None:  # replaces the file it was trained on
            changes = {"dataset_path": None, **changes}
        env_id, factory = split_env(env) if env is not None else (None, None)
        loaded = cls(_changed(config if env_id is None else replace(config, env_id=env_id), changes), dataset=dataset)
        loaded.env_id, loaded.env_factory, loaded.agent = env_id, factory, agent
        if not is_file and agent.path is not None:
            loaded._continue(Path(path).absolute(), agent.path, agent.step)
        return loaded

    def _continue(self, path: Path, checkpoint: Path, step: int) -> None:
        """Set the run to resume: a loaded run or checkpoint, with the record's metrics if they are of this step."""
        self._run, run_dir = path, checkpoint.parent.parent
        last = RunRecord.read(run_dir).values["metrics"] if (run_dir / "run.json").exists() else {}
        metrics = dict(last) if last.get("global_step") == step else {"global_step": step}
        self.result = TrainResult(run_dir, checkpoint, metrics)

    def _trained(self, method: str) -> Agent:
        if self.agent is None:
            raise UserError(f"{method} needs a trained agent: call learn() or load() first")
        return self.agent


class _StartedRun(Callback):
    """Records the directory of the run, to find its checkpoints if it ends in an exception."""

    run_dir: Path | None = None

    def on_start(self, session: Any) -> None:
        self.run_dir = session.run_dir


def load_arguments(
    env: str | EnvFactory | None,
    env_id: str | None,
    env_factory: EnvFactory | None,
    objects: Objects | None,
    changes: dict[str, Any],
) -> tuple[str | EnvFactory | None, Objects, dict[str, Any]]:
    """The environment, the classes and functions, and the changed settings among the arguments of `load`."""
    given = python_objects(changes)
    settings = {name: value for name, value in changes.items() if given.get(name) != value}
    return env if env is not None else env_factory or env_id, with_objects(given, objects), settings


def _changed(config: TrainConfig, keywords: dict[str, Any]) -> TrainConfig:
    """The config with changed fields and settings of the algorithm, distinguished by name."""
    config_values = {name: value for name, value in keywords.items() if name in CONFIG_FIELDS}
    settings = {name: value for name, value in keywords.items() if name not in CONFIG_FIELDS}
    settings = {**settings.pop("algo_kwargs", {}), **settings}
    settings = {**learner_class(config.algo).drop_replaced(config.algo_kwargs, settings), **settings}
    return replace(config, **config_values, algo_kwargs=settings)
