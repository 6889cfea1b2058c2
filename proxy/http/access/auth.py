"""API keys, found by their digests: no time shows which key was close.

A request has `Authorization: Bearer KEY`. A client of the Messages API may have `x-api-key: KEY` instead.
"""

from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.typedefs import Middleware

from proxy.deployment.keys import ANONYMOUS, Key, digest_of
from proxy.http.dialect import speaks_messages
from proxy.http.page.files import page_files
from proxy.wire.errors import APIError, Handler

OPEN_PATHS = frozenset({"/health", "/ready", *page_files()})
"""Paths that need no key. The page's files hold no data; its requests for data need one."""

OWN_CHECK = web.AppKey("own_check", bool)
"""Set in an application, inside of another one, that checks its requests itself."""

KEY_RECORD = web.RequestKey("key_record", Key)
"""Who asks. On a server without keys, and on `OPEN_PATHS`: `ANONYMOUS`."""


def auth_middleware(find: Callable[[str], Key | None], needs_keys: Callable[[], bool]) -> Middleware:
    """Sets `KEY_RECORD`. Accepts requests to `OPEN_PATHS`, and those whose key `find` knows by its digest;
    while the server needs no keys, all."""

    @web.middleware
    def check(request: web.Request, handler: Handler) -> Awaitable[web.StreamResponse]:
        if request.path in OPEN_PATHS or OWN_CHECK in request.match_info.apps[-1]:
            request[KEY_RECORD] = ANONYMOUS
        else:
            authenticate(request, find, needs_keys)
        return handler(request)

    return check


def authenticate(
    request: web.Request, find: Callable[[str], Key | None], needs_keys: Callable[[], bool]
) -> None:
    """Sets `KEY_RECORD` to the key as `find` knows it now. Raises `APIError` 401."""
    key = sender(request, find, needs_keys)
    if key is None:
        raise APIError(401, "A valid API key is needed.", "authentication_error", code="invalid_api_key")
    request[KEY_RECORD] = key


def sender(
    request: web.Request, find: Callable[[str], Key | None], needs_keys: Callable[[], bool]
) -> Key | None:
    """The key in the request, if `find` knows it now; while the server needs no keys, `ANONYMOUS`."""
    if not needs_keys():
        return ANONYMOUS
    scheme, given = _credentials(request)
    return find(digest_of(given)) if scheme.lower() == "bearer" else None


def key_digest(request: web.Request) -> str:
    """A digest of the key in the request, whether or not the server needs keys. Stored responses belong to a
    key, so that callers behind one address do not read each other's."""
    return digest_of(_credentials(request)[1])


def _credentials(request: web.Request) -> tuple[str, bytes]:
    if speaks_messages(request) and (key := request.headers.get("x-api-key")) is not None:
        return "Bearer", key.strip().encode(errors="surrogateescape")
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    return scheme, given.strip().encode(errors="surrogateescape")
