"""Re-exports of fixed public names: the config, the algorithm specs, the manager."""
