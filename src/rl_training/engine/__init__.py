"""Turns losses into updates: gradients, many seeds, optimizers, compilation, CUDA graphs. Shared by all algorithms."""
