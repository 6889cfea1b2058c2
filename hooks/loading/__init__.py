"""Hooks from import paths: found, checked against their arguments, built, and called with a deadline."""
