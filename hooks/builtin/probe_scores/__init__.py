"""The scores of a probe, read token by token."""
