"""JSON while it streams.

Reading it, checking it against a schema, and keeping it valid when a part is replaced.
"""
