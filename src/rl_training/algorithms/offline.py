"""What every offline algorithm's settings share: where the data comes from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rl_training.algorithms.base import Learner, OffPolicySettings
from rl_training.core.checks import require
from rl_training.core.fields import Condition, above, at_least, setting, within
from rl_training.data.minari import find_minari

SOURCES = {"file": "dataset_path", "policy": "dataset_agent"}  # kind -> the setting that names the source
KINDS = ("random", *SOURCES, "memory")
RECIPE = ("dataset_size", "dataset_seed", "dataset_noise")

# Nobody can write `memory` in a file: it comes with the data set itself.
_a_kind = Condition("one of random, policy, file", KINDS.__contains__, options=("random", "policy", "file"))


@dataclass(frozen=True)
class OfflineSettings(OffPolicySettings):
    offline_steps: int | None = setting(None, at_least(0))  # updates before the run goes on online; null: it never does
    online_data_share: float = setting(0.5, within(0, 1))  # of a batch online: so much of it is still from the data set
    learning_starts: int = setting(256, at_least(0))  # online: transitions before updates go on
    normalize_observations: bool = setting(False)  # by the mean and standard deviation of the data set
    # null: `file` where there is a dataset_path, `policy` where there is a dataset_agent, else `random`;
    # memory: passed in Python with `dataset=`, which a resume of the run needs again
    dataset_kind: str | None = setting(None, _a_kind)
    dataset_size: int = setting(10_000, at_least(2))  # transitions that a recipe makes
    dataset_seed: int = setting(0, at_least(0))
    # for `file`: npz, HDF5, a Minari set, or a run (its replay); several are one after the other
    dataset_path: Path | tuple[Path, ...] | None = None
    dataset_agent: Path | None = None  # for `policy`: who plays; `agents/pendulum.safetensors` comes with the package
    dataset_noise: float = setting(0.0, at_least(0))  # for `policy`: see `record_policy`
    # return_range: 1000 / (the largest return of a trajectory - the smallest), as IQL's authors do for locomotion
    reward_scale: float | Literal["return_range"] = setting(1.0, above(0))
    reward_shift: float = setting(0.0)  # added after scaling; AntMaze: -1
    drop_nonfinite: bool = False  # leave out rows with NaN or infinity
    clip_actions: bool = False  # actions outside the environment's bounds are clipped

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.dataset_seed < 2**31, "dataset_seed", f"< 2**31, got {self.dataset_seed}")
        both = self.dataset_path is not None and self.dataset_agent is not None
        require(not both, "dataset_agent", "left out where dataset_path is given: the data is a file's or an agent's")
        if self.dataset_kind is None:
            object.__setattr__(self, "dataset_kind", _kind_of(self.dataset_path, self.dataset_agent) or "random")
        for kind, name in SOURCES.items():
            given = getattr(self, name) is not None
            require(given or self.dataset_kind != kind, name, f"given when dataset_kind is {kind}")
            how = f"{kind} when {name} is given (`{name}: null` takes it back)"
            require(not given or self.dataset_kind == kind, "dataset_kind", how)
        require(self.dataset_path != (), "dataset_path", "at least one path")

    @property
    def dataset_paths(self) -> tuple[Path, ...]:
        return self.dataset_path if isinstance(self.dataset_path, tuple) else (self.dataset_path,)  # type: ignore[return-value]


def _kind_of(path: Any, agent: Any) -> str | None:
    return "file" if path is not None else "policy" if agent is not None else None


class OfflineLearner(Learner):
    """What every offline algorithm is, whatever it learns by."""

    offline = True

    @classmethod
    def drop_replaced(cls, given: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
        """A data set that `over` names replaces the one of `given`, with all that describes it."""
        kind = over.get("dataset_kind") or _kind_of(over.get("dataset_path"), over.get("dataset_agent"))
        named = {name for name in ("dataset_kind", *SOURCES.values()) if name in over}
        gone = {"dataset_kind"} if named else set()
        if kind is not None:
            gone |= {source for other, source in SOURCES.items() if other != kind}
        if kind == "file":
            gone |= set(RECIPE)
        return {name: value for name, value in given.items() if name not in gone}

    @classmethod
    def task_settings(cls, env_id: str, asked: Mapping[str, Any]) -> dict[str, Any]:
        """With absolute paths: a run goes on from whatever directory it is resumed in."""
        chosen = super().task_settings(env_id, asked)
        for name in ("dataset_path", "dataset_agent"):
            given = chosen.get(name)
            if isinstance(given, (list, tuple)):
                chosen[name] = [settled_path(path) for path in given]
            elif given is not None:
                chosen[name] = settled_path(given)
        return chosen


def settled_path(path: str | Path) -> str:
    """Absolute if it is there; Minari's ids and packaged agents are names, which mean the same everywhere."""
    place = Path(os.path.expanduser(path))
    try:
        found = find_minari(place) if place.is_dir() else None
        is_id = found is not None and place not in (found, found.parent)
        return str(path) if is_id or not place.exists() else str(place.absolute())
    except PermissionError:  # told when it is read
        return str(path)
