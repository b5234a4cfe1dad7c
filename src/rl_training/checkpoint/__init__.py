"""Checkpoints: their schema, reading and writing."""
