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


def normalized_score(env_id: str | None, value: float) -> float | None:
    """A return as a D4RL score; None where D4RL has no reference for the environment."""
    task = (env_id or "").rpartition("/")[2].rpartition(":")[2].split("-")[0].lower().removeprefix(ADROIT)
    if task not in REFERENCES:
        return None
    low, high = REFERENCES[task]
    return 100 * (value - low) / (high - low)
