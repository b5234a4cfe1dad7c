"""rl_training's side of a comparison: `side_ours.py ALGO ENV WARM_UP STRETCH [setting=value …]`."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from pacer import Pacer

from rl_training.config.train_config import TrainConfig
from rl_training.run.callbacks import Callback
from rl_training.run.run import train

OWN = ("num_envs", "checkpoint_interval", "device", "compile", "seeds")  # not settings of the algorithm


class Turns(Callback):
    def __init__(self, pacer: Pacer) -> None:
        self.pacer = pacer

    def on_step(self, session) -> None:  # type: ignore[no-untyped-def]
        self.pacer.step()


def main() -> None:
    algo, env_id, warm_up, stretch, *settings = sys.argv[1:]
    values = {key: json.loads(value) for key, _, value in (word.partition("=") for word in settings)}
    own = {name: values.pop(name) for name in OWN if name in values}
    if "seeds" in own:
        own["seeds"] = tuple(range(own["seeds"]))  # their number
    with tempfile.TemporaryDirectory() as folder:
        config = TrainConfig(
            algo, env_id, total_timesteps=1_000_000, output_dir=Path(folder), eval_episodes=0,
            algo_kwargs=values, **{"device": "cpu", "compile": "on", "checkpoint_interval": 10_000_000, **own},
        )  # fmt: skip
        train(config, callbacks=[Turns(Pacer(int(warm_up), int(stretch)))], show_progress=False)


if __name__ == "__main__":
    main()
