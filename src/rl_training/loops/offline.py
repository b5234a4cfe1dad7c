"""The offline loop: draw a batch from the dataset, update. No algorithm's name appears in it."""

from __future__ import annotations

from collections.abc import Callable

from rl_training.algorithms.base import Learner
from rl_training.checkpoint.parts import Part
from rl_training.checkpoint.read import Checkpoint
from rl_training.data.datasets.prepare import PreparedDataset, observation_statistics
from rl_training.data.datasets.transition_dataset import ResidentData
from rl_training.data.replay.buffer import ReplayBuffer
from rl_training.envs.base import VectorEnv
from rl_training.loops.clock import Clock
from rl_training.loops.off_policy import OffPolicy

SCHEDULE_INTERVAL = 10  # updates between changes of scheduled values; a fixed grid, so that logging cannot shift it


class Offline:
    """The offline regime: a dataset and, for a run that continues online, its environments."""

    def __init__(self, dataset: PreparedDataset, data: ResidentData, online: OffPolicy | None = None) -> None:
        self.dataset, self.data, self.online = dataset, data, online

    @property
    def parts(self) -> list[Part]:
        return self.online.parts if self.online is not None else []

    @property
    def source(self) -> ResidentData:
        return self.data

    @property
    def envs(self) -> VectorEnv | None:
        return self.online.envs if self.online is not None else None

    @property
    def replay(self) -> ReplayBuffer | None:
        return self.online.replay if self.online is not None else None

    def begin(self, learner: Learner) -> None:
        if self.online is not None:
            self.online.begin(learner)
        if learner.settings.normalize_observations:
            learner.set_obs_stats(*observation_statistics(self.dataset.dataset, learner.observation))

    def restored(self, checkpoint: Checkpoint) -> bool:
        return self.online is None or self.online.restored(checkpoint)

    def run(self, clock: Clock, learner: Learner, after_step: Callable[[], None]) -> None:
        end = clock.total if self.online is None else min(clock.online_from, clock.total)
        captured = learner.device.type == "cuda"
        while clock.running and clock.step < end:
            # On the host one at a time: batches drawn together would depend on the log and checkpoint intervals.
            count = clock.updates_until(end, SCHEDULE_INTERVAL) if captured else 1
            learner.set_progress((clock.step - clock.step % SCHEDULE_INTERVAL) / clock.horizon)
            learner.train(self.data, count, clock.step + count)
            clock.count(count)
            after_step()
        if self.online is not None:
            self.online.run(clock, learner, after_step)

    def close(self) -> None:
        if self.online is not None:
            self.online.close()
