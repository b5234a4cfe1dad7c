"""The search spaces of `tune`: packaged ones, one file beside each family of algorithms, or the study's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rl_training.algorithms.registry import algorithm_names, learner_class
from rl_training.config.yaml_loading import load_yaml
from rl_training.core.assets import ASSETS
from rl_training.core.checks import UserError
from rl_training.run.validate import setting_names
from rl_training.studies.space import Dimension, parse_space

SEARCH = ASSETS / "search"


def packaged_space(algo: str) -> dict[str, Dimension]:
    """The packaged search space of an algorithm or of its parent, as far as the algorithm has the settings."""
    cls = learner_class(algo)
    names = {learner_class(name): name for name in algorithm_names()}
    for ancestor in cls.__mro__:
        path = SEARCH / f"{names.get(ancestor, '')}.yaml"
        if ancestor in names and path.exists():
            space = parse_space(load_yaml(path).values, "search")
            has = setting_names(cls)
            return {name: dimension for name, dimension in space.items() if name.partition(".")[0] in has}
    raise UserError(f"there is no packaged search space for {algo}; give one in `search`", field_name="search")


def search_space(algo: str, given: Mapping[str, Any] | None) -> dict[str, Dimension]:
    """The search space of a study: its own, where it has one, else the packaged one of its algorithm."""
    return packaged_space(algo) if given is None else parse_space(given, "search")
