"""Pinned names that live elsewhere: the config, the registry with its functions, the manager."""
