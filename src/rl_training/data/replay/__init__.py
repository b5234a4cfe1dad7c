"""Replay buffers: rows and frames, uniform or prioritised."""
