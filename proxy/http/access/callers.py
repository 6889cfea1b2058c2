"""Tells callers apart, and bounds the requests that each has under way.

A caller is an API key that the server accepts. On a server without keys it is an address: a key that nobody
checks could be another one in each request.
"""

import hashlib
from dataclasses import dataclass

from aiohttp import web
from aiohttp.typedefs import Middleware

from proxy.deployment.keys import ANONYMOUS
from proxy.http.access.auth import KEY_RECORD, key_digest
from proxy.network.addresses import client_address
from proxy.service.request_limits import RequestLimits
from proxy.settings.callers import CallerOptions
from proxy.storage.shared.protocol import State
from proxy.wire.errors import APIError, Handler

CALLER = web.RequestKey("caller", str)
"""The caller of a request, as `GenerationRequest.caller` needs it."""

KEY = web.RequestKey("key", str)
"""A digest of the key in the request, whether or not the server needs keys."""


@dataclass(slots=True)
class _Load:
    """The requests that a caller has under way in this process."""

    options: CallerOptions
    num_requests: int = 0
    num_bytes: int = 0


_LOAD = web.RequestKey("load", _Load)
_NUM_BYTES = web.RequestKey("num_bytes", int)


def caller_middleware(options: CallerOptions, limits: RequestLimits, state: State) -> Middleware:
    """Sets `CALLER` and `KEY`, and refuses a POST of a caller that has too many under way. Comes after the
    check of keys."""

    def digest(text: str) -> str:
        """Nobody guesses the text without the salt."""
        return hashlib.blake2b(text.encode(), key=state.salt, digest_size=16).hexdigest()

    loads: dict[str, _Load] = {}

    @web.middleware
    async def bound(request: web.Request, handler: Handler) -> web.StreamResponse:
        key = key_digest(request)
        request[KEY] = digest(key)
        is_known = request[KEY_RECORD] is not ANONYMOUS
        caller = request[CALLER] = request[KEY] if is_known else digest(client_address(request))
        if request.method != "POST":
            return await handler(request)
        if not await limits.enter(caller):
            raise _too_many("requests", options.max_requests_per_caller, "max_requests_per_caller")
        load = request[_LOAD] = loads.setdefault(caller, _Load(options))
        load.num_requests += 1
        try:
            return await handler(request)
        finally:
            limits.leave(caller)
            load.num_requests -= 1
            load.num_bytes -= request.get(_NUM_BYTES, 0)
            if not load.num_requests:
                del loads[caller]

    return bound


def count_bytes(request: web.Request, size: int) -> None:
    """Count the bytes of a request's body until the request ends. Raises `APIError` 429 if its caller has too
    many under way. One body alone is never too large."""
    load = request[_LOAD]
    limit = load.options.max_body_bytes_per_caller
    if load.num_bytes and load.num_bytes + size > limit:
        raise _too_many("bytes of requests", limit, "max_body_bytes_per_caller")
    request[_NUM_BYTES] = size
    load.num_bytes += size


def _too_many(things: str, limit: int, option: str) -> APIError:
    return APIError(
        429,
        f"Too many {things} are under way for this caller: the limit is {limit} ({option}).",
        "rate_limit_error",
        code="rate_limit_exceeded",
        retry_after=1,
    )
