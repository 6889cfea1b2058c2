"""Turns: queues and threads that callers share, and requests that come together."""
