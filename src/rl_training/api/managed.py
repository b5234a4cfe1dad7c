"""The Python API: an agent that trains, acts and travels."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from rl_training.core.checks import UserError
from rl_training.core.types import TrainResult
from rl_training.envs.factory import EnvFactory, check_factory
from rl_training.experiment.config import TrainConfig
from rl_training.experiment.default_manager import DefaultExperimentManager
from rl_training.experiment.registry import get_algorithm_spec
from rl_training.runtime.agents import Agent, load_agent
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.fitting import parse_settings
from rl_training.runtime.workflows import env_source, evaluate_agent

Self = TypeVar("Self", bound="ManagedAlgorithm")
CONFIG_FIELDS = {field.name for field in dataclasses.fields(TrainConfig)} - {"algo", "env_id", "algo_kwargs"}


class ManagedAlgorithm:
    """`SAC("Pendulum-v1", seed=0, total_timesteps=20_000, gamma=0.98)`: fields of the config and settings of the
    algorithm are told apart by name; or `SAC(TrainConfig(...))`; or a function that makes the environment."""

    algo_name: ClassVar[str]

    def __init__(self, env: str | TrainConfig | EnvFactory, **keywords: Any) -> None:
        self.env_factory: EnvFactory | None = None
        # A module named in a file is not imported; one that the caller names here is.
        self.env_id = env.env_id if isinstance(env, TrainConfig) else env if isinstance(env, str) else None
        if isinstance(env, TrainConfig):
            self.config = self._from_config(env, keywords)
        else:
            if not isinstance(env, str):
                check_factory(env)
                self.env_factory = env
                env = f"<{getattr(env, '__name__', 'factory')}>"
            self.config = self._from_keywords(env, keywords)
        self.agent: Agent | None = None
        self.result: TrainResult | None = None

    def _from_config(self, config: TrainConfig, keywords: dict[str, Any]) -> TrainConfig:
        if config.algo != self.algo_name:
            raise UserError(f"algo must be {self.algo_name}, got {config.algo!r}")
        if keywords:
            raise UserError(f"with a TrainConfig no further settings are taken, got {', '.join(keywords)}")
        parse_settings(config)
        return config

    def _from_keywords(self, env_id: str, keywords: dict[str, Any]) -> TrainConfig:
        config_values = {name: value for name, value in keywords.items() if name in CONFIG_FIELDS}
        settings = {name: value for name, value in keywords.items() if name not in CONFIG_FIELDS}
        settings = {**settings.pop("algo_kwargs", {}), **settings}
        config = TrainConfig(algo=self.algo_name, env_id=env_id, algo_kwargs=settings, **config_values)
        parse_settings(config)
        return config

    def learn(
        self: Self,
        total_timesteps: int | None = None,
        callbacks: Sequence[Callback] | None = None,
        show_progress: bool = True,
    ) -> Self:
        """Train; afterwards the agent is the final one and `result` tells where everything is."""
        config = self.config
        if total_timesteps is not None:
            config = dataclasses.replace(config, total_timesteps=total_timesteps)
        spec = get_algorithm_spec(self.algo_name)
        result = spec.train_fn(config, None, callbacks, self.env_factory, show_progress)
        return self._adopt(result)

    def resume(
        self: Self, checkpoint: str | Path | None = None, total_timesteps: int | None = None, **keywords: Any
    ) -> Self:
        """Go on from a run directory or checkpoint (by default this agent's own last run)."""
        if checkpoint is None:
            if self.result is None:
                raise UserError("resume needs a run directory or a checkpoint: this agent has not been trained")
            checkpoint = self.result.run_dir
        manager = DefaultExperimentManager()
        keywords = {"env_id": self.env_id, "env_factory": self.env_factory, **keywords}
        prepared = manager.resume(checkpoint, total_timesteps, **keywords)
        return self._adopt(prepared.train())

    def _adopt(self: Self, result: TrainResult) -> Self:
        self.result = result
        self.agent = load_agent(result.checkpoint_path)
        self.config = self.agent.config
        return self

    def evaluate(self, num_episodes: int | None = None) -> dict[str, Any]:
        """Fresh episodes with the greedy policy: `eval_return_mean`, `eval_return_std`, `eval_episodes`."""
        agent = self._trained("evaluate")
        source = env_source(agent.config, self.env_id, self.env_factory)
        return evaluate_agent(agent, source, num_episodes)

    def predict(self, obs: Any, deterministic: bool = True) -> Any:
        return self._trained("predict").predict(obs, deterministic)

    def save(self, path: str | Path, seed_index: int = 0) -> Path:
        """One portable file; parents are created. Of several seeds, `seed_index` says which."""
        return self._trained("save").save(path, seed_index)

    @classmethod
    def load(cls: type[Self], path: str | Path, env_factory: EnvFactory | None = None, device: str = "cpu") -> Self:
        """From `save`'s file, a checkpoint or a run directory."""
        agent = load_agent(path, device)
        if agent.config.algo != cls.algo_name:
            raise UserError(f"{path}: holds a {agent.config.algo} agent, not {cls.algo_name}")
        loaded = cls(agent.config)
        loaded.env_id, loaded.env_factory, loaded.agent = None, env_factory, agent
        return loaded

    def _trained(self, what: str) -> Agent:
        if self.agent is None:
            raise UserError(f"{what} needs a trained agent: call learn() or load() first")
        return self.agent
