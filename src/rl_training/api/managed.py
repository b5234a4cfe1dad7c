"""The Python API: agents that train, evaluate, predict, save and load."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from rl_training.algorithms.registry import learner_class
from rl_training.checkpoint.read import list_checkpoints
from rl_training.checkpoint.schema import find_checkpoint
from rl_training.config.objects import Objects, python_objects, with_objects
from rl_training.config.train_config import TrainConfig
from rl_training.core.checks import UserError
from rl_training.core.results import TrainResult
from rl_training.data.datasets.memory import Dataset
from rl_training.envs.host.factory import EnvFactory, check_factory, env_source
from rl_training.files.run_directory import RunRecord
from rl_training.run.agent import Agent, load_agent
from rl_training.run.algorithm_spec import get_algorithm_spec
from rl_training.run.callbacks import Callback, Callbacks, as_callbacks
from rl_training.run.manager import DefaultExperimentManager
from rl_training.run.validate import parse_settings, with_dataset
from rl_training.run.workflows import evaluate_agent

Self = TypeVar("Self", bound="ManagedAlgorithm")
CONFIG_FIELDS = {field.name for field in fields(TrainConfig)} - {"algo", "env_id", "algo_kwargs"}


class ManagedAlgorithm:
    """An agent that manages its runs: `SAC("Pendulum-v1", seed=0, total_timesteps=20_000, gamma=0.98)`.

    Keywords are fields of the config or settings of the algorithm. Instead of an environment id, the first argument may
    be a `TrainConfig` or a function that makes the environment. An offline algorithm also takes `dataset`, a mapping of
    arrays by name or a `TransitionDataset`, with actions in the environment's units; to resume the run, pass it again.
    """

    algo_name: ClassVar[str]

    def __init__(self, env: str | TrainConfig | EnvFactory, *, dataset: Dataset | None = None, **keywords: Any) -> None:
        self.env_factory: EnvFactory | None = None
        # A module named in a file is not imported; one named by the caller is.
        self.env_id = env.env_id if isinstance(env, TrainConfig) else env if isinstance(env, str) else None
        if isinstance(env, TrainConfig):
            config = self._from_config(env, keywords)
        else:
            if not isinstance(env, str):
                check_factory(env)
                self.env_factory = env
                env = f"<{getattr(env, '__name__', 'factory')}>"
            config = _changed(TrainConfig(algo=self.algo_name, env_id=env), keywords)
        self.config = with_dataset(config, dataset)
        parse_settings(self.config)
        self.dataset = dataset
        self.objects = python_objects(self.config.algo_kwargs)  # which its checkpoints only name
        self.agent: Agent | None = None
        self.result: TrainResult | None = None
        self._first_config = self.config  # the config of a run with `reset`
        self._run: Path | None = None  # the run or checkpoint that `learn` and `resume` continue

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

    def learn(
        self: Self,
        total_timesteps: int | None = None,
        callbacks: Callbacks | None = None,
        show_progress: bool = True,
        *,
        reset: bool = False,
    ) -> Self:
        """Train, and return the agent itself; `result`, `run_dir` and `checkpoint_path` describe its run.

        The first call starts a run of `total_timesteps` (default: the config's). A later call, or the first after
        loading a run, resumes the run for `total_timesteps` more steps; without a number it completes a stopped run,
        and trains a finished one for the config's `total_timesteps` more. An agent loaded from a file starts a new run
        from its weights. With `reset`, a new run starts from fresh weights.
        """
        config = self._first_config
        if total_timesteps is not None:
            config = replace(config, total_timesteps=total_timesteps)
        if self._run is not None and not reset:
            total = self._new_total(None if total_timesteps is None else config.total_timesteps)
            return self.resume(self._run, total, callbacks=callbacks, show_progress=show_progress)
        env_source(config, self.env_id, self.env_factory)  # a file must not name a module to import
        if reset:
            config = replace(config, started_from=None)
        start = None if reset else self.agent
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
        callbacks: Callbacks | None = None,
        **keywords: Any,
    ) -> Self:
        """Resume a run directory or checkpoint (default: this agent's run), up to `total_timesteps` in total."""
        checkpoint = checkpoint if checkpoint is not None else self._run
        if checkpoint is None and self.agent is not None:
            raise UserError("resume needs a run directory or a checkpoint: an agent file starts a new run with learn()")
        if checkpoint is None:
            raise UserError("resume needs a run directory or a checkpoint: this agent has not been trained")
        keywords = {"env_id": self.env_id, "env_factory": self.env_factory, "objects": self.objects, **keywords}
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

    def evaluate(self, num_episodes: int | None = None) -> dict[str, Any]:
        """Evaluate the greedy policy on fresh episodes: `eval_return_mean`, `eval_return_std`, `eval_episodes`."""
        agent = self._trained("evaluate")
        source = env_source(agent.config, self.env_id, self.env_factory)
        return evaluate_agent(agent, source, num_episodes)

    def predict(self, obs: Any, deterministic: bool = True) -> Any:
        """The action for one observation, or the actions for a batch, in the environment's units."""
        return self._trained("predict").predict(obs, deterministic)

    def save(self, path: str | Path, seed_index: int = 0) -> Path:
        """Save one seed's agent as a portable file; parent directories are created."""
        return self._trained("save").save(path, seed_index)

    @classmethod
    def load(
        cls: type[Self],
        path: str | Path,
        env_factory: EnvFactory | None = None,
        device: str = "cpu",
        *,
        env_id: str | None = None,
        dataset: Dataset | None = None,
        objects: Objects | None = None,
        **changes: Any,
    ) -> Self:
        """Load an agent from an agent file, a checkpoint or a run directory.

        `objects` are the classes and functions of its settings, such as `{"network": {"features": MyFeatures}}`.

        `learn` then resumes the run. From a file it starts a new run, whose settings may be changed here, such as
        `output_dir` or `learning_rate`; `eval_interval` defaults to a tenth of the new run.
        """
        agent = load_agent(path, device, objects)
        if agent.config.algo != cls.algo_name:
            raise UserError(f"{path}: holds a {agent.config.algo} agent, not {cls.algo_name}")
        is_file = agent.file is not None
        if changes and not is_file:
            raise UserError(f"{path}: a run keeps its settings, got {', '.join(changes)}; load one of its agent files")
        if is_file:  # a tenth of the new run, not of the file's run
            changes = {"eval_interval": None, **changes}
        if is_file and dataset is not None:  # replaces the file it was trained on
            changes = {"dataset_path": None, **changes}
        config = agent.config if env_id is None else replace(agent.config, env_id=env_id)
        config = replace(config, algo_kwargs=with_objects(config.algo_kwargs, objects))
        loaded = cls(_changed(config, changes), dataset=dataset)
        loaded.env_id, loaded.env_factory, loaded.agent = env_id, env_factory, agent
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


def _changed(config: TrainConfig, keywords: dict[str, Any]) -> TrainConfig:
    """The config with changed fields and settings of the algorithm, distinguished by name."""
    config_values = {name: value for name, value in keywords.items() if name in CONFIG_FIELDS}
    settings = {name: value for name, value in keywords.items() if name not in CONFIG_FIELDS}
    settings = {**settings.pop("algo_kwargs", {}), **settings}
    settings = {**learner_class(config.algo).drop_replaced(config.algo_kwargs, settings), **settings}
    return replace(config, **config_values, algo_kwargs=settings)
