"""Agents of Stable-Baselines3 as agents of this library; nothing in their files is executed."""

from rl_training.deploy.sb3.importing import import_sb3

__all__ = ["import_sb3"]
