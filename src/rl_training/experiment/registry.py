"""Re-exports of fixed public names from `rl_training.run.algorithm_spec`."""

from rl_training.run.algorithm_spec import AlgorithmSpec, get_algorithm_spec, list_algorithm_specs

__all__ = ["AlgorithmSpec", "get_algorithm_spec", "list_algorithm_specs"]
