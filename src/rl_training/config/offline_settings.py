"""Settings of algorithms that learn from a dataset: where it comes from and how it is read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rl_training.config.fields import Condition, above, at_least, closed_interval, setting
from rl_training.config.settings import ReplaySettings
from rl_training.core.checks import require

SOURCES = {"file": "dataset_path", "policy": "dataset_agent"}  # kind -> the setting that names the source
KINDS = ("random", *SOURCES, "memory")
RECIPE = ("dataset_size", "dataset_seed", "dataset_noise")

# `memory` is set by passing a dataset, not in a file.
_is_kind = Condition("one of random, policy, file", KINDS.__contains__, options=("random", "policy", "file"))


@dataclass(frozen=True)
class OfflineSettings(ReplaySettings):
    """Settings of algorithms that learn from a dataset, and perhaps continue in an environment."""

    offline_steps: int | None = setting(None, at_least(0))  # updates before the run continues online; null: never
    online_data_share: float = setting(0.5, closed_interval(0, 1))  # online, the share of a batch from the dataset
    learning_starts: int = setting(256, at_least(0))  # online: transitions before updates continue
    normalize_observations: bool = setting(False)  # standardise them by the dataset's mean and deviation
    # null: `file` where there is a dataset_path, `policy` where there is a dataset_agent, else `random`;
    # memory: passed in Python with `dataset=`, which a resume of the run needs again
    dataset_kind: str | None = setting(None, _is_kind)
    dataset_size: int = setting(10_000, at_least(2))  # transitions to generate
    dataset_seed: int = setting(0, at_least(0))  # determines the generated transitions
    # for `file`: npz, HDF5, a Minari dataset, or a run (its replay); several are concatenated
    dataset_path: Path | tuple[Path, ...] | None = None
    dataset_agent: Path | None = None  # for `policy`: the agent file, e.g. the packaged `agents/pendulum.safetensors`
    dataset_noise: float = setting(0.0, at_least(0))  # for `policy`: noise added to the agent's actions
    # multiplies rewards; return_range: by 1000 / (the largest return of a trajectory - the smallest), as IQL's authors
    # do for locomotion
    reward_scale: float | Literal["return_range"] = setting(1.0, above(0))
    reward_shift: float = setting(0.0)  # added after scaling; AntMaze: -1
    drop_nonfinite: bool = False  # leave out rows with NaN or infinity
    clip_actions: bool = False  # actions outside the environment's bounds are clipped

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.her is None, "her", "null for an algorithm that learns from a dataset")
        require(self.dataset_seed < 2**31, "dataset_seed", f"< 2**31, got {self.dataset_seed}")
        both = self.dataset_path is not None and self.dataset_agent is not None
        require(not both, "dataset_agent", "left out where dataset_path is given: the data is a file's or an agent's")
        if self.dataset_kind is None:
            object.__setattr__(self, "dataset_kind", dataset_kind_of(self.dataset_path, self.dataset_agent) or "random")
        for kind, name in SOURCES.items():
            given = getattr(self, name) is not None
            require(given or self.dataset_kind != kind, name, f"given when dataset_kind is {kind}")
            how = f"{kind} when {name} is given (`{name}: null` takes it back)"
            require(not given or self.dataset_kind == kind, "dataset_kind", how)
        require(self.dataset_path != (), "dataset_path", "at least one path")

    @property
    def uses_environment(self) -> bool:
        return self.offline_steps is not None

    @property
    def offline_updates(self) -> int | None:
        return self.offline_steps

    @property
    def dataset_paths(self) -> tuple[Path, ...]:
        return self.dataset_path if isinstance(self.dataset_path, tuple) else (self.dataset_path,)  # type: ignore[return-value]


def dataset_kind_of(path: Any, agent: Any) -> str | None:
    """The kind of a dataset with this path or agent; None with neither."""
    return "file" if path is not None else "policy" if agent is not None else None
