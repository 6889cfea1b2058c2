"""API keys: `Authorization: Bearer KEY`, compared in constant time."""

import hashlib
import hmac
from collections.abc import Iterable

from aiohttp import web
from aiohttp.typedefs import Middleware

from proxy.errors import APIError, Handler

OPEN_PATHS = frozenset({"/health", "/ready"})


def auth_middleware(keys: Iterable[str]) -> Middleware:
    """Lets a request through if it carries one of `keys`, or goes to one of the open paths."""
    accepted = [key.encode() for key in keys]

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if accepted and request.path not in OPEN_PATHS:
            scheme, given = _credentials(request)
            # Every key is compared, so that the time taken does not tell which one came close.
            matches = [hmac.compare_digest(given, key) for key in accepted]
            if scheme.lower() != "bearer" or not any(matches):
                raise APIError(
                    401, "A valid API key is needed.", "authentication_error", code="invalid_api_key"
                )
        return await handler(request)

    return check


def caller(request: web.Request) -> str:
    """Who asks: a digest of the key that the request came with, whether or not keys are needed."""
    return hashlib.sha256(_credentials(request)[1]).hexdigest()


def _credentials(request: web.Request) -> tuple[str, bytes]:
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    return scheme, given.strip().encode(errors="surrogateescape")
