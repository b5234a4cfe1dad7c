"""Metric rows in TensorBoard's event files (extra `tensorboard`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rl_training.run.writers.files import Row, numbers


class TensorBoard:
    """One directory of event files for each seed; those of steps that a resume repeats are marked as replaced."""

    def __init__(self, run_dir: Path, seeds: Sequence[int], first_step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        root = run_dir / "tensorboard"
        self.is_new = not root.exists()
        self._writers = {
            seed: SummaryWriter(str(root / f"seed_{seed}"), purge_step=None if self.is_new else first_step)
            for seed in seeds
        }

    def write(self, rows: Sequence[Row]) -> None:
        for row in rows:
            for name, value in numbers(row).items():
                self._writers[row["seed"]].add_scalar(name, value, row["step"])

    def close(self, failed: bool) -> None:
        for writer in self._writers.values():
            writer.close()
