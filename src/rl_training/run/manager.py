"""The experiment manager: sets up or resumes runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rl_training.config.train_config import TrainConfig
from rl_training.core.results import TrainResult
from rl_training.data.datasets.memory import Dataset
from rl_training.envs.host.factory import EnvFactory
from rl_training.run.algorithm_spec import get_algorithm_spec
from rl_training.run.callbacks import Callbacks, as_callbacks
from rl_training.run.resume import ResumeRequest, resume


class PreparedRun:
    """A run that is set up and not started."""

    def __init__(self, start: Callable[[], TrainResult]) -> None:
        self._start = start

    def train(self) -> TrainResult:
        return self._start()


class DefaultExperimentManager:
    """`setup(config).train()` and `resume(checkpoint).train()`."""

    def setup(
        self,
        config: TrainConfig,
        callbacks: Callbacks | None = None,
        *,
        run_suffix: str | None = None,
        env_factory: EnvFactory | None = None,
        show_progress: bool = True,
        dataset: Dataset | None = None,
    ) -> PreparedRun:
        spec = get_algorithm_spec(config.algo)
        hooks = as_callbacks(callbacks)  # rejected here, before anything is built
        start = partial(spec.train_fn, config, run_suffix, hooks, env_factory, show_progress, dataset=dataset)
        return PreparedRun(start)

    def resume(self, checkpoint: str | Path, *arguments: Any, **keywords: Any) -> PreparedRun:
        """`arguments` and `keywords` are the other fields of `ResumeRequest`, in its order."""
        request = ResumeRequest(checkpoint, *arguments, **keywords)
        return PreparedRun(partial(resume, replace(request, callbacks=as_callbacks(request.callbacks))))
