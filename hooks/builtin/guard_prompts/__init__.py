"""Prompts of guard models: conversations, layouts and texts that grow, as token ids."""
