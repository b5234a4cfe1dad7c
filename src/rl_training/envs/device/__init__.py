"""Environments whose state is tensors on a device: batched, and stepped without a copy to the host."""
