"""Datasets for offline learning: formats, generation, from a run, preparation for training."""
