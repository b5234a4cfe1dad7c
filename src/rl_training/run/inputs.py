"""The inputs of a run, checked before anything is built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rl_training.algorithms.base import Learner
from rl_training.config.offline_settings import OfflineSettings
from rl_training.config.settings import TrainSettings
from rl_training.config.train_config import TrainConfig
from rl_training.core.specs import EnvSpec
from rl_training.data.datasets.memory import Dataset
from rl_training.data.datasets.prepare import PreparedDataset, prepare_dataset
from rl_training.envs.host.conformance import Conformance, Takes, with_conformance
from rl_training.envs.host.episode_bound import EpisodeBound
from rl_training.envs.host.factory import EnvSource
from rl_training.envs.host.goals import Goals
from rl_training.envs.make import check_for_training
from rl_training.run.agent import load_agent
from rl_training.run.callbacks import Callback
from rl_training.run.plan import choose_device
from rl_training.run.writers.opening import check_writers


@dataclass(frozen=True)
class RunInputs:
    """The checked inputs of a run."""

    config: TrainConfig
    learner_class: type[Learner]
    settings: TrainSettings
    source: EnvSource
    dataset: PreparedDataset | None  # of an offline run
    conformance: Conformance | None  # None: checked when the run began, or not used for training
    callbacks: Sequence[Callback] = ()
    show_progress: bool = True
    goals: Goals | None = None  # of a run that relabels them

    @property
    def spec(self) -> EnvSpec:
        found = self.dataset or self.conformance
        assert found is not None, "only a resumed run has neither"
        return found.spec

    @property
    def has_environment(self) -> bool:
        return self.dataset is None or self.dataset.has_environment

    def close(self) -> None:
        """Close the environment of the goals."""
        if self.goals is not None:
            self.goals.close()


def check_inputs(
    config: TrainConfig,
    learner_class: type[Learner],
    settings: TrainSettings,
    source: EnvSource,
    data: Dataset | None,
    callbacks: Sequence[Callback],
    show_progress: bool,
) -> RunInputs:
    """Check the writers and the environment, and load or generate the dataset."""
    check_writers(config)
    settings.rate(0.0)  # rejects a schedule that the config only names
    dataset = None
    if isinstance(settings, OfflineSettings):
        dataset = prepare_dataset(settings, source, data, EpisodeBound.of(config), load_agent)
    conformance = None
    if source.restore is None:
        device = choose_device(config.device)
        takes = Takes(learner_class.takes_masks, learner_class.takes_unbounded_actions)
        conformance = check_for_training(source, device, takes) if dataset is None else dataset.environment
    source = with_conformance(source, conformance)
    goals = Goals(source) if settings.her is not None else None
    return RunInputs(config, learner_class, settings, source, dataset, conformance, callbacks, show_progress, goals)
