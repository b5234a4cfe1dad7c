"""Configs from files, from the package and from the command line, checked in full before anything is built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rl_training.core.checks import UserError, did_you_mean
from rl_training.experiment.config import TrainConfig, apply_overrides, config_from_dict
from rl_training.experiment.yaml_loading import LoadedYaml, load_yaml
from rl_training.resources import ASSETS, find_packaged_asset, packaged_configs


def load_config(path: str | Path, overrides: Sequence[str] = (), **changes: Any) -> TrainConfig:
    """A config file, or a packaged one such as `configs/dqn/cartpole.yaml` from any directory."""
    found = Path(path)
    if not found.exists():
        packaged = find_packaged_asset(path)
        if packaged is None:
            names = [str(one.relative_to(ASSETS)) for one in packaged_configs()]
            raise UserError(f"{path}: no such config{did_you_mean(str(path), names)}")
        found = packaged
    source = load_yaml(found)
    return build_config(source.values, overrides, changes, source)


def default_config(algo: str, env_id: str, overrides: Sequence[str] = (), **changes: Any) -> TrainConfig:
    """The packaged config for this algorithm and environment if there is one, else the algorithm's defaults."""
    for path in packaged_configs():
        if path.parent.name == algo:
            source = load_yaml(path)
            if source.values.get("env_id") == env_id:
                return build_config(source.values, overrides, changes, source)
    return build_config({"algo": algo, "env_id": env_id}, overrides, changes, None)


def build_config(
    values: Mapping[str, Any], overrides: Sequence[str], changes: Mapping[str, Any], source: LoadedYaml | None
) -> TrainConfig:
    merged = {**values, **{name: value for name, value in changes.items() if value is not None}}
    if changes.get("seed") is not None and changes.get("seeds") is None:
        merged.pop("seeds", None)
    merged = apply_overrides(merged, overrides)
    from_command_line = source is None or "env_id" in changes or any(text.startswith("env_id=") for text in overrides)
    config = config_from_dict(merged, source, allow_module_env=from_command_line)
    from rl_training.runtime.fitting import parse_settings  # here: it loads torch, and a wrong config is told without

    parse_settings(config, source.with_values(merged) if source else None)
    return config
