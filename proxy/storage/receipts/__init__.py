"""Receipts in files: chained, signed, and verified."""
