"""Train, evaluate, run and resume reinforcement-learning agents.

The managed classes (`SAC`, `DQN`, …) follow from the registry of algorithms; type checkers read `__init__.pyi`.
"""

from rl_training.algorithms.registry import class_names
from rl_training.core.allocation import use_large_pages
from rl_training.core.exports import lazy_exports
from rl_training.core.numerics import pin_libraries
from rl_training.core.version import __version__

# Both before torch and numpy are imported, which read environment variables once.
use_large_pages()
pin_libraries()

# Imported on first use: `import rl_training` does not import torch.
_EXPORTS = {
    **dict.fromkeys(class_names(), "rl_training.api.algorithms"),
    "Callback": "rl_training.run.callbacks",
    **dict.fromkeys(
        ("Curriculum", "RecordVideo", "SaveAgents", "StopAtReturn", "StopWithoutImprovement"),
        "rl_training.run.ready_callbacks",
    ),
    "load_metrics": "rl_training.report.metrics_frame",
    "ManagedAlgorithm": "rl_training.api.managed",
    "TrainConfig": "rl_training.config.train_config",
    "load": "rl_training.api.algorithms",
}
__all__ = [*_EXPORTS, "__version__"]
__getattr__, __dir__ = lazy_exports(__name__, _EXPORTS)
