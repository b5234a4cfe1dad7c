"""Names that callers import from here; they live in `rl_training.core.assets`."""

from rl_training.core.assets import find_packaged_asset

__all__ = ["find_packaged_asset"]
