"""The contract of an exported policy: a JSON file that describes its inputs and outputs, and the agent it came from."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rl_training.core.checks import UserError, shown
from rl_training.core.specs import MASK
from rl_training.core.version import __version__
from rl_training.deploy.export.policy import NEXT_STATE, STATE, Policy
from rl_training.envs.host.wrappers import parse_wrappers
from rl_training.envs.spaces import codecs_to_dict
from rl_training.envs.tensor_codecs import OBSERVATION, TensorInput, action_output
from rl_training.files.atomic import read_json, to_json

FORMAT = 1
SUFFIX = ".contract.json"
DIGEST = re.compile("[0-9a-f]{64}")


def contract_path(path: Path) -> Path:
    """The contract beside an exported file: `policy.onnx.contract.json` beside `policy.onnx`."""
    return path.with_name(path.name + SUFFIX)  # files of several formats may stand side by side


def describe_policy(policy: Policy) -> dict[str, Any]:
    """What a caller of a policy must know: inputs, outputs, and where it came from."""
    agent = policy.agent[0]
    config = agent.config.to_dict()
    kwargs = config.get("env_kwargs", {})
    states = [one for one in policy.inputs if one.name.startswith(STATE)]
    outputs = [action_output(agent.action), *(_next_state(one) for one in states)]
    return {
        "format": FORMAT,
        "algorithm": agent.config.algo,
        "environment": {"id": config["env_id"], "kwargs": kwargs},
        "library": __version__,
        "agent": {
            "sha256": agent.digest(policy.seed_index),
            "seed": agent.learner.seeds[policy.seed_index],
            "step": agent.step,
        },
        "inputs": [_described(one) for one in policy.inputs],
        "outputs": [_described(one) for one in outputs],
        "observation_order": [one.name for one in policy.inputs if one.name.partition(".")[0] == OBSERVATION],
        "frames": parse_wrappers(kwargs.get("wrappers")).frame_stack,  # the spaces do not tell
        "spaces": codecs_to_dict(agent.observation, agent.action),
        "inside": [
            *(["normalisation"] if agent.learner.normalizer is not None else []),
            "action scaling",
            *_extra(policy),
        ],
    }


def _extra(policy: Policy) -> list[str]:
    named = {MASK: any(one.name == "action_mask" for one in policy.inputs), "memory": bool(policy.states)}
    return [name for name, there in named.items() if there]


def _next_state(one: TensorInput) -> TensorInput:
    what = f"the next call's {one.name}"
    return TensorInput(NEXT_STATE + one.name.removeprefix(STATE), one.shape, one.dtype, what)


def _described(one: TensorInput) -> dict[str, Any]:
    found = {"name": one.name, "shape": ["batch", *one.shape], "dtype": one.dtype, "meaning": one.meaning}
    return found if one.low is None and one.high is None else {**found, "low": one.low, "high": one.high}


def false_entry(contract: Mapping[str, Any], policy: Policy) -> str | None:
    """The first entry of a contract that is not what it should be for this policy."""
    right = json.loads(to_json(describe_policy(policy)))  # tuples are lists in JSON
    return next((name for name in right if name != "library" and contract.get(name) != right[name]), None)


def read_contract(path: Path) -> dict[str, Any]:
    """The contract of an exported file, checked as far as `verify` needs it."""
    place = contract_path(path)
    if not place.exists():
        raise UserError(f"{place}: no such file; `rl-training export` writes it beside {path.name}")
    found = read_json(place.resolve())  # a link, as in folders of version control for data
    if not isinstance(found, dict) or not isinstance(found.get("agent"), dict):
        raise UserError(f"{place}: not a contract of an exported policy")
    if found.get("format") != FORMAT:
        raise UserError(f"{place}: format must be {FORMAT}, got {shown(found.get('format'))}")
    if not isinstance(found.get("to"), str):
        raise UserError(f"{place}: to must be a format, got {shown(found.get('to'))}")
    for name, value in (("sha256", found.get("sha256")), ("agent.sha256", found["agent"].get("sha256"))):
        if not (isinstance(value, str) and DIGEST.fullmatch(value)):
            raise UserError(f"{place}: {name} must be a digest, got {shown(value)}")
    return found
