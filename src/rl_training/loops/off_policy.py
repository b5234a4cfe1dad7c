"""The off-policy loop: act, store, learn. No algorithm's name appears in it."""

from __future__ import annotations

from collections.abc import Callable

import torch

from rl_training.algorithms.base import Learner
from rl_training.checkpoint.parts import Part
from rl_training.checkpoint.read import Checkpoint
from rl_training.data.replay.buffer import Array, ReplayBuffer
from rl_training.data.replay.mixed import MixedData
from rl_training.data.replay.part import ReplayPart
from rl_training.envs.environments_part import EnvironmentsPart
from rl_training.envs.host.vector import SeededEnvs
from rl_training.loops.clock import Clock


class OffPolicy:
    """Environments and the replay of what happened in them."""

    def __init__(self, envs: SeededEnvs, replay: ReplayBuffer) -> None:
        self.envs, self.replay = envs, replay
        self.source: ReplayBuffer | MixedData = replay
        self._replay_part, self._environments_part = ReplayPart(replay, envs.spec), EnvironmentsPart(envs)

    @property
    def parts(self) -> list[Part]:
        return [self._replay_part, self._environments_part]

    def begin(self, learner: Learner) -> None:
        self.envs.reset_all()

    def restored(self, checkpoint: Checkpoint) -> bool:
        """End the open episodes that could not be brought back; whether there were none."""
        if self.envs.lost:
            self.replay.cut_off(self.envs.lost)
            self._replay_part.changed_since = checkpoint
        return not self.envs.lost

    def run(self, clock: Clock, learner: Learner, after_step: Callable[[], None]) -> None:
        envs, seeds, rows = self.envs, len(learner.seeds), self.envs.num_envs
        while clock.running:
            obs = torch.from_numpy(envs.obs.reshape(seeds, rows, *envs.obs.shape[1:]))
            learner.observe(obs)
            if clock.step < clock.random_until:
                act = learner.act_randomly(clock.step, rows)
            else:
                act = learner.act_explore(obs, clock.step, clock.progress)
            step_and_store(envs, self.replay, act.action.cpu().numpy())
            clock.count(rows)
            envs.advance()
            # At every step, trained or not: else a run resumed between two updates would log another learning rate.
            learner.set_progress(clock.progress)
            updates = clock.updates_owed(rows)
            if updates:
                learner.train(self.source, updates, clock.step)
            after_step()

    def close(self) -> None:
        self.envs.close()


def step_and_store(envs: SeededEnvs, replay: ReplayBuffer, actions: Array) -> None:
    """One vector step with `actions` (seeds, num_envs, ...), kept with what came of it."""

    def by_seed(array: Array) -> Array:
        return array.reshape(replay.seeds, envs.num_envs, *array.shape[1:])

    envs.step(actions.reshape(envs.size, *actions.shape[2:]))
    replay.add(
        obs=by_seed(envs.obs),
        actions=actions,
        rewards=by_seed(envs.rewards),
        next_obs=by_seed(envs.next_obs),
        terminated=by_seed(envs.terminated),
        truncated=by_seed(envs.truncated),
    )
