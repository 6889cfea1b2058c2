"""Translates the usual bytes of a stream: whole events that are like an earlier one."""

from collections.abc import Callable

from engine.protocol import Delta, Take
from engine.upstream.limits import Patience
from engine.upstream.request_tracker import TrackedRequest


class AlikeTranslator:
    """Translates such bytes of one answer. It can hand the deltas over to a reader's `Take`."""

    __slots__ = ("_feed", "_patience", "_tracked", "_untaken")

    def __init__(
        self, feed: Callable[[bytes], Delta | None], tracked: TrackedRequest, patience: Patience
    ) -> None:
        """`feed`: returns the delta of the next bytes, or None for bytes that are not whole events like an
        earlier one. Raises as `EventReader.feed_alike` does."""
        self._feed = feed
        self._tracked = tracked
        self._patience = patience
        self._untaken: Delta | None = None
        """The delta of the bytes that come next, if a reader did not take it."""

    def feed(self, data: bytes) -> Delta | None:
        """The delta of the next bytes. None: `EventReader.feed` has to read them. Raises `TooMuchError`."""
        delta, self._untaken = self._untaken, None
        if delta is None:
            delta = self._feed(data)
        if delta is not None:
            self._tracked.usage = delta.usage or self._tracked.usage
        return delta

    def hand_over(self, take: Take, data: bytes) -> bool:
        """Give `take` the delta of the next bytes. False: `feed` has to get the same bytes. Raises as `feed`
        does."""
        delta = self.feed(data)
        if delta is None or not take(delta):
            self._untaken = delta
            return False
        self._patience.renew()
        return True
