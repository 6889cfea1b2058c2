"""Weir's guards and logits processors inside other servers, one file for each."""
