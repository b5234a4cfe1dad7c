"""Opens the writers that a config names. What goes wrong in one of them later does not end the training."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from rl_training.config.fields import Condition, parse
from rl_training.config.train_config import TrainConfig
from rl_training.config.writers import WRITERS
from rl_training.core.checks import UserError, one_line
from rl_training.files.json_lines import read_rows
from rl_training.files.run_directory import RunRecord
from rl_training.run.writers.files import CsvFile, Row, Writer
from rl_training.run.writers.services import Mlflow, Service, Wandb, check_mlflow, check_wandb
from rl_training.run.writers.tensorboard import TensorBoard

Mark = tuple[int, int]  # a step, and how many times rows were written at it
NOTHING: Mark = (-1, 0)
Note = Callable[[str], None]
SERVICES: dict[str, Callable[..., Service]] = {"wandb": Wandb, "mlflow": Mlflow}


def check_writers(config: TrainConfig) -> None:
    """Reject writers whose package is missing, or that cannot be reached, before anything is written."""
    for name, values in config.writer_options.items():
        options = parse(WRITERS[name], values)
        try:
            if name == "tensorboard":
                import torch.utils.tensorboard  # noqa: F401
            elif name == "wandb":
                check_wandb(options)
            elif name == "mlflow":
                check_mlflow(options)
        except ImportError as error:
            missing = f" ({error.name} is not installed)" if error.name else ""
            raise UserError(f"writer {name} needs pip install 'rl-training[{name}]'{missing}") from error


def written_mark(config: TrainConfig, run_dir: Path) -> Mark:
    """Where metrics.jsonl ends, for services: the last step, and how many times all seeds were written at it."""
    step, count = NOTHING
    if not SERVICES.keys() & config.writer_options.keys():
        return NOTHING
    for row in read_rows(run_dir / "metrics.jsonl"):
        step, count = row["step"], count + 1 if row["step"] == step else 1
    return step, count // len(config.seed_list)


def open_writers(
    config: TrainConfig, run_dir: Path, record: RunRecord, written: Mark, resumed_at: int | None, note: Note
) -> list[Writer]:
    """The writers besides metrics.jsonl, which is open and cut back to the checkpoint.

    `written`: where metrics.jsonl ended before that; `resumed_at`: the checkpoint's step, None without one.
    """
    opened: list[Writer] = []
    metrics = run_dir / "metrics.jsonl"
    try:
        for name, values in config.writer_options.items():
            if name in SERVICES:
                options = parse(WRITERS[name], values)
                service = _open_service(name, options, config, run_dir, record, written)
                opened.append(Guarded(name, service, note))
                if service.service.notice:
                    note(service.service.notice)
                _replay(opened[-1], metrics, len(config.seed_list))
            elif name == "csv":
                opened.append(Guarded(name, CsvFile(run_dir / "metrics.csv", read_rows(metrics)), note))
            else:
                board = TensorBoard(run_dir, config.seed_list, 0 if resumed_at is None else resumed_at + 1)
                opened.append(Guarded(name, board, note))
                if board.is_new:
                    _replay(board, metrics, len(config.seed_list))
    except BaseException:
        for writer in opened:
            writer.close(failed=True)
        raise
    return opened


def _replay(writer: Writer, path: Path, seeds: int) -> None:
    """Write the rows of metrics.jsonl to a writer, as often as they were written."""
    rows = read_rows(path)
    while batch := list(islice(rows, seeds)):
        writer.write(batch)


def _open_service(
    name: str, options: Any, config: TrainConfig, run_dir: Path, record: RunRecord, written: Mark
) -> Once:
    """A service with the ids and the mark in the run's record."""
    try:
        entry = parse(ServiceEntry, (record.values.get("writers") or {}).get(name, {}))
    except (UserError, AttributeError) as error:
        raise UserError(f"{record.path}: writers.{name} must have ids and sent ({one_line(error)})") from error
    service = SERVICES[name](options, config, run_dir, entry.ids)
    sent = entry.sent if entry.failed or not entry.ids else max(entry.sent, written)
    once = Once(name, service, sent, record)
    once.record_mark(failed=False)
    return once


_ids = Condition("letters, digits, - and _", lambda ids: all(re.fullmatch(r"[\w-]{1,64}", i) for i in ids.values()))


@dataclass(frozen=True)
class ServiceEntry:
    """`writers.<name>` in run.json: the ids of the service's runs by seed, and the rows that it has."""

    ids: dict[str, str] = field(default_factory=dict, metadata={"must": _ids})
    sent: tuple[int, int] = NOTHING
    failed: bool = False  # whether rows after `sent` are missing there


class Once:
    """Sends each row to a service once: not again the rows that a resumed run repeats."""

    def __init__(self, name: str, service: Service, sent: Mark, record: RunRecord) -> None:
        self.name, self.service, self.sent, self.record = name, service, sent, record
        self._at = NOTHING

    def write(self, rows: Sequence[Row]) -> None:
        step = rows[0]["step"]
        self._at = (step, self._at[1] + 1 if step == self._at[0] else 1)
        if self._at <= self.sent:
            return
        try:
            self.service.write(rows)
        except Exception:
            self.record_mark(failed=True)
            raise
        self.sent = self._at

    def record_mark(self, failed: bool) -> None:
        """Record up to where the service has the rows; after a failure a resume sends the others."""
        entry = ServiceEntry(self.service.ids, self.sent, failed)
        self.record.update(writers={**(self.record.values.get("writers") or {}), self.name: asdict(entry)})

    def close(self, failed: bool) -> None:
        self.service.close(failed)


class Guarded:
    """A writer that is left out after its first failure, with one line; metrics.jsonl has every row."""

    def __init__(self, name: str, writer: Writer, note: Note) -> None:
        self.name, self.writer, self.note = name, writer, note
        self.working = True

    def write(self, rows: Sequence[Row]) -> None:
        if self.working:
            self._attempt(lambda: self.writer.write(rows), f"at step {rows[0]['step']}")

    def close(self, failed: bool) -> None:
        self._attempt(lambda: self.writer.close(failed), "at the end")

    def _attempt(self, action: Callable[[], None], when: str) -> None:
        try:
            action()
        except Exception as error:  # a full disk, or whatever a service raises
            if self.working:
                what = f"writer {self.name} failed {when} ({type(error).__name__}: {one_line(error)})"
                self.note(f"{what}; training continues, and metrics.jsonl has every row")
            self.working = False
