"""D4RL's scale for returns: 0 is a random policy, 100 its expert (d4rl/infos.py; the versions of a task share it)."""

from __future__ import annotations

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
ADROIT = "adroithand"  # Gymnasium-Robotics' name for the same tasks: AdroitHandDoor-v1


DOMAINS = {
    **dict.fromkeys(("hopper", "walker2d", "halfcheetah", "ant"), "locomotion"),
    **dict.fromkeys(("pen", "hammer", "door", "relocate"), "adroit"),
    **dict.fromkeys(("kitchen", "frankakitchen"), "kitchen"),
    "antmaze": "antmaze",
}


def _task(env_id: str) -> str:
    if env_id.startswith("dm_control/"):  # its hopper is another one
        return ""
    name = env_id.rpartition("/")[2].rpartition(":")[2].split("-")[0].lower()
    return name.removeprefix(ADROIT).split("_")[0]  # AntMaze_UMaze-v5


def domain(env_id: str) -> str | None:
    """The family of D4RL's tasks that an environment belongs to, for which authors chose settings."""
    return DOMAINS.get(_task(env_id))


def normalized_score(env_id: str | None, value: float) -> float | None:
    """A return as a D4RL score; None where D4RL has no reference for the environment."""
    task = _task(env_id or "")
    if task not in REFERENCES:
        return None
    low, high = REFERENCES[task]
    return 100 * (value - low) / (high - low)
