"""Tells callers apart, and bounds the requests that each has under way.

A caller is an API key that the server accepts. On a server without keys it is an address: a key that nobody
checks could be another one in each request.
"""

import hashlib
import secrets
from collections import Counter
from typing import Annotated

from aiohttp import web
from aiohttp.typedefs import Middleware
from pydantic import BaseModel, ConfigDict, Field

from proxy.access.addresses import client_address
from proxy.access.auth import key_digest
from proxy.errors import APIError, Handler

CALLER = web.RequestKey("caller", str)
"""The caller of a request, as `GenerationRequest.caller` needs it."""

_SALT = secrets.token_bytes(16)
"""Without it, an address could be guessed from its digest."""


class CallerOptions(BaseModel):
    """The bounds of what one caller may do at once. `EngineOptions` has those of the in-process engine."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    max_requests_per_caller: Annotated[int, Field(ge=1)] = 1024
    """Requests of one caller at the same time. One more gets status 429. A caller is an API key, or on a
    server without keys an address"""


def caller_middleware(options: CallerOptions, *, has_keys: bool) -> Middleware:
    """Sets `CALLER`, and refuses a POST of a caller that has too many under way. Comes after the check of
    keys. `has_keys`: whether the server accepts only certain keys."""
    under_way: Counter[str] = Counter()

    @web.middleware
    async def bound(request: web.Request, handler: Handler) -> web.StreamResponse:
        identity = key_digest(request) if has_keys else client_address(request)
        caller = request[CALLER] = hashlib.blake2b(identity.encode(), key=_SALT, digest_size=16).hexdigest()
        if request.method != "POST":
            return await handler(request)
        if under_way[caller] >= options.max_requests_per_caller:
            raise APIError(
                429,
                "Too many requests are under way for this caller: the limit is"
                f" {options.max_requests_per_caller} (max_requests_per_caller).",
                "rate_limit_error",
                code="rate_limit_exceeded",
                retry_after=1,
            )
        under_way[caller] += 1
        try:
            return await handler(request)
        finally:
            under_way[caller] -= 1
            if not under_way[caller]:
                del under_way[caller]

    return bound
