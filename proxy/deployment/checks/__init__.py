"""Finds the faults of settings, for `weir config check`."""
