"""The off-policy loop: act, learn, step, store. No algorithm's name appears in it."""

from __future__ import annotations

from collections.abc import Callable

from rl_training.algorithms.base import Learner
from rl_training.checkpoint.parts import Part
from rl_training.checkpoint.read import Checkpoint
from rl_training.data.replay.buffer import ReplayBuffer
from rl_training.data.replay.mixed import MixedData
from rl_training.data.replay.part import ReplayPart
from rl_training.envs.base import VectorEnv
from rl_training.loops.clock import Clock
from rl_training.tensors.outbox import Outbox


class OffPolicy:
    """The off-policy regime: environments and their replay buffer."""

    def __init__(self, envs: VectorEnv, replay: ReplayBuffer) -> None:
        self.envs, self.replay = envs, replay
        self.source: ReplayBuffer | MixedData = replay
        self._replay_part = ReplayPart(replay, envs.spec)

    @property
    def parts(self) -> list[Part]:
        return [self._replay_part, self.envs.part]

    def begin(self, learner: Learner) -> None:
        self.envs.reset_all()

    def restored(self, checkpoint: Checkpoint) -> bool:
        """Truncate the open episodes that could not be restored; True if there were none."""
        lost = self.envs.lost
        if lost:
            self.replay.cut_off(lost)
            self._replay_part.changed_since = checkpoint
        return not lost

    def run(self, clock: Clock, learner: Learner, after_step: Callable[[], None]) -> None:
        """Act, launch the updates on what is stored, step the environments meanwhile, store the new transitions."""
        envs, replay, by_seed = self.envs, self.replay, self.envs.by_seed
        learner.collecting.lose(envs.lost)
        if envs.device.type == "cpu" and replay.device.type == "cuda":
            outbox = Outbox(replay.device)
            replay.send_by(outbox)
            learner.collect_by(outbox, envs.num_envs)
        while clock.running:
            obs = by_seed(envs.obs)
            learner.observe(obs)
            if clock.step < clock.random_until:
                act = learner.act_random(clock.step, envs.num_envs, envs.device)
            else:
                act = learner.act_collect(obs, clock.step, clock.progress)
            # Before the updates: a copy from a GPU waits for everything that was launched before it.
            actions = act.action.to(envs.device)
            clock.count(envs.num_envs)
            # At every step, with or without updates: else a run resumed between two updates logs another learning rate.
            learner.set_progress(clock.progress)
            updates, is_empty = clock.updates_owed(envs.num_envs), replay.added == 0
            if updates and not is_empty:
                learner.train(self.source, updates, clock.step)
            else:
                learner.training.store(self.source)
            step = envs.step(actions.flatten(0, 1))
            learner.collecting.observe(*map(by_seed, (step.rewards, step.terminated, step.truncated)))
            replay.add(
                obs=obs,
                actions=actions,
                rewards=by_seed(step.rewards),
                next_obs=by_seed(step.next_obs),
                terminated=by_seed(step.terminated),
                truncated=by_seed(step.truncated),
            )
            envs.advance()
            if updates and is_empty:  # the first step of a run: there is no earlier transition to learn from
                learner.train(self.source, updates, clock.step)
            after_step()
        replay.flush()

    def close(self) -> None:
        self.envs.close()
