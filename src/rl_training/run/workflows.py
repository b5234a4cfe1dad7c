"""What can be done with a checkpoint: evaluate it, act with it, film it, go on from it."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.algorithms.offline import settled_path
from rl_training.checkpoint.read import Checkpoint, list_checkpoints
from rl_training.checkpoint.write import copy_checkpoint
from rl_training.config.settings import OfflineSettings
from rl_training.config.train_config import TrainConfig, config_from_dict
from rl_training.config.yaml_loading import load_yaml
from rl_training.core.checks import Note, UserError, require
from rl_training.core.d4rl import normalized_score
from rl_training.core.results import TrainResult
from rl_training.core.signals import Stopped, active_signals, deferred, interruptible, stoppable
from rl_training.data.datasets.formats.loaders import NoSuchData
from rl_training.data.datasets.memory import Dataset
from rl_training.envs.host.episode_bound import EpisodeBound
from rl_training.envs.host.factory import EnvFactory, EnvSource
from rl_training.files.atomic import replace_file, sync_tree
from rl_training.files.run_directory import RunRecord, create_run_dir
from rl_training.report.video import check_video_path
from rl_training.run import run as trainer
from rl_training.run.agent import Agent, agent_from_checkpoint, find_checkpoint, load_agent
from rl_training.run.artifacts import record_video
from rl_training.run.callbacks import Callbacks, as_callbacks
from rl_training.run.evaluate import FRESH_EPISODES, evaluate
from rl_training.run.plan import choose
from rl_training.run.start_weights import START
from rl_training.run.validate import check_agent, parse_settings

STAY_OFFLINE = "; with offline=True it stays offline"


def env_source(config: TrainConfig, env_id: str | None = None, env_factory: EnvFactory | None = None) -> EnvSource:
    """The environment a file speaks of. A module named in a file is not imported: that would run code from it."""
    if env_factory is None and env_id is None:
        if ":" in config.env_id:
            raise UserError(f"this run's environment {config.env_id!r} is in a module; name it again with env_id=...")
        if config.env_id.startswith("<"):
            raise UserError(f"this run's environment {config.env_id} came from Python; pass env_factory=...")
    return EnvSource(env_id or config.env_id, dict(config.env_kwargs), env_factory)


def evaluate_agent(
    agent: Agent,
    source: EnvSource,
    num_episodes: int | None,
    first_episode: int = FRESH_EPISODES,
    episode_limit: int | None = None,
) -> dict[str, Any]:
    """As many episodes as its config says, where none are asked for; each cut at `episode_limit` steps.

    Without that, the config's `eval_episode_limit` holds where the environment has no time limit.
    """
    bound = EpisodeBound.of(agent.config, episode_limit)
    if num_episodes is None:
        num_episodes = agent.config.eval_episodes or 5
    require(num_episodes >= 1, "num_episodes", f">= 1, got {num_episodes}")
    check_agent(agent.spec, source)
    seeds = agent.learner.seeds
    results = evaluate(agent.learner, source, seeds, num_episodes, first_episode, bound=bound)
    returns = [value for one in results for value in one.returns]
    metrics: dict[str, Any] = {
        "eval_return_mean": float(np.mean(returns)),
        "eval_return_std": float(np.std(returns)),
        "eval_episodes": len(returns),
    }
    cut = sum(one.cut for one in results)
    if cut:
        metrics["eval_episodes_cut"] = cut
        warnings.warn(f"evaluation: {bound.report(cut, len(returns))}", Note, stacklevel=2)
    score = normalized_score(source.env_id, metrics["eval_return_mean"])
    if score is not None:
        metrics["eval_d4rl_score"] = score
    if len(seeds) > 1:
        from rl_training.core.statistics import summarize

        metrics["seeds"] = {str(seed): one.mean for seed, one in zip(seeds, results, strict=True)}
        metrics["summary"] = dict(summarize([one.mean for one in results]))
    return metrics


def evaluate_checkpoint(
    path: str | Path,
    num_episodes: int | None = None,
    device: str = "auto",
    *,
    env_id: str | None = None,
    env_factory: EnvFactory | None = None,
    episode_limit: int | None = None,
) -> dict[str, Any]:
    """Fresh episodes with the greedy policy of an agent file, a checkpoint or a run's newest checkpoint."""
    agent = load_agent(path, device)
    source = env_source(agent.config, env_id, env_factory)
    return evaluate_agent(agent, source, num_episodes, episode_limit=episode_limit)


def predict_checkpoint(path: str | Path, obs: Any, deterministic: bool = True, device: str = "auto") -> Any:
    return load_agent(path, device).predict(obs, deterministic)


def record_checkpoint(
    path: str | Path,
    video: str | Path,
    episodes: int = 1,
    device: str = "auto",
    *,
    env_id: str | None = None,
    env_factory: EnvFactory | None = None,
    episode_limit: int | None = None,
) -> tuple[Path, list[float]]:
    """Film an agent file, a checkpoint or a run's newest checkpoint, as .webm, .mp4 or .gif."""
    check_video_path(Path(video))
    require(episodes >= 1, "episodes", f">= 1, got {episodes}")
    agent = load_agent(path, device)
    bound = EpisodeBound.of(agent.config, episode_limit)
    return record_video(agent, env_source(agent.config, env_id, env_factory), Path(video), episodes, bound)


@stoppable
def resume_training(
    path: str | Path,
    total_timesteps: int | None = None,
    output_dir: str | Path | None = None,
    eval_episodes: int | None = None,
    run_suffix: str | None = None,
    callbacks: Callbacks | None = None,
    *,
    env_id: str | None = None,
    env_factory: EnvFactory | None = None,
    show_progress: bool = True,
    online: bool = False,
    offline: bool = False,
    force: bool = False,
    data: Sequence[str | Path] = (),
    dataset: Dataset | None = None,
) -> TrainResult:
    """Go on from a run directory or checkpoint, in the same directory unless `output_dir` or `run_suffix` is given.

    With `online`, an offline run that is done goes on in its environment, up to `total_timesteps`; with `offline`, one
    that does so already is refused. `data` says where the files of its data set are now, `dataset` is the one of a run
    whose data set was passed in memory. With `force`, a run goes on although its data set is another now.
    """
    path, callbacks = Path(path), as_callbacks(callbacks)
    if not path.exists():
        raise UserError(f"{path}: no such run or checkpoint")
    if not path.is_dir():
        raise UserError(f"{path}: not a run or a checkpoint directory; an agent file cannot be resumed")
    path = path.resolve()
    checkpoint: Checkpoint | None = None
    if _never_saved(path):
        home, notes = path, ["cut before its first checkpoint: it starts again"]
        values = load_yaml(home / "config.yaml").values
    else:
        checkpoint, notes = find_checkpoint(path)
        home, values = checkpoint.path.parent.parent, checkpoint.state["config"]
    if not (home / "run.json").exists() and output_dir is None:
        raise UserError(f"{path}: a checkpoint away from its run; output_dir=... resumes it in a new run")
    record = RunRecord.read(home) if (home / "run.json").exists() else None
    config = config_from_dict(values, allow_module_env=True)
    step = checkpoint.step if checkpoint is not None else 0
    # The last step of several environments may go past the total: asking for the same total again is no mistake.
    if total_timesteps is not None and total_timesteps <= step - config.num_envs:
        raise UserError(f"total_timesteps must be >= {step}, the checkpoint's step, got {total_timesteps}")
    config = _changed(config, **record.asked if record else {})
    source = env_source(config, env_id, env_factory)
    if data:
        config = _with_data(config, data)
    if dataset is not None and (data or config.algo_kwargs.get("dataset_kind") != "memory"):
        raise UserError("dataset=... is for a run whose data set was passed in memory; this one's is elsewhere")
    if offline and parse_settings(config)[1].uses_environment:
        raise UserError("this run learns in its environment: it cannot resume offline (offline=True)")
    if online:
        config = _online(config, step, total_timesteps, env_id)
    config = _changed(
        config,
        total_timesteps=total_timesteps,
        output_dir=Path(output_dir) if output_dir is not None else None,
        eval_episodes=eval_episodes,
        env_id=source.env_id,
    )
    finished = record is not None and record.values["status"] == "finished" and step >= config.total_timesteps
    if checkpoint is not None and record is not None and finished:
        metrics = dict(record.values["metrics"])
        return TrainResult(home, checkpoint.path, {**metrics, "already_finished": True})
    run_dir = home
    try:
        if output_dir is not None or run_suffix is not None:
            with deferred():
                run_dir = create_run_dir(config, run_suffix)
            with interruptible():
                checkpoint = _copied(home, run_dir, config, checkpoint, record)
            if record is None:
                notes = [*notes, "a checkpoint away from its run: its rows and agents so far are not there"]
        return trainer.resume(
            checkpoint,
            config,
            run_dir,
            callbacks=callbacks,
            env_factory=env_factory,
            show_progress=show_progress,
            notes=notes,
            force=force,
            dataset=dataset,
        )
    except (UserError, Stopped) as error:
        if run_dir != home:
            _remove_unless_begun(run_dir, home, error)
        if isinstance(error, NoSuchData):
            in_memory = config.algo_kwargs.get("dataset_kind") == "memory"
            where = "a file that holds the same is named with" if in_memory else "name it where it is now with"
            raise UserError(f"{error}; {where} data=...") from error
        raise


def _changed(config: TrainConfig, **changes: Any) -> TrainConfig:
    return replace(config, **{name: value for name, value in changes.items() if value is not None})


def _with_data(config: TrainConfig, data: Sequence[str | Path]) -> TrainConfig:
    """The run with its data set elsewhere; that it is the same one is seen from its SHA-256."""
    _, settings = parse_settings(config)
    if not isinstance(settings, OfflineSettings) or settings.dataset_kind == "random":
        raise UserError("data=... is for a run whose data set is a file or an agent's; this one's is not")
    name = "dataset_agent" if settings.dataset_kind == "policy" else "dataset_path"
    paths = [settled_path(path) for path in data]
    if name == "dataset_agent" and len(paths) > 1:
        raise UserError(f"data=... must be the one agent that played this run's data set, got {len(paths)} paths")
    found = {name: paths[0] if len(paths) == 1 else paths}
    if settings.dataset_kind == "memory":  # a file may hold the same
        found["dataset_kind"] = "file"
    return replace(config, algo_kwargs={**config.algo_kwargs, **found})


def _online(config: TrainConfig, step: int, total_timesteps: int | None, env_id: str | None) -> TrainConfig:
    """An offline run that is done, with the steps beyond it in its environment; any other run as it is."""
    cls, settings = parse_settings(config)
    if not isinstance(settings, OfflineSettings) or settings.offline_steps is not None:
        return config
    if not cls.learns_online and env_id == config.env_id and ":" in env_id:
        return config  # its module had to be named again: that can have meant nothing else
    if not cls.learns_online:
        raise UserError(f"{cls.name} cannot go on online: it learns nothing from what it plays itself{STAY_OFFLINE}")
    if total_timesteps is None:
        raise UserError(f"total_timesteps must be given to go on online, above {config.total_timesteps}")
    if step < config.total_timesteps:
        raise UserError(
            f"the offline run is at update {step} of {config.total_timesteps}; "
            f"resume it to its end first (without total_timesteps=...){STAY_OFFLINE}"
        )
    return replace(config, algo_kwargs={**config.algo_kwargs, "offline_steps": step})


def _never_saved(path: Path) -> bool:
    """A run cut so early that it has its record and no checkpoint; one whose checkpoints were deleted is another."""
    if not (path / "run.json").exists() or list_checkpoints(path / "checkpoints"):
        return False
    values = RunRecord.read(path).values
    return values["status"] in ("running", "failed") or (values["status"] == "stopped" and not values["metrics"])


def _found_run(target: Path, config: TrainConfig, checkpoint: Checkpoint) -> Checkpoint:
    """A run that has nothing but a checkpoint of another: its logs start here, and so does its best agent."""
    _, settings = parse_settings(config)
    agent = agent_from_checkpoint(checkpoint)  # what was trained tells its spaces: there may be no environment
    choices = choose(config, settings, agent.spec)
    state = {
        **checkpoint.state,
        "offsets": {"metrics": 0, "evaluations": 0},
        "best": [None for _ in config.seed_list],
    }
    copy = copy_checkpoint(checkpoint, target / "checkpoints", state)
    record = RunRecord.create(target, config, choices.to_dict(), choices.promises)
    if "environment" in state:
        record.update(environment=state["environment"])
    return copy


def _copied(
    home: Path, run_dir: Path, config: TrainConfig, checkpoint: Checkpoint | None, record: RunRecord | None
) -> Checkpoint | None:
    """The checkpoint in its new run, with all that the run had."""
    try:
        if record is not None:
            return _copy_run(home, run_dir, config, checkpoint)
        return _found_run(run_dir, config, checkpoint) if checkpoint is not None else None
    except OSError as error:  # a full disk, or a run that is training and has rotated it away
        reason = error.args[0][0][2] if isinstance(error, shutil.Error) else error.strerror
        raise UserError(f"{home}: cannot be copied to {run_dir} ({reason})") from error


def _remove_unless_begun(run_dir: Path, home: Path, error: BaseException) -> None:
    """A copy that was rejected or stopped before it trained leaves nothing."""
    with deferred():
        if (run_dir / "run.json").exists() and "asked" in RunRecord.read(run_dir).values:
            return
        if isinstance(error, Stopped):
            active_signals().obeyed = True
            error.describe(f"; {home} is unchanged")
        shutil.rmtree(run_dir, ignore_errors=True)


def _copy_run(source: Path, target: Path, config: TrainConfig, checkpoint: Checkpoint | None) -> Checkpoint | None:
    """A run that goes on elsewhere takes its checkpoint, its rows up to it and its agents along; the record is last."""
    if checkpoint is not None:
        for name in ("metrics", "evaluations"):
            old = source / f"{name}.jsonl"
            if old.exists():
                (target / old.name).write_bytes(old.read_bytes()[: checkpoint.state["offsets"][name]])
        if (source / "agents").is_dir():
            shutil.copytree(source / "agents", target / "agents")
        place = target / "checkpoints" / checkpoint.path.name
        shutil.copytree(checkpoint.path, place)
        sync_tree(place.parent)  # later checkpoints link these files and count on them
        checkpoint = replace(checkpoint, path=place)
    if (source / START).exists():
        replace_file(target / START, (source / START).read_bytes())
    before = RunRecord.read(source).values
    record = RunRecord.create(target, config, before["engine"])
    kept = ("resume", "resume_note", "environment", "failed_seeds", "promises")
    record.update(**{name: before[name] for name in kept if name in before})
    return checkpoint
