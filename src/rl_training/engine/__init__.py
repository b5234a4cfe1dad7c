"""Losses to updates: gradients, many seeds, optimizers, compilation, CUDA graphs. Written once for every algorithm."""
