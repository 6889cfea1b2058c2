"""Databases, and what is kept in them."""
