"""What a process with its own numeric mode computes, as JSON: `digests` of two short runs, or `seeds` that differ.

A mode holds for a whole process, since the libraries read it once: the tests start this program with the variables set.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from conftest import make_quick_config  # first: it imports rl_training before numpy and torch
from seed_harness import SEEDS, run, saved_arrays

from rl_training.checkpoint.read import load_checkpoint
from rl_training.engine.rounding import numerics
from rl_training.files.run_directory import versions
from rl_training.run.run import train

RUNS = {"sac": {"batch_size": 33, "hidden_sizes": (40, 17)}, "dqn": {"batch_size": 16, "hidden_sizes": (64, 64)}}
SIZES = {"odd": {"hidden_sizes": (17, 5), "batch_size": 7}, "wide": {"hidden_sizes": (400, 300), "batch_size": 33}}


# Names as they were when the digests were recorded: the order of the tensors depends on them.
RECORDED_NAMES = {
    "params.target_critic.": "params.target.",
    "params.target_q.": "params.target.",
    "first_nonfinite_update": "first_bad",
    **{f"metric_{kind}.{phase}.": f"metric_{kind}.{number}." for kind in ("sum", "latest")
       for phase, number in (("critic", 0), ("policy", 1), ("q", 0))},
}  # fmt: skip


def recorded_name(name: str) -> str:
    for now, then in RECORDED_NAMES.items():
        if name.startswith(now):
            return then + name.removeprefix(now)
    return name


def digest(algo: str, settings: dict[str, Any], folder: Path) -> str:
    """Of everything that a short run of one thread has at its end: networks, Adam, metrics, replay, environments."""
    config = make_quick_config(algo, folder, settings, total_timesteps=90, eval_episodes=0)
    checkpoint = load_checkpoint(train(config, show_progress=False).checkpoint_path)
    found = hashlib.sha256()
    for file in sorted(name for name in checkpoint.files if name.endswith(".safetensors")):
        tensors = {recorded_name(name): tensor for name, tensor in checkpoint.tensors(file).items()}
        for name, tensor in sorted(tensors.items()):
            found.update(f"{file} {name} {tuple(tensor.shape)}\n".encode() + tensor.numpy().tobytes())
    return found.hexdigest()


def different_seeds(folder: Path) -> list[str]:
    differ = []
    for algo in ("td3", "qr_dqn"):
        for name, settings in SIZES.items():
            changes = {"algo_kwargs": settings, "total_timesteps": 60}
            together = saved_arrays(run(make_quick_config, algo, folder, SEEDS, **changes), 1)
            alone = saved_arrays(run(make_quick_config, algo, folder, SEEDS[1:2], **changes), 0)
            if any(together[key].numpy().tobytes() != alone[key].numpy().tobytes() for key in together):
                differ.append(f"{algo} {name}")
    return differ


def main() -> None:
    about: dict[str, Any] = {"numerics": numerics("cpu"), "versions": versions()}
    with tempfile.TemporaryDirectory() as folder:
        if sys.argv[1] == "seeds":
            about["different"] = different_seeds(Path(folder))
        else:
            about["digests"] = {algo: digest(algo, settings, Path(folder)) for algo, settings in RUNS.items()}
    print(json.dumps(about))


if __name__ == "__main__":
    main()
