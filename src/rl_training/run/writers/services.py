"""Weights & Biases and MLflow (extras `wandb`, `mlflow`): one run there for each seed, the same after a resume."""

from __future__ import annotations

import logging
import os
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from rl_training.config.train_config import TrainConfig
from rl_training.config.writers import MlflowOptions, WandbOptions
from rl_training.core.checks import UserError, one_line
from rl_training.run.writers.files import Row, numbers
from rl_training.run.writers.offline_segments import (
    newest_steps,
    segments,
    wait_for_new_name,
    wait_until_written,
)

KINDS = ("train/n_updates", "eval/mean_reward")  # one in each row of training, the other in each row of an evaluation
FINISH_SECONDS = 60  # for rows that are still on their way to Weights & Biases when a run ends
WRITE_SECONDS = 5  # for the file of an offline run
IN_USE_SECONDS = 20  # until the service of Weights & Biases notices that a process was killed
Ids = dict[str, str]  # by seed


class Service(Protocol):
    """A service that receives metric rows."""

    ids: Ids  # of its runs
    notice: str | None  # where they can be seen
    received: dict[int, dict[str, int]]  # by seed and kind of row: the last step that it has

    def write(self, rows: Sequence[Row]) -> None: ...

    def close(self, failed: bool) -> None: ...


def run_name(given: str | None, run_dir: Path, seed: int, seeds: Sequence[int]) -> str:
    """The name of a seed's run in a service; the directory of a run of one seed has the seed in its name."""
    name = given or run_dir.name
    return name if len(seeds) == 1 else f"{name}-seed{seed}"


# --- Weights & Biases ---------------------------------------------------------------------------------------------
def check_wandb(options: WandbOptions) -> None:
    """Reject an online run without a login, before anything is written."""
    import wandb

    if _is_offline(options):
        return
    how = "log in with `wandb login` or WANDB_API_KEY, or choose mode: offline"
    try:
        if not wandb.login(prompt=False, verify=False):
            raise UserError(f"writer wandb: not logged in; {how}")
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"writer wandb: not logged in ({one_line(error)}); {how}") from error


def _is_offline(options: WandbOptions) -> bool:
    return options.mode == "offline" or os.environ.get("WANDB_MODE") in ("offline", "disabled", "dryrun")


def _start_wandb(**options: Any) -> Any:
    """`wandb.init`; waits while its service still holds the run of a process that was killed a moment ago."""
    import wandb

    end = time.monotonic() + IN_USE_SECONDS
    while True:
        try:
            return wandb.init(**options)
        except Exception as error:
            if "is in use" not in str(error) or time.monotonic() > end:
                raise
            time.sleep(0.2)


class Wandb:
    """One run of Weights & Biases for each seed, in the group of the run directory."""

    def __init__(self, options: WandbOptions, config: TrainConfig, run_dir: Path, ids: Mapping[str, str]) -> None:
        import wandb

        seeds = config.seed_list
        self.ids = {str(seed): ids.get(str(seed)) or uuid.uuid4().hex[:12] for seed in seeds}
        self._runs: dict[int, Any] = {}
        self._run_dir, self._offline = run_dir, _is_offline(options)
        offline = {seed: newest_steps(segments(run_dir, self.ids[str(seed)]), KINDS) for seed in seeds}
        try:
            for seed in seeds:
                wait_for_new_name(run_dir, self.ids[str(seed)])
                self._runs[seed] = _start_wandb(
                    project=options.project,
                    entity=options.entity,
                    group=options.group or run_dir.name,
                    name=run_name(options.name, run_dir, seed, seeds),
                    id=self.ids[str(seed)],
                    resume="allow",
                    reinit="create_new",
                    mode="offline" if options.mode == "offline" else None,  # None: as WANDB_MODE has it, else online
                    dir=str(run_dir),
                    tags=list(config.tags),
                    config={**config.to_dict(), "seed": seed, "seeds": []},
                    settings=wandb.Settings(console="off", silent=True, finish_timeout=FINISH_SECONDS),
                )
        except Exception as error:
            self.close(failed=True)
            why = one_line(error)
            raise UserError(f"writer wandb: a run cannot be started ({why}); mode: offline needs no network") from error
        # Online there is one step for both kinds: a row at or before it would be dropped.
        self.received = {
            seed: {kind: max(run.step - 1, offline[seed][kind]) for kind in KINDS} for seed, run in self._runs.items()
        }
        self.notice = None if self._offline else f"wandb: {', '.join(run.url for run in self._runs.values())}"

    def write(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self._runs[row["seed"]].log(numbers(row), step=int(row["step"]))

    def close(self, failed: bool) -> None:
        for run in self._runs.values():
            run.finish(exit_code=int(failed))
        if self._offline:
            newest = (segments(self._run_dir, self.ids[str(seed)])[-1:] for seed in self._runs)
            wait_until_written((path for paths in newest for path in paths), WRITE_SECONDS)


# --- MLflow -------------------------------------------------------------------------------------------------------
def quiet_mlflow() -> Any:
    """The client class of MLflow, without its notices, usage reports and long retries."""
    os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")  # the default of 7 stops training for minutes
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.WARNING)
    from mlflow.tracking import MlflowClient

    return MlflowClient


def check_mlflow(options: MlflowOptions) -> None:
    """Reject a store that cannot be reached, before anything is written."""
    uri = options.tracking_uri or os.environ.get("MLFLOW_TRACKING_URI")
    if uri is None:  # a database in the output directory
        import alembic  # noqa: F401
        import sqlalchemy  # noqa: F401
    client = quiet_mlflow()
    if uri is not None:
        try:
            client(tracking_uri=uri).get_experiment_by_name(options.experiment)
        except Exception as error:
            raise UserError(f"writer mlflow: {shown_uri(uri)} cannot be used: {one_line(error)}") from error


def shown_uri(uri: str) -> str:
    """An address without its user and password."""
    return re.sub(r"//[^/@]*@", "//", uri)


class Mlflow:
    """One run of MLflow for each seed, in an experiment."""

    def __init__(self, options: MlflowOptions, config: TrainConfig, run_dir: Path, ids: Mapping[str, str]) -> None:
        own = run_dir.parent
        uri = options.tracking_uri or os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{own / 'mlflow.db'}"
        local = not (options.tracking_uri or os.environ.get("MLFLOW_TRACKING_URI"))
        try:
            self._client = quiet_mlflow()(tracking_uri=uri)
            experiment = self._experiment(options.experiment, (own / "mlflow-artifacts").as_uri() if local else None)
            self.ids = {
                str(seed): self._run(ids.get(str(seed)), experiment, options, config, run_dir, seed)
                for seed in config.seed_list
            }
            self.received = {seed: {kind: self._last_step(seed, kind) for kind in KINDS} for seed in config.seed_list}
        except Exception as error:
            raise UserError(f"writer mlflow: {shown_uri(uri)} cannot be used: {one_line(error)}") from error
        self.notice: str | None = f"mlflow: experiment {options.experiment} in {shown_uri(uri)}"

    def _experiment(self, name: str, artifacts: str | None) -> str:
        found = self._client.get_experiment_by_name(name)
        return str(found.experiment_id if found is not None else self._client.create_experiment(name, artifacts))

    def _run(
        self, run_id: str | None, experiment: str, options: MlflowOptions, config: TrainConfig, run_dir: Path, seed: int
    ) -> str:
        """The run of one seed: the given one, set to running again, or a new one with the config as parameters."""
        from mlflow.entities import Param

        if run_id is not None:
            self._client.update_run(run_id, status="RUNNING")
            return run_id
        name = run_name(options.name, run_dir, seed, config.seed_list)
        tags = {"run_dir": str(run_dir), "seed": str(seed), **{f"tag.{tag}": "true" for tag in config.tags}}
        made = str(self._client.create_run(experiment, run_name=name, tags=tags).info.run_id)
        values = {**config.to_dict(), "seed": seed, "seeds": []}
        flat = {**values, **values.pop("algo_kwargs"), **{f"env_kwargs.{k}": v for k, v in config.env_kwargs.items()}}
        params = [Param(_allowed(key), str(value)[:500]) for key, value in flat.items() if key != "env_kwargs"]
        for start in range(0, len(params), 100):  # the most that one call takes
            self._client.log_batch(made, params=params[start : start + 100])
        return made

    def _last_step(self, seed: int, name: str) -> int:
        found = self._client.get_metric_history(self.ids[str(seed)], name)
        return max((int(one.step) for one in found), default=-1)

    def write(self, rows: Sequence[Row]) -> None:
        from mlflow.entities import Metric
        from mlflow.utils.time import get_current_time_millis

        now = get_current_time_millis()  # the date of a metric, as MLflow itself gives it
        for row in rows:
            metrics = [Metric(_allowed(name), float(x), now, int(row["step"])) for name, x in numbers(row).items()]
            self._client.log_batch(self.ids[str(row["seed"])], metrics=metrics)

    def close(self, failed: bool) -> None:
        for run_id in self.ids.values():
            self._client.set_terminated(run_id, "FAILED" if failed else "FINISHED")


def _allowed(name: str) -> str:
    """A name with the characters that MLflow takes."""
    return re.sub(r"[^\w\-. :/]", "_", name)[:250]
