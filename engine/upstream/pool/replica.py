"""One engine of a pool: what it does now, what it did, and whether it gets requests; and the attempts at one
request, each at another engine."""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextvars import Token
from dataclasses import dataclass
from functools import partial
from time import monotonic
from types import TracebackType
from typing import Self

from engine.protocol import (
    CallerLimitError,
    Engine,
    EngineError,
    GenerationRequest,
    LogitsProcessorError,
    QueueFullError,
    RequestError,
    ShutdownError,
)
from engine.protocol.flow import FeedingEngine
from engine.protocol.stats import Histogram, ReplicaOutcome, ReplicaStats
from engine.protocol.tracing import CURRENT_SPAN, NO_SPAN, Span
from engine.streams.feeding import feed
from engine.upstream.pool.breaker import Breaker
from engine.upstream.pool.routing import Candidate, Routing

FIRST_TOKEN_SECONDS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500)

Probe = Callable[[], Awaitable[bool]]
"""Asks how an engine is: True if it takes new requests, False if it only ends those that run. Raises
`EngineError` if it cannot serve."""

_log = logging.getLogger("weir.engine")


class Replica(Candidate):
    """An engine, under a name that no other replica of the pool has.

    `max_connections`: most requests at the same time (None: any number). `serves_all`: the engine gives every
    request to the same model, whatever name the caller gave. `problem`: says what is wrong with the engine.
    `address`: attributes of its spans.
    """

    def __init__(
        self,
        name: str,
        engine: Engine,
        *,
        weight: float = 1.0,
        max_connections: int | None = None,
        serves_all: bool = False,
        probe: Probe | None = None,
        problem: Callable[[], str | None] = lambda: None,
        address: Mapping[str, str | int] | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        super().__init__(name, weight)
        self.engine = engine
        self.feed = engine.feed if isinstance(engine, FeedingEngine) else partial(feed, engine)
        self.address = address or {}
        self.breaker = Breaker()
        self.is_drained = False
        """An operator wants it to get no new request."""
        self.says_drained = False
        """Its last health check answered that it takes no new request."""
        self.clock = clock
        self._probe = probe
        self._problem = problem
        self._was_well = True
        self.max_connections = max_connections
        self.serves_all = serves_all
        self._outcomes: Counter[ReplicaOutcome] = Counter()
        self._last_request_failed = False
        self._retries = 0
        self._first_token_seconds = Histogram(FIRST_TOKEN_SECONDS)

    @property
    def is_draining(self) -> bool:
        return self.is_drained or self.says_drained

    def allows(self, *, trial: bool) -> bool:
        """Whether the breaker lets a request begin. `trial`: whether the request may be a trial."""
        now = self.clock()
        return self.breaker.allows(now) and (trial or self.breaker.state(now) == "closed")

    @property
    def can_serve(self) -> bool:
        """Whether new requests get an answer, as far as anybody knows."""
        if self.is_draining or self.breaker.state(self.clock()) == "open":
            return False
        try:
            self.engine.check_health()
        except EngineError:
            return False
        return True

    @property
    def problem(self) -> str | None:
        """The engine's fault, as far as anybody knows."""
        return self._problem()

    def stats(self) -> ReplicaStats:
        return ReplicaStats(
            outstanding=self.outstanding,
            outcomes=self._outcomes,
            retries_total=self._retries,
            state="draining" if self.is_draining else self.breaker.state(self.clock()),
            first_token_seconds=self._first_token_seconds,
            problem=self.problem,
            last_request_failed=self._last_request_failed,
        )

    async def probe(self) -> bool:
        """Ask how the engine is (see `Probe`)."""
        if self._probe is not None:
            return await self._probe()
        self.engine.check_health()
        return True

    def is_well(self, *, takes_new: bool) -> None:
        """A health check was answered. If the one before failed, a request may try the replica at once."""
        self.says_drained = not takes_new
        if not self._was_well:
            self.breaker.admit_trial(self.clock())
        self._was_well = True

    def is_unwell(self) -> None:
        """A health check failed."""
        self._was_well = False
        self.fail(trial=self.breaker.state(self.clock()) == "half_open")

    def fail(self, *, trial: bool = False) -> None:
        """A request, or a health check, says that the engine does not work."""
        if self.breaker.fail(self.clock(), trial=trial):
            _log.warning("upstream %s fails, and gets no requests for a while", self.name)


def all_busy() -> QueueFullError:
    """The error of replicas that have as many requests as they may."""
    return QueueFullError("All upstream engines are busy; try again later.")


@dataclass(slots=True, eq=False)
class Attempt:
    """One request at one replica, and what its end says about the replica.

    A failure before the first delta may be the request's fault, unless the replica cannot be reached. So it
    counts against the replica only when another one answers the same request. Otherwise a caller could have
    every replica left out with one request that no engine can answer.
    """

    replica: Replica
    _earlier: Sequence["Attempt"] = ()
    """The attempts at the same request that have failed."""
    has_begun: bool = False
    """Whether the replica yielded a delta."""
    is_trial: bool = False
    """Whether the replica's breaker lets this request through to see how the replica is."""
    is_suspect: bool = False
    """Whether the replica failed, and the answer of another one may show that it was its fault."""
    limit: asyncio.Timeout | None = None
    """The time for the first delta."""
    _began: float = 0.0
    _span: Span = NO_SPAN
    _parent: Token[Span] | None = None
    """Resets the current span."""

    def __enter__(self) -> Self:
        """The code inside asks the replica. It belongs to the attempt's span."""
        replica = self.replica
        self._began = replica.clock()
        replica.outstanding += 1
        parent = CURRENT_SPAN.get()
        if parent is not NO_SPAN:
            self._span = parent.child("upstream", is_remote=True)
            self._span.set({"weir.upstream": replica.name, **replica.address})
            self._parent = CURRENT_SPAN.set(self._span)
        self.is_trial = replica.breaker.failures > 0 and replica.breaker.begin()
        return self

    def begin(self) -> None:
        """The first delta came. So earlier failures were not the request's fault."""
        replica = self.replica
        self.has_begun = True
        if self.limit is not None:
            self.limit.reschedule(None)
        replica._last_request_failed = False
        seconds = replica.clock() - self._began
        replica._first_token_seconds.observe(seconds)
        if self._span is not NO_SPAN:
            self._span.set({"gen_ai.response.time_to_first_chunk": seconds})
        if self.is_trial:
            self.is_trial = False
            replica.breaker.succeed(trial=True)
            _log.warning("upstream %s is back", replica.name)
        for earlier in self._earlier:
            if earlier.is_suspect:
                earlier.replica.fail()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._parent is not None:
            CURRENT_SPAN.reset(self._parent)
            self._span.end(error)
        replica = self.replica
        replica.outstanding -= 1
        outcome = "finished" if error is None else _outcome(error)
        replica._outcomes[outcome] += 1
        if outcome in ("finished", "refused", "failed"):  # the others say nothing about the replica
            replica._last_request_failed = outcome == "failed"
        if outcome in ("finished", "refused"):
            if replica.breaker.failures:
                replica.breaker.succeed(trial=self.is_trial)
        elif outcome != "failed" or isinstance(error, LogitsProcessorError):
            replica.breaker.leave(trial=self.is_trial)
        elif self.has_begun or self.is_trial or _is_unreachable(error):
            replica.fail(trial=self.is_trial)
        else:
            self.is_suspect = True


def attempts(
    replicas: Collection[Replica], routing: Routing, request: GenerationRequest, retries: int
) -> Iterator[Attempt]:
    """The attempts at one request, each at another replica: one, and for each that fails a next, `retries` at
    most. Only replicas that serve the request's model get it, if any does.

    A replica whose breaker is half-open may get the request as its trial, but only one replica may. If every
    breaker is open, one replica gets the request nevertheless: to refuse it would be worse.

    Raises `QueueFullError` instead of a first attempt if all replicas are full, and `EngineError` if all are
    draining.
    """
    left = []
    for replica in replicas:
        names = replica.engine.info.names
        if not names or replica.serves_all or request.model in names:
            left.append(replica)
    left = left or list(replicas)
    keys = routing.keys(request) if len(left) > 1 else (0, 0)
    tried: tuple[Attempt, ...] = ()
    while len(tried) <= retries:
        may_try = True
        for attempt in tried:
            may_try = may_try and not attempt.is_trial
        with_room, ready = [], []
        is_any_able = is_any_ready = False
        for replica in left:
            if replica.is_drained or replica.says_drained:
                continue
            is_ready = not replica.breaker.failures or replica.allows(trial=may_try)
            is_any_able, is_any_ready = True, is_any_ready or is_ready
            if replica.max_connections is None or replica.outstanding < replica.max_connections:
                with_room.append(replica)
                if is_ready:
                    ready.append(replica)
        candidates = ready if is_any_ready or tried else with_room
        if not candidates:
            break
        chosen = candidates[0] if len(candidates) == 1 else routing.choose(keys, candidates)
        left.remove(chosen)
        if tried:
            tried[-1].replica._retries += 1
        tried += (Attempt(chosen, tried),)
        yield tried[-1]
    if not tried:
        raise all_busy() if is_any_able else EngineError("No upstream engine takes new requests.", status=503)


def may_retry(error: EngineError) -> bool:
    """Whether another engine may answer the request on which one engine failed."""
    return not isinstance(error, CallerLimitError | LogitsProcessorError)


def _outcome(error: BaseException) -> ReplicaOutcome:
    match error:
        case GeneratorExit() | asyncio.CancelledError():
            return "closed"
        case RequestError():
            return "refused"
        case QueueFullError():
            return "full"
        case ShutdownError():
            return "shutdown"
    return "failed"


def _is_unreachable(error: BaseException | None) -> bool:
    return isinstance(error, EngineError) and error.status == 503
