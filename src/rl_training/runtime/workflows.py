"""Re-exports of fixed public names from `rl_training.run.workflows` and `rl_training.run.resume`."""

from rl_training.run.resume import resume_training
from rl_training.run.workflows import evaluate_checkpoint, predict_checkpoint, record_checkpoint

__all__ = ["evaluate_checkpoint", "predict_checkpoint", "record_checkpoint", "resume_training"]
