"""The requests that run in this process, and how the operator cancels one.

A cancellation takes the same way as a client that leaves: the request's task is cancelled, which closes its
iterator. The client, who is still there, gets an error.
"""

import asyncio
import time
from dataclasses import dataclass
from itertools import islice
from types import TracebackType
from typing import Any, NamedTuple, Self

from proxy.service.peers import Answerer
from proxy.wire.errors import CancelledByOperator


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
    """A request from its start to its end. An asynchronous context manager, for the request's task."""

    facts: RequestFacts
    _all: dict[str, "RunningRequest"]
    """All that run."""
    _is_cancelled: bool = False
    _task: asyncio.Task[Any] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.current_task()
        self._all[self.facts.id] = self
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._all.pop(self.facts.id, None)
        try:
            if error is not None:
                self.raise_if_cancelled(error)
        finally:
            self._task = None  # the task's error refers to the frames that refer to this request

    def cancel(self) -> None:
        if self._task is not None and not self._is_cancelled:
            self._is_cancelled = True
            self._task.cancel()

    def raise_if_cancelled(self, error: BaseException) -> None:
        """Raise `CancelledByOperator` if that is why this error came."""
        if self._is_cancelled and isinstance(error, asyncio.CancelledError):
            self._is_cancelled = False
            assert self._task is not None
            if not self._task.uncancel():  # otherwise the client has left, too
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
        """The answers of this process to the others' questions."""

    def begin(self, facts: RequestFacts) -> RunningRequest:
        """The request, to be entered by its task."""
        return RunningRequest(facts, self._running)

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
