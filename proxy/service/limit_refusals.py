"""Each request that a limit refuses is published as a decision, without a hook."""

import time
from collections.abc import Callable

from engine.protocol import GenerationRequest
from proxy.service.quotas import LimitError
from proxy.storage.records import Asker, DecisionRecord
from proxy.telemetry.feed import DecisionFeed

INTERVAL = 1.0
"""Seconds in which further refusals of one key by one limit are not reported. Otherwise a client that does
not wait would push the decisions of hooks out of the store."""
MAX_KNOWN = 4096
"""Keys and limits whose last report is remembered."""


class LimitRefusals:
    """Reports the refusals of one process."""

    def __init__(self, feed: DecisionFeed, clock: Callable[[], float] = time.monotonic) -> None:
        self._feed = feed
        self._clock = clock
        self._reported: dict[tuple[Asker, str], float] = {}

    def report(self, error: LimitError, asker: Asker, request: GenerationRequest) -> None:
        now, key = self._clock(), (asker, error.limit)
        if now - self._reported.get(key, -INTERVAL) < INTERVAL:
            return
        if len(self._reported) >= MAX_KNOWN:
            self._reported.clear()
        self._reported[key] = now
        self._feed.publish(DecisionRecord.of_limit(error.limit, asker, request))
