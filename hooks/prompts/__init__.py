"""Prompts on their way to the engine: which texts a hook sees, and what it may change."""
