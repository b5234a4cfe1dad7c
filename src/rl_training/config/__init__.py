"""Typed fields, YAML, the config of a run and the settings of algorithms."""
