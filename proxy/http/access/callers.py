"""Bounds what each caller does at once.

A caller is an API key that the server accepts. On a server without keys it is an address: a key that nobody
checks could be another one in each request.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from proxy.http.arrival import Arrival
from proxy.wire.errors import APIError


@asynccontextmanager
async def counted(arrival: Arrival) -> AsyncIterator[None]:
    """Counts the request of a caller, to its end. Raises `APIError` 429 if the caller has too many."""
    service, caller = arrival.service, arrival.owner.caller
    if not await service.limits.enter(caller):
        raise _too_many("requests", f"{service.settings.max_requests_per_caller} (max_requests_per_caller)")
    try:
        yield
    finally:
        service.limits.leave(caller)
        service.body_bytes[caller] -= arrival.num_bytes
        if not service.body_bytes[caller]:
            del service.body_bytes[caller]


def count_bytes(arrival: Arrival, size: int) -> None:
    """Count the bytes of a request's body until the request ends. Raises `APIError` 429 if its caller has too
    many in this process. One body alone is never too large."""
    others, limit = arrival.service.body_bytes, arrival.service.settings.max_body_bytes_per_caller
    if others[arrival.owner.caller] and others[arrival.owner.caller] + size > limit:
        raise _too_many("bytes of requests", str(limit))
    arrival.num_bytes = size
    others[arrival.owner.caller] += size


def _too_many(things: str, limit: str) -> APIError:
    return APIError(
        429,
        f"Too many {things} are in flight for this caller: the limit is {limit}.",
        "rate_limit_error",
        code="rate_limit_exceeded",
        retry_after=1,
    )
