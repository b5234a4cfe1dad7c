"""The files of a shared agent: its config, results, card and the list of their digests."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rl_training.config.offline_settings import SOURCES
from rl_training.config.train_config import TrainConfig
from rl_training.config.yaml_loading import dump_yaml
from rl_training.core.checks import UserError, one_line, shown
from rl_training.core.version import __version__
from rl_training.run.agent import Agent, new_run_config

AGENT, CONFIG, RESULTS, CARD, MANIFEST = (
    "agent.safetensors",
    "config.yaml",
    "results.json",
    "README.md",
    "manifest.json",
)
VIDEO = "replay.mp4"
SHARED = (AGENT, CONFIG, RESULTS, CARD, VIDEO)  # nothing else is pulled
FORMAT = 1


def shared_config(config: TrainConfig) -> TrainConfig:
    """A config without what belongs to this machine: the place of runs and the folders of datasets."""
    found = {name: config.algo_kwargs[name] for name in SOURCES.values() if name in config.algo_kwargs}
    kwargs = {**config.algo_kwargs, **{name: _without_folder(one) for name, one in found.items()}}
    return replace(new_run_config(config), output_dir=TrainConfig.output_dir, algo_kwargs=kwargs)


def _without_folder(source: Any) -> Any:
    """The last part of absolute paths; ids of datasets and names of packaged agents stay."""
    if isinstance(source, (list, tuple)):
        return [_without_folder(one) for one in source]
    return Path(source).name if source is not None and Path(source).is_absolute() else source


def config_text(agent: Agent) -> bytes:
    values = {**agent.config.to_dict()}
    return dump_yaml(values).encode()


def card_text(agent: Agent, repo: str, results: Mapping[str, Any]) -> str:
    """The card: what the agent is, how it was evaluated, and how to use it."""
    config = agent.config
    env, algo = one_line(config.env_id), config.algo
    metadata: dict[str, Any] = {
        "library_name": "rl-training",
        "tags": ["reinforcement-learning", "rl-training", algo, env],
    }
    lines = [
        f"# {algo} for {env}",
        "",
        f"An agent of rl_training {__version__}.",
    ]
    lines += ["", "| | |", "|---|---|", f"| algorithm | {algo} |", f"| environment | {env} |"]
    lines += [f"| steps of training | {agent.step} |", f"| seed | {agent.learner.seeds[0]} |"]
    if "eval_return_mean" in results:
        mean, std, count = (results[f"eval_{name}"] for name in ("return_mean", "return_std", "episodes"))
        metadata["model-index"] = [_model_index(algo, env, mean, std)]
        lines += [
            f"| return | {mean:.2f} ± {std:.2f} (standard deviation of {count} episodes) |",
            "",
            "## How it was measured",
            "",
        ]
        lines += [
            f"{count} fresh episodes with the greedy policy (`deterministic=True`), with seeds that training does not "
            f"use, in `{env}` with the settings of `{CONFIG}`, by rl_training {__version__} when the agent was pushed, "
            f"as `rl-training evaluate {AGENT}` does. All numbers: `{RESULTS}`."
        ]
    else:
        lines += ["", "It was not evaluated when it was pushed."]
    lines += [
        "",
        "## Use",
        "",
        "```",
        f"rl-training pull {repo} -o agent",
        f"rl-training evaluate agent/{AGENT}",
        "```",
        "",
    ]
    return f"---\n{dump_yaml(metadata)}---\n\n" + "\n".join(lines)


def _model_index(algo: str, env: str, mean: float, std: float) -> dict[str, Any]:
    metric = {"type": "mean_reward", "name": "mean_reward", "value": f"{mean:.2f} +/- {std:.2f}", "verified": False}
    task = {"type": "reinforcement-learning", "name": "reinforcement-learning"}
    return {"name": algo, "results": [{"task": task, "dataset": {"name": env, "type": env}, "metrics": [metric]}]}


def manifest(files: Mapping[str, bytes], agent: Agent) -> dict[str, Any]:
    """The digests of all files."""
    digests = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    return {"format": FORMAT, "library": __version__, "agent_sha256": agent.digest(), "files": digests}


def check_manifest(found: Any, repo: str) -> dict[str, str]:
    """The digests in a manifest, which is untrusted: of known files only."""
    files = found.get("files") if isinstance(found, dict) else None
    if not isinstance(files, dict) or found.get("format") != FORMAT:
        raise UserError(f"{repo}: not an agent of this library (its {MANIFEST} is not one of format {FORMAT})")
    for name, digest in files.items():
        if name not in SHARED:
            raise UserError(f"{repo}: {MANIFEST} names {shown(name)}, which is no file of an agent")
        if not isinstance(digest, str):
            raise UserError(f"{repo}: {MANIFEST} has no digest of {name}, got {shown(digest)}")
    if AGENT not in files:
        raise UserError(f"{repo}: {MANIFEST} has no {AGENT}")
    return dict(files)
