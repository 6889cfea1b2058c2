"""Tools for JSON in a stream.

They read JSON, check it against a schema, and keep it valid when a part is replaced.
"""
