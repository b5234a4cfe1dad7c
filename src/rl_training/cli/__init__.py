"""The command line. Importing it is fast: commands import their modules when they run."""

from rl_training.cli.main import entry_point, main
from rl_training.run.loading import load_config

__all__ = ["entry_point", "load_config", "main"]
