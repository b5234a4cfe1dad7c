"""A run from its config to its results: plan, validation, session, checkpoints, evaluation, artifacts."""
