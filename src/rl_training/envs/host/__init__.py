"""Gymnasium environments in host memory: in this process or in worker processes."""
