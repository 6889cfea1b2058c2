"""Families of generative guard models: the layout of their prompts, their verdicts and their categories."""
