"""Hooks in processes of their own: the pool, the worker, and the messages between them."""
