"""The requests that run: which ones here, and how many each caller has in all processes that share the state.

The operator may cancel one that runs here. A cancellation takes the same path as a disconnect: the
request's task is cancelled, which closes its iterator. The client, who is still there, gets an error.

A process says its own counts of callers' requests, and learns the sums. It does so in one call for all
requests that came since the last call. Counts are said whole, never as differences: one that was lost, or
came late, is put right by the next. A process that dies has its counts forgotten (`State.count`).
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from engine.protocol import GenerationRequest
from proxy.deployment.deployment import Route
from proxy.service.peers import Answerer
from proxy.storage.shared.protocol import LEASE, State
from proxy.wire.errors import CancelledByOperator

logger = logging.getLogger("weir.proxy")

RENEWAL = LEASE / 3
"""Seconds after which all counts are said again."""
RETRY = 1.0
"""Seconds between two calls of a state that does not answer. The process's own counts then decide alone."""
LOG_INTERVAL = 60.0


class RequestFacts(NamedTuple):
    """The facts that the operator sees of a running request. They have no text of it."""

    id: str
    """The id in the request's answer."""
    endpoint: str
    model: str
    """The model's name in the configuration."""
    policy: str
    tenant: str
    key: str
    """The name of the client's key."""
    stream: bool
    started: float
    """Seconds since 1970."""

    def public(self) -> dict[str, Any]:
        return {"object": "request", **self._asdict(), "seconds": max(0.0, time.time() - self.started)}


@dataclass(slots=True, eq=False)
class RunningRequest:
    """A request from its start to its end."""

    facts: RequestFacts
    task: asyncio.Task[Any] | None
    """None: the request has ended."""
    _is_cancelled: bool = False

    def cancel(self) -> None:
        if self.task is not None and not self._is_cancelled:
            self._is_cancelled = True
            self.task.cancel()

    def raise_if_cancelled(self, error: BaseException) -> None:
        """Raise `CancelledByOperator` if that is why this error came."""
        if self._is_cancelled and isinstance(error, asyncio.CancelledError):
            self._is_cancelled = False
            assert self.task is not None
            if not self.task.uncancel():  # otherwise the client has disconnected, too
                raise CancelledByOperator from error


@dataclass(frozen=True, slots=True)
class ListRequests:
    """A question to other processes: which requests run there. The answer is an `OldestRequests`."""

    limit: int


class OldestRequests(NamedTuple):
    """The requests that began first, at most as many as were asked for."""

    oldest: list[RequestFacts]
    num_running: int
    """All that run."""


@dataclass(frozen=True, slots=True)
class CancelRequest:
    """A question to other processes: cancel a request. The answer is whether it runs there."""

    id: str


class RunningRequests:
    """All requests that run in this process."""

    def __init__(self) -> None:
        self._running: dict[str, RunningRequest] = {}
        self.answers: dict[type, Answerer] = {ListRequests: self._list, CancelRequest: self._cancel}
        """The answers of this process to the questions of its peers."""

    @contextmanager
    def running(self, route: Route, request: GenerationRequest) -> Iterator[RunningRequest]:
        """Lets the operator see and cancel the request of this task. A cancelled one raises
        `CancelledByOperator`."""
        facts = RequestFacts(
            id=request.request_id,
            endpoint=request.endpoint,
            model=route.model.name,
            policy=route.policy.name,
            tenant=route.key.tenant,
            key=route.key.name,
            stream=request.stream,
            started=time.time(),
        )
        running = self._running[facts.id] = RunningRequest(facts, asyncio.current_task())
        try:
            yield running
        except asyncio.CancelledError as error:
            running.raise_if_cancelled(error)
            raise
        finally:
            self._running.pop(facts.id, None)
            running.task = None  # the task's error refers to the frames that refer to this request

    def oldest(self, limit: int) -> OldestRequests:
        """At most `limit` requests, the oldest first."""
        found = [request.facts for request in islice(self._running.values(), limit)]
        return OldestRequests(found, len(self._running))

    def cancel(self, request_id: str) -> bool:
        """Cancel a request. Returns whether it runs here."""
        found = self._running.get(request_id)
        if found is not None:
            found.cancel()
        return found is not None

    async def _list(self, question: ListRequests) -> OldestRequests:
        return self.oldest(question.limit)

    async def _cancel(self, question: CancelRequest) -> bool:
        return self.cancel(question.id)


class RequestLimits:
    """Bounds the requests that each caller has in flight."""

    def __init__(self, limit: int, state: State | None = None, process: str = "") -> None:
        """`state`: None if no other process shares the limit. `process`: a name that no other process has."""
        self._limit = limit
        self._state = state
        self._process = process
        self._in_flight: Counter[str] = Counter()
        self._changed = asyncio.Event()
        self._unsaid: set[str] = set()
        """Callers whose count has changed."""
        self._waiting: dict[tuple[str, int], list[asyncio.Future[bool]]] = {}
        """Requests that are counted, and wait for the sums, by their caller and its limit."""
        self._answers = state is not None
        """Whether the state has answered the last call."""
        self._logged_at = -LOG_INTERVAL

    async def enter(self, caller: str, limit: int | None = None) -> bool:
        """Count a request. False if the caller has too many: the request is not counted then. `limit`: the
        caller's own, if it has one."""
        limit = limit or self._limit
        if self._in_flight[caller] >= limit:
            return False
        self._in_flight[caller] += 1
        try:
            admitted = await self._ask(caller, limit) if self._answers else True
        except BaseException:
            self.leave(caller)
            raise
        if not admitted:
            self.leave(caller)
        elif self._state is not None and not self._answers:
            self._unsaid.add(caller)  # the next call that the state answers reports the request
        return admitted

    def leave(self, caller: str) -> None:
        """A request that `enter` counted has ended."""
        self._in_flight[caller] -= 1
        if not self._in_flight[caller]:
            del self._in_flight[caller]
        if self._state is not None:
            self._unsaid.add(caller)
            self._changed.set()

    async def run(self) -> None:
        """Say the counts whenever they change. Runs until it is cancelled."""
        if self._state is None:
            return
        said_all_at = time.monotonic()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(RENEWAL):
                    await self._changed.wait()
            self._changed.clear()
            if time.monotonic() - said_all_at >= RENEWAL:
                said_all_at = time.monotonic()
                self._unsaid.update(self._in_flight)
            await self._say(self._state)

    async def aclose(self) -> None:
        """Raises `StateError`."""
        if self._state is not None:
            await self._state.forget(self._process)

    async def _ask(self, caller: str, limit: int) -> bool:
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault((caller, limit), []).append(waiter)
        self._changed.set()
        return await waiter

    async def _say(self, state: State) -> None:
        unsaid, self._unsaid = self._unsaid, set()
        waiting = self._take_waiting()
        callers = {caller for caller, _ in waiting}
        counts = {caller: self._in_flight[caller] for caller in unsaid | callers}
        try:
            sums = await state.count(self._process, counts)
        except Exception as error:  # noqa: BLE001 - whatever happened, no request waits for ever
            self._answers = False
            self._log(error)
            self._unsaid |= counts.keys()
            sums = {}
            for asked, waiters in self._take_waiting().items():  # they came meanwhile
                waiting.setdefault(asked, []).extend(waiters)
        else:
            self._answers = True
        for (caller, limit), waiters in waiting.items():
            too_many = max(0, sums.get(caller, 0) - limit)
            for place, waiter in enumerate(waiters):
                if not waiter.done():
                    waiter.set_result(place < len(waiters) - too_many)
        if not self._answers:
            await asyncio.sleep(RETRY)
            self._changed.set()

    def _take_waiting(self) -> dict[tuple[str, int], list[asyncio.Future[bool]]]:
        """Requests whose clients have disconnected are not in the counts, either."""
        waiting, self._waiting = self._waiting, {}
        return {asked: [one for one in waiters if not one.done()] for asked, waiters in waiting.items()}

    def _log(self, error: Exception) -> None:
        now = time.monotonic()
        if now - self._logged_at >= LOG_INTERVAL:
            self._logged_at = now
            reason = "the limit of a caller's requests holds for this process alone"
            logger.warning("%s: %s", error, reason)
