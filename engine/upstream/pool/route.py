"""Which replicas one request is sent to, one after the other."""

from collections.abc import Iterable

from engine.protocol import CallerLimitError, EngineError, GenerationRequest, LogitsProcessorError
from engine.upstream.pool.replica import Attempt, Replica, all_busy
from engine.upstream.pool.routing import Routing


class Route:
    """The replicas that serve a request's model, without those that it was sent to already.

    A replica whose breaker is half-open may get the request as its trial, but only one replica may. If every
    breaker is open, one replica gets the request nevertheless: to refuse it would be worse.
    """

    def __init__(
        self, replicas: Iterable[Replica], routing: Routing, request: GenerationRequest, retries: int
    ) -> None:
        everyone = list(replicas)
        self._left = [replica for replica in everyone if replica.serves(request.model)] or everyone
        self._routing = routing
        self._keys = routing.keys(request) if len(self._left) > 1 else (0, 0)
        self._max_attempts = 1 + retries
        self._attempts: list[Attempt] = []

    def first(self) -> Attempt:
        """Raises `QueueFullError` if all replicas are full, and `EngineError` if all are draining."""
        attempt = self.next()
        if attempt is not None:
            return attempt
        if all(replica.is_draining for replica in self._left):
            raise EngineError("No upstream engine takes new requests.", status=503)
        raise all_busy()

    def next(self) -> Attempt | None:
        """None: no other replica may get the request."""
        candidates = self._candidates() if len(self._attempts) < self._max_attempts else []
        if not candidates:
            return None
        replica = candidates[0] if len(candidates) == 1 else self._routing.choose(self._keys, candidates)
        self._left.remove(replica)
        self._attempts.append(Attempt(replica))
        return self._attempts[-1]

    def has_begun(self, attempt: Attempt) -> None:
        """The attempt's first delta has come. So earlier failures were not the request's fault."""
        attempt.begin()
        for earlier in self._attempts:
            if earlier.is_suspect:
                earlier.blame()

    def _candidates(self) -> list[Replica]:
        able = [replica for replica in self._left if not replica.is_draining]
        may_try = not any(attempt.is_trial for attempt in self._attempts)
        ready = [replica for replica in able if replica.allows(trial=may_try)]
        if not ready and not self._attempts:
            ready = able
        return [replica for replica in ready if replica.has_room]


def may_retry(error: EngineError) -> bool:
    """Whether another engine may answer the request on which one engine failed."""
    return not isinstance(error, CallerLimitError | LogitsProcessorError)
