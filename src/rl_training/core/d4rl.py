"""D4RL scores: returns scaled so that a random policy has 0 and the expert 100 (d4rl/infos.py, for all versions)."""

from __future__ import annotations

import re

REFERENCES: dict[str, tuple[float, float]] = {
    "hopper": (-20.272305, 3234.3),
    "walker2d": (1.629008, 4592.3),
    "halfcheetah": (-280.178953, 12135.0),
    "ant": (-325.6, 3879.7),
    "pen": (96.262799, 3076.8331017826877),
    "hammer": (-274.856578, 12794.134825156867),
    "door": (-56.512833, 2880.5693087298737),
    "relocate": (-6.425911, 4233.877797728884),
}
# Only for D4RL's own ids: in Gymnasium-Robotics a return depends on the environment's arguments (whether AntMaze and
# PointMaze continue at the goal, how many tasks FrankaKitchen counts). Dense mazes have other references.
SPARSE_REFERENCES: dict[str, tuple[float, float]] = {
    r"antmaze-[a-z-]+-v[02]": (0.0, 1.0),
    r"kitchen-[a-z]+-v\d": (0.0, 4.0),
    r"maze2d-umaze-v1": (23.85, 161.86),
    r"maze2d-medium-v1": (13.13, 277.39),
    r"maze2d-large-v1": (6.7, 273.99),
}
ADROIT = "adroithand"  # Gymnasium-Robotics' name for the same tasks: AdroitHandDoor-v1


DOMAINS = {
    **dict.fromkeys(("hopper", "walker2d", "halfcheetah", "ant"), "locomotion"),
    **dict.fromkeys(("pen", "hammer", "door", "relocate"), "adroit"),
    **dict.fromkeys(("kitchen", "frankakitchen"), "kitchen"),
    "antmaze": "antmaze",
}


def _name(env_id: str) -> str:
    """The id without the folder of a dataset or the module of an environment."""
    return env_id.rpartition("/")[2].rpartition(":")[2]


def _task(env_id: str) -> str:
    if env_id.startswith("dm_control/"):  # its hopper is another task
        return ""
    return _name(env_id).split("-")[0].lower().removeprefix(ADROIT).split("_")[0]  # AntMaze_UMaze-v5


def domain(env_id: str) -> str | None:
    """The D4RL domain of an environment, for which papers publish settings; None if it is in none."""
    return DOMAINS.get(_task(env_id))


def reference_bounds(env_id: str | None) -> tuple[float, float] | None:
    """The returns of a random policy and of the expert; None where D4RL has no reference for the environment."""
    task, name = _task(env_id or ""), _name(env_id or "")
    sparse = (bounds for pattern, bounds in SPARSE_REFERENCES.items() if re.fullmatch(pattern, name))
    return REFERENCES.get(task) or next(sparse, None)


def normalized_score(env_id: str | None, value: float) -> float | None:
    """The D4RL score of a return; None where D4RL has no reference for the environment."""
    bounds = reference_bounds(env_id)
    return None if bounds is None else 100 * (value - bounds[0]) / (bounds[1] - bounds[0])
