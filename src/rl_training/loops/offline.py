"""The offline loop: draw a batch from the dataset, learn. No algorithm's name appears in it."""

from __future__ import annotations

from rl_training.data.datasets.transition_dataset import ResidentData
from rl_training.run.session import Session

SAME_RATE = 10  # updates between moves of a scheduled value; a fixed grid, whatever else falls due in between


def run_offline(session: Session, data: ResidentData) -> None:
    learner, asked = session.learner, session.settings.offline_steps
    end = session.total if asked is None else min(asked, session.total)
    captured = learner.device.type == "cuda"
    while session.running() and session.step < end:
        # On the host one at a time: batches drawn together would depend on what else falls due in between.
        count = session.updates_until(end, SAME_RATE) if captured else 1
        learner.set_progress((session.step - session.step % SAME_RATE) / session.horizon)
        learner.train(data, count, session.step + count)
        session.count_updates(count)
        session.after_step()
