"""Checkpoints of this library: `side_files.py ALGO ENV ROWS NEW save|resume [setting=value …]`.

The replay holds ROWS transitions. save: a checkpoint when NEW ones have been added since the last; resume: from the
call to the first step of the resumed run.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from pacer import Pacer

from rl_training.config.train_config import TrainConfig
from rl_training.run.callbacks import Callback
from rl_training.run.resume import ResumeRequest, resume
from rl_training.run.run import train

TOTAL = 10_000_000  # never reached, nor is the first update: what is saved does not depend on learning


class Saves(Callback):
    """A checkpoint of `rows` transitions, then one for every turn."""

    def __init__(self, pacer: Pacer, rows: int, new: int) -> None:
        self.pacer, self.rows, self.new = pacer, rows, new

    def on_step(self, session) -> None:  # type: ignore[no-untyped-def]
        past = session.step - self.rows
        if past < 0 or past % self.new:
            return
        started = time.perf_counter()
        session.checkpoint()
        self.pacer.answer(1 / (time.perf_counter() - started) if past else None)


class StopAt(Callback):
    """Stops a run at a step, and remembers when it started."""

    def __init__(self, step: int = 0) -> None:
        self.step, self.started = step, 0.0

    def on_start(self, session) -> bool:  # type: ignore[no-untyped-def]
        self.started = time.perf_counter()
        return bool(session.step < self.step)

    def on_step(self, session) -> bool:  # type: ignore[no-untyped-def]
        return bool(session.step < self.step)


def serve_resumes(pacer: Pacer, run_dir: Path, rows: int) -> None:
    pacer.answer(None)
    while True:
        stop, started = StopAt(rows), time.perf_counter()
        resume(ResumeRequest(run_dir, callbacks=[stop], show_progress=False))
        pacer.answer(1 / (stop.started - started))


def main() -> None:
    algo, env_id, rows, new, what, *words = sys.argv[1:]
    values = {key: json.loads(value) for key, _, value in (word.partition("=") for word in words)}
    pacer = Pacer(0, 1)
    with tempfile.TemporaryDirectory() as folder:
        config = TrainConfig(
            algo, env_id, total_timesteps=TOTAL, output_dir=Path(folder), eval_episodes=0, compile="off", device="cpu",
            video=False, checkpoint_interval=TOTAL, log_interval=TOTAL,
            algo_kwargs={"learning_starts": TOTAL - 1, **values},
        )  # fmt: skip
        watch = Saves(pacer, int(rows), int(new)) if what == "save" else StopAt(int(rows))
        result = train(config, callbacks=[watch], show_progress=False)
        serve_resumes(pacer, result.run_dir, int(rows))


if __name__ == "__main__":
    main()
