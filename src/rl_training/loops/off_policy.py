"""The off-policy loop: act, store, learn. No algorithm's name appears in it."""

from __future__ import annotations

import torch

from rl_training.data.replay.buffer import Array, ReplayBuffer
from rl_training.data.replay.mixed import MixedData
from rl_training.envs.host.vector import SeededEnvs
from rl_training.run.session import Session


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


def run_off_policy(session: Session, envs: SeededEnvs, replay: ReplayBuffer, mixed: MixedData | None = None) -> None:
    """Learns from the replay, or from what it is mixed with."""
    learner, settings = session.learner, session.settings
    seeds, rows = len(session.seeds), envs.num_envs
    has_policy = session.online_from or session.config.started_from is not None
    while session.running():
        obs = torch.from_numpy(envs.obs.reshape(seeds, rows, *envs.obs.shape[1:]))
        learner.observe(obs)
        if session.step < settings.learning_starts and not has_policy:
            act = learner.act_randomly(session.step, rows)
        else:
            act = learner.act_explore(obs, session.step, session.progress)
        step_and_store(envs, replay, act.action.cpu().numpy())
        session.count_step(envs)
        envs.advance()
        # At every step, trained or not: else a run resumed between two updates would log another learning rate.
        learner.set_progress(session.progress)
        updates = session.updates_owed(rows)
        if updates:
            learner.train(mixed or replay, updates, session.step)
        session.after_step()
