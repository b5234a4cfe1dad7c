"""Copies a run, to be resumed in another directory: its checkpoint, logs and agents."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from rl_training.checkpoint.read import Checkpoint
from rl_training.checkpoint.schema import LOGS
from rl_training.checkpoint.write import copy_checkpoint
from rl_training.config.objects import python_objects
from rl_training.config.train_config import TrainConfig
from rl_training.core.checks import UserError
from rl_training.core.signals import Stopped, active_signals, deferred
from rl_training.files.atomic import replace_file, sync_tree
from rl_training.files.run_directory import RunRecord
from rl_training.run.agent import agent_from_checkpoint
from rl_training.run.plan import choose_plan
from rl_training.run.start_weights import start_files
from rl_training.run.validate import parse_settings


def copy_run(
    source: Path, run_dir: Path, config: TrainConfig, checkpoint: Checkpoint | None, record: RunRecord | None
) -> Checkpoint | None:
    """Copy a run's files and checkpoint to a new run directory; without a record, the checkpoint only."""
    try:
        if record is not None:
            return _copy_files(source, run_dir, config, checkpoint)
        return _create_run(run_dir, config, checkpoint) if checkpoint is not None else None
    except OSError as error:  # a full disk, or the checkpoint was rotated away by a run in progress
        reason = error.args[0][0][2] if isinstance(error, shutil.Error) else error.strerror
        raise UserError(f"{source}: cannot be copied to {run_dir} ({reason})") from error


def _copy_files(source: Path, target: Path, config: TrainConfig, checkpoint: Checkpoint | None) -> Checkpoint | None:
    """Copy the checkpoint, the rows of the logs up to it and the agents; the record is written last."""
    if checkpoint is not None:
        offsets = checkpoint.state["parts"].get("session", {}).get("offsets", {})
        for name in LOGS:  # not by the names in the file: they could be any path
            old = source / f"{name}.jsonl"
            if old.exists():
                (target / old.name).write_bytes(old.read_bytes()[: offsets.get(name, 0)])
        if (source / "agents").is_dir():
            shutil.copytree(source / "agents", target / "agents")
        path = target / "checkpoints" / checkpoint.path.name
        shutil.copytree(checkpoint.path, path)
        sync_tree(path.parent)  # later checkpoints link these files
        checkpoint = replace(checkpoint, path=path, kept={})  # the copies are verified too
    for path in filter(Path.exists, start_files(source, config)):
        replace_file(target / path.name, path.read_bytes())
    before = RunRecord.read(source).values
    record = RunRecord.create(target, config, before["execution_plan"])
    kept = ("resume", "resume_note", "environment", "failed_seeds", "promises", "dataset")
    record.update(**{name: before[name] for name in kept if name in before})
    return checkpoint


def _create_run(target: Path, config: TrainConfig, checkpoint: Checkpoint) -> Checkpoint:
    """Create a run for a checkpoint outside of a run directory: logs and best agents start empty."""
    _, settings = parse_settings(config)
    # The spaces come from the agent, as there may be no environment.
    agent = agent_from_checkpoint(checkpoint, objects=python_objects(config.algo_kwargs))
    plan = choose_plan(config, settings, agent.spec)
    parts = checkpoint.state["parts"]
    fresh = {"offsets": {"metrics": 0, "evaluations": 0}, "best": [None for _ in config.seed_list]}
    session = {**parts.get("session", {}), **fresh}
    copy = copy_checkpoint(
        checkpoint, target / "checkpoints", {**checkpoint.state, "parts": {**parts, "session": session}}
    )
    record = RunRecord.create(target, config, plan.to_dict(), plan.promises)
    if "environment" in checkpoint.state:
        record.update(environment=checkpoint.state["environment"])
    return copy


def remove_unless_begun(run_dir: Path, source: Path, error: BaseException) -> None:
    """Remove a copy that was rejected or stopped before it trained."""
    with deferred():
        if (run_dir / "run.json").exists() and "asked" in RunRecord.read(run_dir).values:
            return
        if isinstance(error, Stopped):
            active_signals().stopping = True
            error.describe(f"; {source} is unchanged")
        shutil.rmtree(run_dir, ignore_errors=True)
