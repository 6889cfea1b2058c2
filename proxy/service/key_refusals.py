"""Each request that is refused for its key is a line in the log, with the client's address and never a key.

Who guesses keys sends many such requests. So the lines have bounds, and the next one says how many were left
out.
"""

import logging
import time
from collections.abc import Callable

from proxy.telemetry.logs import log_fields

logger = logging.getLogger("weir.keys")

INTERVAL = 60.0
"""Seconds."""
MAX_OF_ADDRESS = 5
"""Lines about one address in this time."""
MAX_LINES = 60
"""Lines in this time. It bounds the addresses that are remembered, too."""


class KeyRefusals:
    """Logs the refusals of one process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = -INTERVAL
        self._num_lines = 0
        self._by_address: dict[str, int] = {}
        """Lines about each address since `_began`."""
        self._num_unlogged = 0

    def report(self, address: str, path: str, reason: str) -> None:
        """`path`: the endpoint's, without what the client chose. `reason`: as the client reads it."""
        now = self._clock()
        if now - self._began >= INTERVAL:
            self._began, self._num_lines, self._by_address = now, 0, {}
        num = self._by_address.get(address, 0)
        if num >= MAX_OF_ADDRESS or self._num_lines >= MAX_LINES:
            self._num_unlogged += 1
            return
        self._num_lines += 1
        self._by_address[address] = num + 1
        unlogged, self._num_unlogged = self._num_unlogged or None, 0
        fields = {"address": address, "path": path, "reason": reason, "num_unlogged": unlogged}
        log_fields(logger, "a key is refused", fields, logging.WARNING)
