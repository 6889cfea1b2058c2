"""TODO"""


class StateError(Exception):
    """The shared state, or the store, does not answer, or not in time. The message holds no text of a
    caller."""
