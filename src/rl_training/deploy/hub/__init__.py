"""Agents on the Hugging Face Hub: pushed with their results, pulled without executing anything."""

from rl_training.deploy.hub.sharing import pull_agent, push_agent

__all__ = ["pull_agent", "push_agent"]
