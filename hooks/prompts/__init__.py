"""Prompts before the engine: the texts that a hook sees, and the fields that it may change."""
