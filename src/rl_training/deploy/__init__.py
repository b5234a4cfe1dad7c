"""Agents outside their runs: exported, served, shared, and imported from other libraries."""
