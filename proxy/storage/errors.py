"""The error of a store that does not answer."""


class StateError(Exception):
    """The shared state, or the store, does not answer, or not in time. The message holds no text of a
    caller."""
