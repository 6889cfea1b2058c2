"""The health of an upstream, as its answers and failures to get one show it. No I/O."""

import logging
import time
from collections.abc import Callable

from engine.protocol import EngineError

MEMORY = 10.0
"""Seconds for which a failure counts. Later, the upstream may work again, though no request has shown it."""

UNREACHABLE = "cannot be reached"
REFUSES_KEY = "refuses this service's key"
LACKS_MODEL = "does not list the model that it is asked for"
LISTS_NOTHING = "answers the question for its models with HTTP {status}"
_MAY_BE_THE_KEY = (400, 403, 500)
"""Statuses that some servers have for a key that is missing or wrong, as LiteLLM without its database."""

_log = logging.getLogger("weir.engine")


class UpstreamHealth:
    """`url`: names the upstream in the log. `has_key`: whether it is sent a key."""

    def __init__(
        self, url: str, clock: Callable[[], float] = time.monotonic, *, has_key: bool = False
    ) -> None:
        self._url = url
        self._key_hint = "is its key right?" if has_key else "it is sent no key: does it want one?"
        self._clock = clock
        self._failure: str | None = None
        self._failed_at = 0.0
        self._lacks_model = False
        self._listing: str | None = None
        """The fault of the upstream's list of models. None: the list came, or was not asked for."""

    @property
    def problem(self) -> str | None:
        """The fault, in Weir's own words; None: no fault is known."""
        return self._recent_failure or self._listing or (LACKS_MODEL if self._lacks_model else None)

    @property
    def _recent_failure(self) -> str | None:
        return self._failure if self._clock() < self._failed_at + MEMORY else None

    def check(self) -> None:
        """Raise `EngineError` if the upstream failed a moment ago."""
        if (failure := self._recent_failure) is not None:
            raise EngineError(f"The upstream engine {failure}.", status=503)

    def answered(self, status: int) -> None:
        """A request was answered with this HTTP status. 403 says nothing: it may be about the prompt."""
        if status == 401:
            self._set(REFUSES_KEY)
            return
        self._failure = None
        if status == 200:
            self._lacks_model = False

    def listed(self, status: int, *, lacks_model: bool = False) -> None:
        """The upstream answered the question for its models. `lacks_model`: the list has other models only.
        This fails no health check, and neither does another status: some servers have more models than they
        list, and some list none."""
        self._set(REFUSES_KEY if status == 401 else None)
        listing = None if status in (200, 401) else LISTS_NOTHING.format(status=status)
        if listing is not None and status in _MAY_BE_THE_KEY:
            listing += f" ({self._key_hint})"
        if listing is not None and listing != self._listing:
            _log.warning("upstream %s %s", self._url, listing)
        self._listing = listing
        if lacks_model and not self._lacks_model:
            _log.warning("upstream %s %s", self._url, LACKS_MODEL)
        self._lacks_model = lacks_model

    def failed(self, reason: str = UNREACHABLE) -> None:
        """No connection could be made."""
        self._set(reason)

    def _set(self, failure: str | None) -> None:
        if failure is not None and failure != self._failure:
            _log.warning("upstream %s %s", self._url, failure)
        self._failure, self._failed_at = failure, self._clock()
