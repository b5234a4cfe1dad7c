"""The on-policy loop: collect, learn, forget. No algorithm's name appears in it."""

from __future__ import annotations

from collections.abc import Callable

from rl_training.algorithms.base import Learner
from rl_training.algorithms.on_policy import OnPolicyLearner
from rl_training.checkpoint.parts import Part
from rl_training.checkpoint.read import Checkpoint
from rl_training.data.rollout import Rollout
from rl_training.data.rollout_part import RolloutPart
from rl_training.engine.collecting import RolloutProgram, can_capture, step_fields
from rl_training.envs.base import VectorEnv
from rl_training.loops.clock import Clock


class OnPolicy:
    """The on-policy regime: environments and the rollout of their newest steps."""

    replay = None

    def __init__(self, envs: VectorEnv, rollout: Rollout) -> None:
        self.envs, self.rollout = envs, rollout
        self.source = rollout
        self._program: RolloutProgram | None = None

    @property
    def parts(self) -> list[Part]:
        return [RolloutPart(self.rollout), self.envs.part]

    def begin(self, learner: Learner) -> None:
        self.envs.reset_all()

    def restored(self, checkpoint: Checkpoint) -> bool:
        """Truncate the open episodes that could not be restored; True if there were none."""
        self.rollout.lose(self.envs.lost)
        return not self.envs.lost

    def run(self, clock: Clock, learner: Learner, after_step: Callable[[], None]) -> None:
        envs, rollout = self.envs, self.rollout
        assert isinstance(learner, OnPolicyLearner)
        while clock.running:
            # Scheduled values stay as they are for a whole rollout: at its end, a linear rate would be 0 in the last.
            progress = clock.progress_at(clock.step - rollout.filled * envs.num_envs)
            steps = self._collect(clock, learner, progress)
            clock.count(steps * envs.num_envs)
            learner.set_progress(progress)
            if rollout.full:
                learner.learn(rollout, progress, clock.step)
                rollout.forget()
            after_step()

    def _collect(self, clock: Clock, learner: OnPolicyLearner, progress: float) -> int:
        """Collect one step of every environment, or a whole rollout where it is one program. Returns the steps."""
        envs, rollout = self.envs, self.rollout
        if can_capture(envs, rollout):
            self._program = self._program or RolloutProgram(learner, envs, rollout)
            first = clock.step - rollout.filled * envs.num_envs
            if rollout.filled == 0 and first + rollout.steps * envs.num_envs <= clock.total:
                self._program.run(first, progress)
                return rollout.steps
            self._program.run_once(first, progress)  # the last rollout of a run that ends before it is complete
            return 1
        obs = envs.by_seed(envs.obs)
        act = learner.act_explore(obs, clock.step, progress, rollout.open_state)
        step = envs.step(act.action.flatten(0, 1))
        rollout.add(act.state, **step_fields(envs, obs, act, step))
        envs.advance()
        return 1

    def close(self) -> None:
        self.envs.close()
