"""The command line. Importing it is cheap: commands import what they need when they run."""

from rl_training.cli.loading import load_config
from rl_training.cli.main import entry_point, main

__all__ = ["entry_point", "load_config", "main"]
