"""A small HTTP server for the predictions of an agent."""
