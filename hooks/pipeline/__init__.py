"""The configured hooks, and the guard that runs them on one request's streams.

Verdicts, release, rewind, decisions.
"""
