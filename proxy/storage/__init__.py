"""Databases, and the operations on their tables."""
