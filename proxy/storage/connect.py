"""The database that a URL names."""

import os

from proxy.storage.query import Database
from proxy.storage.sqlite import SQLiteDatabase


def make_database(url: str, timeout: float) -> Database:
    """Not yet started. `timeout`: seconds in which it must answer. Raises `ValueError` for a URL that cannot
    be used, and `ImportError` if it needs a library that is not installed."""
    if url.startswith("postgresql://"):
        from proxy.storage.postgres import PostgresDatabase

        return PostgresDatabase(url, timeout)
    return SQLiteDatabase(os.path.expanduser(url.removeprefix("sqlite:///")), timeout)
