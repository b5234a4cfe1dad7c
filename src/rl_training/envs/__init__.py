"""Environments: host environments of Gymnasium, device environments in torch, and their spaces."""
