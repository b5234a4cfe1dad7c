"""Environments: making them, seeding every episode, translating spaces. Nothing here imports torch."""
