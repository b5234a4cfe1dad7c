"""The loops, and the session that owns a run."""
