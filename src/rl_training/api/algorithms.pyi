# Written by scripts/stubs.py from the registry of algorithms: `make stubs`.

from rl_training.api.managed import ManagedAlgorithm

class DQN(ManagedAlgorithm):
    """Deep Q-network, with switches for double, dueling, n-step, prioritised and noisy."""

class C51DQN(ManagedAlgorithm):
    """Categorical DQN (C51)."""

class QRDQN(ManagedAlgorithm):
    """Quantile-regression DQN."""

class IQN(ManagedAlgorithm):
    """Implicit quantile network."""

class RainbowDQN(ManagedAlgorithm):
    """Rainbow: C51, double, dueling, n-step, prioritised and noisy."""

class SAC(ManagedAlgorithm):
    """Soft actor-critic with a tuned or fixed temperature and any number of critics."""

class TD3(ManagedAlgorithm):
    """Twin delayed deep deterministic policy gradient."""

class TQC(ManagedAlgorithm):
    """Truncated quantile critics."""

class REDQ(ManagedAlgorithm):
    """Randomized ensembled double Q-learning, many critic updates per step."""

class DrQ(ManagedAlgorithm):
    """Data-regularized Q: SAC from pixels with random shifts."""

class DrQv2(ManagedAlgorithm):
    """DrQ-v2: deterministic actor from pixels, n-step returns, scheduled noise."""

class BC(ManagedAlgorithm):
    """Behaviour cloning."""

class IQL(ManagedAlgorithm):
    """Implicit Q-learning."""

class CQL(ManagedAlgorithm):
    """Conservative Q-learning."""

class TD3BC(ManagedAlgorithm):
    """TD3 with behaviour cloning."""

def managed_class(algo: str) -> type[ManagedAlgorithm]: ...
