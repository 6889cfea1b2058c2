"""The shared state that the options name."""

from proxy.database.connect import make_database
from proxy.database.sqlite import MEMORY
from proxy.state.options import StateOptions
from proxy.state.protocol import State
from proxy.state.sql import SQLState


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
        from proxy.state.redis import RedisState

        return RedisState(url, options)
    return SQLState(make_database(url, options.state_timeout), options)
