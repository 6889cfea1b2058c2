"""Transformers models for the guard `classifier`: how they are loaded, and what they find."""
