"""The command line. Importing it is fast: commands import their modules when they run."""

from rl_training.cli.loading import load_config
from rl_training.cli.main import entry_point, main

__all__ = ["entry_point", "load_config", "main"]
