"""Prompts of guard models: texts that grow, and chat layouts, as token ids."""
