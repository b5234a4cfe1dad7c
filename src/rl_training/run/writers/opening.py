"""Opens the writers that a config names. What goes wrong in one of them later does not end the training."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rl_training.config.fields import Condition, parse
from rl_training.config.train_config import TrainConfig
from rl_training.config.writers import WRITERS
from rl_training.core.checks import UserError, one_line
from rl_training.files.json_lines import read_rows
from rl_training.files.run_directory import RunRecord
from rl_training.run.writers.files import CsvFile, Row, Writer
from rl_training.run.writers.services import KINDS, Mlflow, Service, Wandb, check_mlflow, check_wandb
from rl_training.run.writers.tensorboard import TensorBoard

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


def start_services(config: TrainConfig, run_dir: Path, record: RunRecord, note: Note) -> Iterator[Guarded]:
    """The services that the config names, as they start; one that cannot start rejects the run."""
    for name, values in config.writer_options.items():
        if name in SERVICES:
            service = _start_service(name, parse(WRITERS[name], values), config, run_dir, record)
            yield Guarded(name, Once(service), note)
            if service.notice:
                note(service.notice)


def open_files(config: TrainConfig, run_dir: Path, resumed_at: int | None, note: Note) -> Iterator[Guarded]:
    """The other writers besides metrics.jsonl, which has the rows of a resumed run up to step `resumed_at`."""
    rows = list(read_rows(run_dir / "metrics.jsonl"))
    for name in config.writer_options:
        if name == "csv":
            yield Guarded(name, CsvFile(run_dir / "metrics.csv", rows), note)
        elif name == "tensorboard":
            board = TensorBoard(run_dir, config.seed_list, 0 if resumed_at is None else resumed_at + 1)
            guarded = Guarded(name, board, note)
            yield guarded
            if board.is_new:
                guarded.write(rows)


def _start_service(name: str, options: Any, config: TrainConfig, run_dir: Path, record: RunRecord) -> Service:
    """A service with the ids of its runs in the run's record, which has them from now on."""
    entries = record.values.get("writers") or {}
    try:
        entry = parse(ServiceEntry, entries.get(name, {}))
    except (UserError, AttributeError) as error:
        raise UserError(f"{record.path}: writers.{name} must have ids ({one_line(error)})") from error
    service = SERVICES[name](options, config, run_dir, entry.ids)
    record.update(writers={**entries, name: asdict(ServiceEntry(service.ids))})
    return service


_ids = Condition("letters, digits, - and _", lambda ids: all(re.fullmatch(r"[\w-]{1,64}", i) for i in ids.values()))


@dataclass(frozen=True)
class ServiceEntry:
    """`writers.<name>` in run.json: the ids of the service's runs by seed."""

    ids: dict[str, str] = field(default_factory=dict, metadata={"must": _ids})


class Once:
    """Sends a service the rows that it does not have: not those that a resumed run repeats."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def write(self, rows: Sequence[Row]) -> None:
        new = [row for row in rows if not self._has(row)]
        if new:
            self.service.write(new)

    def _has(self, row: Row) -> bool:
        received = self.service.received.get(row["seed"], {})
        return any(row["step"] <= received.get(kind, -1) for kind in KINDS if kind in row)

    def close(self, failed: bool) -> None:
        self.service.close(failed)


class Guarded:
    """A writer that is left out after its first failure, with one line; metrics.jsonl has every row."""

    def __init__(self, name: str, writer: Writer, note: Note) -> None:
        self.name, self.writer, self.note = name, writer, note
        self.working = True

    def write(self, rows: Sequence[Row]) -> None:
        if self.working and rows:
            self._attempt(lambda: self.writer.write(rows), f"at step {rows[-1]['step']}")

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
