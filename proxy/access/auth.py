"""API keys, compared in constant time.

A request has `Authorization: Bearer KEY`. A client of the Messages API may have `x-api-key: KEY` instead.
"""

import hashlib
import hmac
from collections.abc import Iterable

from aiohttp import web
from aiohttp.typedefs import Middleware

from proxy.errors import APIError, Handler
from proxy.messages.errors import speaks_messages
from proxy.page.files import page_files

OPEN_PATHS = frozenset({"/health", "/ready", *page_files()})
"""Paths that need no key. The page's files hold no data; its requests for data need one."""

OWN_CHECK = web.AppKey("own_check", bool)
"""Set in an application, inside of another one, that checks its requests itself."""


def auth_middleware(keys: Iterable[str]) -> Middleware:
    """Accepts requests that carry one of `keys` or go to `OPEN_PATHS`. Without keys, accepts all."""
    accepted = [key.encode() for key in keys]

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if accepted and request.path not in OPEN_PATHS and OWN_CHECK not in request.match_info.apps[-1]:
            scheme, given = _credentials(request)
            # All keys are compared, so that the time does not show which key was close.
            matches = [hmac.compare_digest(given, key) for key in accepted]
            if scheme.lower() != "bearer" or not any(matches):
                raise APIError(
                    401, "A valid API key is needed.", "authentication_error", code="invalid_api_key"
                )
        return await handler(request)

    return check


def key_digest(request: web.Request) -> str:
    """A digest of the key in the request, whether or not the server needs keys. Stored responses belong to a
    key, so that callers behind one address do not read each other's."""
    return hashlib.sha256(_credentials(request)[1]).hexdigest()


def _credentials(request: web.Request) -> tuple[str, bytes]:
    if speaks_messages(request) and (key := request.headers.get("x-api-key")) is not None:
        return "Bearer", key.strip().encode(errors="surrogateescape")
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    return scheme, given.strip().encode(errors="surrogateescape")
