"""Hooks in their own processes: the pool, the worker, and the messages between them."""
