"""Exports agents to files that run without this library, and verifies such files later."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rl_training.core.checks import UserError, one_line
from rl_training.deploy.export import numpy_runner
from rl_training.deploy.export.check import Check, check_policy, measured_latency
from rl_training.deploy.export.contract import contract_path, describe_policy, false_entry, read_contract
from rl_training.deploy.export.formats import FORMATS, format_of
from rl_training.deploy.export.policy import Policy
from rl_training.files.atomic import read_bytes, replace_files, to_json
from rl_training.run.agent import Agent

MAX_FILE_BYTES = 2**31
RUNNER = Path(numpy_runner.__file__)


@dataclass(frozen=True)
class Exported:
    """The files of an export, and how they were checked."""

    path: Path
    contract_path: Path
    runner_path: Path | None  # of a numpy export
    contract: dict[str, Any]
    check: Check
    latency_us: dict[str, float]  # for one observation: `exported` and `predict`


def export_agent(agent: Agent, path: str | Path, to: str | None = None, seed_index: int = 0) -> Exported:
    """Export one seed's policy as `to` ("onnx", "torch" or "numpy"; default: by the suffix of `path`).

    The file is compared with the agent on at least 1,000 observations first; nothing is written if they differ.
    """
    path = Path(path)
    chosen = format_of(path, to)
    runner = path.with_name(runner_name(path)) if chosen.name == "numpy" else None
    if agent.path is not None and os.path.realpath(path) == os.path.realpath(agent.path):
        raise UserError(f"{path}: is exported and would be overwritten; choose another output")
    if runner is not None:
        _check_overwritten(runner)
    policy = Policy(agent, seed_index)
    data = chosen.pack(policy)
    try:
        run = chosen.load(data, policy)
        check = check_policy(run, policy, str(path))
    except UserError:
        raise
    except Exception as error:  # of any kind: the network may be the user's
        why = f"{type(error).__name__}: {one_line(error)}"
        raise UserError(f"{path}: the exported policy cannot be run ({why})") from error
    latency = measured_latency(run, policy)
    about = {"to": chosen.name, "file": path.name, "sha256": hashlib.sha256(data).hexdigest()}
    measured = {"checked": check.to_dict(), "latency_us": latency}
    contract = {**describe_policy(policy), **about, **measured}
    runners = {} if runner is None else {runner: RUNNER.read_bytes()}
    try:
        replace_files({path: data, **runners, contract_path(path): to_json(contract, indent=2)})
    except OSError as error:
        raise UserError(f"{path}: cannot be written ({error.strerror})") from error
    return Exported(path, contract_path(path), runner, contract, check, latency)


def runner_name(path: Path) -> str:
    """The name of the runner beside a numpy export, which can be imported: `my_policy_runner.py` of `my-policy.npz`."""
    name = re.sub(r"\W", "_", path.stem, flags=re.ASCII)
    return f"{'_' if name[:1].isdigit() else ''}{name}_runner.py"


def _check_overwritten(runner: Path) -> None:
    """Reject the path of a runner at which there is a file of the user."""
    first_line = RUNNER.read_bytes().partition(b"\n")[0]
    if runner.exists() and (not runner.is_file() or not runner.read_bytes().startswith(first_line)):
        raise UserError(f"{runner}: is no runner of this library and would be overwritten; choose another output")


@dataclass(frozen=True)
class Verified:
    """The result of `verify_export`."""

    path: Path
    problem: str | None  # why the file is not this agent's; None: it is
    check: Check | None  # None: the file was not run

    def __str__(self) -> str:
        if self.problem is not None:
            return self.problem
        if self.check is None:
            return f"{self.path}: digests equal; not run, since loading a {self.path.suffix} file can run code"
        ties = f", {self.check.ties} ties" if self.check.ties else ""
        difference = f"largest difference {self.check.max_difference:.2g}"
        return f"{self.path}: equal to the agent on {self.check.observations} observations ({difference}{ties})"


def verify_export(path: str | Path, agent: Agent, seed_index: int = 0) -> Verified:
    """Compare an exported file with an agent again; a .pt2 file by its digest alone, since loading it can run code."""
    path = Path(path)
    chosen = format_of(path)
    if not path.exists():
        raise UserError(f"{path}: no such file")
    contract, data = read_contract(path), read_bytes(path.resolve(), MAX_FILE_BYTES)
    if FORMATS.get(contract["to"]) is not chosen:
        raise UserError(f"{contract_path(path)}: is not the contract of a {chosen.suffix} file")
    digest, was = agent.digest(seed_index), contract["agent"]["sha256"]
    changed = None
    if hashlib.sha256(data).hexdigest() != contract["sha256"]:
        changed = f"{path}: the file has changed since its export (sha256)"
    elif digest != was:
        changed = f"{path}: the agent has changed since the export (sha256 {was[:12]} then, {digest[:12]} now)"
    policy = Policy(agent, seed_index)
    wrong = None if changed else false_entry(contract, policy)
    if wrong is not None:
        changed = f"{contract_path(path)}: {wrong} is not the agent's"
    if chosen.runs_code:
        return Verified(path, changed, None)
    try:
        run = chosen.load(data, policy)
    except UserError as error:
        return Verified(path, changed or f"{path}: {error}", None)
    try:
        check = check_policy(run, policy, str(path))
    except UserError as error:
        return Verified(path, changed or str(error), None)
    except Exception as error:  # a file of another agent: its inputs or outputs do not fit
        return Verified(path, changed or f"{path}: cannot be run for this agent ({type(error).__name__})", None)
    return Verified(path, changed and f"{changed}; its actions are still equal", check)
