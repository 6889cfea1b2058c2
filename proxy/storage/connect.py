"""The database, and the shared state, that a URL names."""

import os

from proxy.settings.storage import StateOptions
from proxy.storage.query import Database
from proxy.storage.shared.protocol import State
from proxy.storage.shared.sql import SQLState
from proxy.storage.sqlite import MEMORY, SQLiteDatabase


def make_database(url: str, timeout: float) -> Database:
    """Not yet started. `timeout`: seconds in which it must answer. Raises `ValueError` for a URL that cannot
    be used, and `ImportError` if it needs a library that is not installed."""
    if url.startswith("postgresql://"):
        from proxy.storage.postgres import PostgresDatabase

        return PostgresDatabase(url, timeout)
    return SQLiteDatabase(os.path.expanduser(url.removeprefix("sqlite:///")), timeout)


def make_state(options: StateOptions) -> State:
    """Not yet started. Raises `ValueError` for a URL that cannot be used, and `ImportError` if it needs a
    library that is not installed."""
    url = MEMORY if options.state is None else options.state.get_secret_value()
    try:
        return _make(url, options)
    except ValueError:  # its message may have a part of the URL, and the URL a password
        raise ValueError("state: this URL cannot be used") from None


def _make(url: str, options: StateOptions) -> State:
    if url.startswith(("redis://", "rediss://")):
        from proxy.storage.shared.redis import RedisState

        return RedisState(url, options)
    return SQLState(make_database(url, options.state_timeout), options)
