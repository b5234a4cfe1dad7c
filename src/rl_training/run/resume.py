"""Resumes runs: checks the request, finds the checkpoint, and continues in the run's or a new directory."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from rl_training.algorithms.offline import absolute_path
from rl_training.checkpoint.read import Checkpoint, list_checkpoints
from rl_training.checkpoint.schema import find_checkpoint, invalid_file
from rl_training.checkpoint.write import remove_leftovers
from rl_training.config.fields import parse
from rl_training.config.objects import Objects, with_objects
from rl_training.config.offline_settings import OfflineSettings
from rl_training.config.train_config import TrainConfig, config_from_dict
from rl_training.config.yaml_loading import load_yaml
from rl_training.core.checks import UserError
from rl_training.core.results import TrainResult
from rl_training.core.signals import Stopped, deferred, interruptible, stop_signals
from rl_training.data.datasets.formats.loaders import NoSuchData
from rl_training.data.datasets.memory import Dataset
from rl_training.engine.rounding import numerics
from rl_training.envs.host.factory import EnvFactory, EnvSource, env_source
from rl_training.files.atomic import remove_temporaries
from rl_training.files.run_directory import OVERRIDABLE_ON_RESUME, RunLock, RunRecord, create_run_dir, versions
from rl_training.run.callbacks import Callback, Callbacks, as_callbacks
from rl_training.run.environment_record import EnvironmentEntry, environment_entries
from rl_training.run.fork import copy_run, remove_unless_begun
from rl_training.run.inputs import check_inputs
from rl_training.run.plan import ExecutionPlan, choose_device, rounding_changes
from rl_training.run.run import Run
from rl_training.run.validate import filled, parse_settings

STAY_OFFLINE = "; with offline=True it stays offline"


@dataclass(frozen=True)
class ResumeRequest:
    """The arguments of `resume`."""

    path: str | Path  # a run directory or a checkpoint
    total_timesteps: int | None = None
    output_dir: str | Path | None = None  # another directory; None: the run's own
    eval_episodes: int | None = None
    run_suffix: str | None = None
    callbacks: Callbacks | None = None
    _: KW_ONLY
    env_id: str | None = None
    env_factory: EnvFactory | None = None
    show_progress: bool = True
    online: bool = False  # continue a finished offline run in its environment, up to `total_timesteps`
    offline: bool = False  # reject a run that trains in its environment
    force: bool = False  # resume even if the dataset has changed
    data: Sequence[str | Path] = ()  # the new paths of the dataset's files
    dataset: Dataset | None = None  # for a run whose dataset was passed in memory
    objects: Objects | None = None  # the classes and functions of its settings, such as networks of one's own


@dataclass(frozen=True)
class FoundRun:
    """The run to resume: its directory, record, checkpoint and config."""

    directory: Path
    record: RunRecord | None  # None: a checkpoint outside of a run
    checkpoint: Checkpoint | None  # None: interrupted before the first one
    config: TrainConfig
    notes: tuple[str, ...] = ()

    @property
    def step(self) -> int:
        return self.checkpoint.step if self.checkpoint is not None else 0


def resume_training(
    path: str | Path,
    total_timesteps: int | None = None,
    output_dir: str | Path | None = None,
    eval_episodes: int | None = None,
    run_suffix: str | None = None,
    callbacks: Callbacks | None = None,
    **more: Any,
) -> TrainResult:
    """Resume a run directory or checkpoint; `more` are the other fields of `ResumeRequest`."""
    return resume(ResumeRequest(path, total_timesteps, output_dir, eval_episodes, run_suffix, callbacks, **more))


def resume(request: ResumeRequest) -> TrainResult:
    """Resume a run in its own directory, or in a new one with `output_dir` or `run_suffix`."""
    with stop_signals():
        hooks = as_callbacks(request.callbacks)  # rejected before anything is read
        found = _find(request)
        config = _requested_config(request, found)
        record, checkpoint = found.record, found.checkpoint
        finished = record is not None and record.values["status"] == "finished" and found.step >= config.total_timesteps
        if checkpoint is not None and record is not None and finished:
            metrics = {**record.values["metrics"], "already_finished": True}
            return TrainResult(found.directory, checkpoint.path, metrics)
        run_dir, notes = found.directory, found.notes
        try:
            if request.output_dir is not None or request.run_suffix is not None:
                with deferred():
                    run_dir = create_run_dir(config, request.run_suffix)
                with interruptible():
                    checkpoint = copy_run(found.directory, run_dir, config, checkpoint, record)
                if record is None:
                    notes = (*notes, "a checkpoint away from its run: its rows and agents so far are not there")
            return _continue(request, config, run_dir, checkpoint, hooks, notes)
        except (UserError, Stopped) as error:
            if run_dir != found.directory:
                remove_unless_begun(run_dir, found.directory, error)
            if isinstance(error, NoSuchData):
                in_memory = config.algo_kwargs.get("dataset_kind") == "memory"
                where = "a file that holds the same is named with" if in_memory else "name it where it is now with"
                raise UserError(f"{error}; {where} data=...") from error
            raise


def _find(request: ResumeRequest) -> FoundRun:
    """The newest intact checkpoint of a run, or the given one, with its run's record and config."""
    path = Path(request.path)
    if not path.exists():
        raise UserError(f"{path}: no such run or checkpoint")
    if not path.is_dir():
        raise UserError(f"{path}: not a run or a checkpoint directory; an agent file cannot be resumed")
    path = path.resolve()
    checkpoint: Checkpoint | None = None
    if _never_saved(path):
        directory, notes = path, ["interrupted before its first checkpoint: it starts again"]
        values = load_yaml(directory / "config.yaml").values
    else:
        checkpoint, notes = find_checkpoint(path)
        directory, values = checkpoint.path.parent.parent, checkpoint.state["config"]
    if not (directory / "run.json").exists() and request.output_dir is None:
        raise UserError(f"{path}: a checkpoint away from its run; output_dir=... resumes it in a new run")
    record = RunRecord.read(directory) if (directory / "run.json").exists() else None
    return FoundRun(directory, record, checkpoint, config_from_dict(values, allow_module_env=True), tuple(notes))


def _never_saved(path: Path) -> bool:
    """Whether a run was interrupted before its first checkpoint; False if its checkpoints were deleted."""
    if not (path / "run.json").exists() or list_checkpoints(path / "checkpoints"):
        return False
    values = RunRecord.read(path).values
    return values["status"] in ("running", "failed") or (values["status"] == "stopped" and not values["metrics"])


def _requested_config(request: ResumeRequest, found: FoundRun) -> TrainConfig:
    """The run's config with the changes of this request, and of an earlier resume that was interrupted."""
    config, total, step = found.config, request.total_timesteps, found.step
    # The last step of several environments may pass the total: the same total again is accepted.
    if total is not None and total <= step - config.num_envs:
        raise UserError(f"total_timesteps must be >= {step}, the checkpoint's step, got {total}")
    config = _changed(config, **found.record.resume_overrides if found.record else {})
    config = replace(config, algo_kwargs=with_objects(config.algo_kwargs, request.objects))
    env_id = env_source(config, request.env_id, request.env_factory).env_id
    if request.data:
        config = _with_data(config, request.data)
    if request.dataset is not None and (request.data or config.algo_kwargs.get("dataset_kind") != "memory"):
        raise UserError("dataset=... is for a run whose dataset was passed in memory; this one's was not")
    if request.offline and parse_settings(config)[1].uses_environment:
        raise UserError("this run learns in its environment: it cannot resume offline (offline=True)")
    if request.online:
        config = _online(config, request, step)
    return _changed(
        config,
        total_timesteps=total,
        output_dir=Path(request.output_dir) if request.output_dir is not None else None,
        eval_episodes=request.eval_episodes,
        env_id=env_id,
    )


def _changed(config: TrainConfig, **changes: Any) -> TrainConfig:
    return replace(config, **{name: value for name, value in changes.items() if value is not None})


def _with_data(config: TrainConfig, data: Sequence[str | Path]) -> TrainConfig:
    """The config with new paths of its dataset; its SHA-256 is compared when it is loaded."""
    _, settings = parse_settings(config)
    if not isinstance(settings, OfflineSettings) or settings.dataset_kind == "random":
        raise UserError("data=... is for a run whose dataset is a file or an agent's; this one's is not")
    name = "dataset_agent" if settings.dataset_kind == "policy" else "dataset_path"
    paths = [absolute_path(path) for path in data]
    if name == "dataset_agent" and len(paths) > 1:
        raise UserError(f"data=... must be the one agent that generated this run's dataset, got {len(paths)} paths")
    found = {name: paths[0] if len(paths) == 1 else paths}
    if settings.dataset_kind == "memory":  # a file may hold the same data
        found["dataset_kind"] = "file"
    return replace(config, algo_kwargs={**config.algo_kwargs, **found})


def _online(config: TrainConfig, request: ResumeRequest, step: int) -> TrainConfig:
    """The config of a finished offline run that continues in its environment; any other config unchanged."""
    cls, settings = parse_settings(config)
    if not isinstance(settings, OfflineSettings) or settings.uses_environment:
        return config
    if not cls.learns_online and request.env_id == config.env_id and ":" in config.env_id:
        return config  # env_id was only given to name its module again
    if not cls.learns_online:
        raise UserError(f"{cls.name} cannot continue online: it learns nothing from its own transitions{STAY_OFFLINE}")
    if request.total_timesteps is None:
        raise UserError(f"total_timesteps must be given to continue online, above {config.total_timesteps}")
    if step < config.total_timesteps:
        raise UserError(
            f"the offline run is at update {step} of {config.total_timesteps}; "
            f"resume it to its end first (without total_timesteps=...){STAY_OFFLINE}"
        )
    return replace(config, algo_kwargs={**config.algo_kwargs, "offline_steps": step})


def _continue(
    request: ResumeRequest,
    config: TrainConfig,
    run_dir: Path,
    checkpoint: Checkpoint | None,
    hooks: Sequence[Callback],
    notes: Sequence[str],
) -> TrainResult:
    """Check everything again, then continue from a checkpoint (None: from the start) in `run_dir`."""
    cls, settings = parse_settings(config)
    config = filled(config, settings)  # for a run that recorded fewer settings
    entry = recorded_environment(run_dir, config.env_id)
    decided = (entry.restore, config.info_metrics, entry.masked)
    source = EnvSource(config.env_id, dict(config.env_kwargs), request.env_factory, *decided)
    checked = check_inputs(config, cls, settings, source, request.dataset, hooks, request.show_progress)
    with closing(checked) as inputs, deferred(), RunLock(run_dir):
        record = RunRecord.read(run_dir)
        plan, rounding = recorded_plan(record)
        change = None
        if inputs.dataset is not None:
            before = record.values.get("dataset") if checkpoint is None else checkpoint.state.get("dataset") or {}
            change = inputs.dataset.change_since(before, checkpoint.path if checkpoint else run_dir, request.force)
        remove_leftovers(run_dir / "checkpoints")
        for directory in (run_dir, run_dir / "agents"):
            remove_temporaries(directory)
        # Recorded now, since they are in a checkpoint's config only after the next save.
        values = config.to_dict()
        begun: dict[str, Any] = {"asked": {name: values[name] for name in OVERRIDABLE_ON_RESUME}}
        begun |= environment_entries(inputs, checkpoint)
        if change is not None or rounding is not None:
            begun |= {"resume": "inexact", "resume_note": change or rounding}
        return Run(inputs, plan, run_dir, record, checkpoint).execute(notes, begun)


def recorded_plan(record: RunRecord) -> tuple[ExecutionPlan, str | None]:
    """The plan of the run that is resumed, and why the rest of it will not have the bits that it would have had."""
    try:
        recorded = parse(ExecutionPlan, record.values["execution_plan"])
        lost = recorded.device.startswith("cuda") and not torch.cuda.is_available()
        device = choose_device("cpu" if lost else recorded.device)
    except UserError as error:
        raise invalid_file(record.path, error) from error
    plan = replace(recorded, device=device, numerics=numerics(device, recorded.compiled))
    before = record.values.get("versions")
    changes = rounding_changes(recorded, plan, before if isinstance(before, dict) else {}, versions())
    return plan, f"it will not be bit-identical: {changes}" if changes else None


def recorded_environment(run_dir: Path, env_id: str) -> EnvironmentEntry:
    """What was decided about the run's environment; nothing if it never was, or for another environment."""
    record = RunRecord.read(run_dir)
    if "environment" not in record.values:
        return EnvironmentEntry(env_id)
    try:
        entry: EnvironmentEntry = parse(EnvironmentEntry, record.values["environment"])
    except UserError as error:
        raise invalid_file(record.path, error) from error
    return entry if entry.env_id == env_id else EnvironmentEntry(env_id)
