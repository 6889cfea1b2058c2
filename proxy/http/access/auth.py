"""API keys, found by their digests: no time shows which key was close.

A request has `Authorization: Bearer KEY`. A client of the Messages API may have `x-api-key: KEY` instead.
"""

import hashlib

from aiohttp import web

from proxy.deployment.keys import ANONYMOUS, Key, digest_of
from proxy.http.arrival import Arrival
from proxy.http.dialect import speaks_messages
from proxy.http.page.files import page_files
from proxy.network.addresses import client_address
from proxy.service.service import Service
from proxy.storage.shared.protocol import Owner
from proxy.wire.errors import APIError

OPEN_PATHS = frozenset({"/health", "/ready", *page_files()})
"""Paths that need no key. The page's files hold no data; its requests for data need one."""


def identify(arrival: Arrival, *, needs_key: bool = True) -> None:
    """Finds out who asks. Raises `APIError` 401 for a request without a key that the server accepts.
    `needs_key`: False for the operator's paths, whose caller is an address here."""
    http, service = arrival.http, arrival.service
    scheme, given = _credentials(http)
    found = find_key(service, scheme, given) if needs_key else ANONYMOUS
    if found is None:
        raise APIError(401, "A valid API key is needed.", "authentication_error", code="invalid_api_key")
    # Stored responses belong to a key, so that callers behind one address do not read each other's.
    key = _salted(service, digest_of(given))
    is_known = found is not ANONYMOUS
    arrival.key = found
    arrival.owner = Owner(key if is_known else _salted(service, client_address(http)), key)


def sender(http: web.Request, service: Service) -> Key | None:
    """The key in the request, if the server knows it now; while the server needs no keys, `ANONYMOUS`."""
    return find_key(service, *_credentials(http))


def find_key(service: Service, scheme: str, given: bytes) -> Key | None:
    if not service.needs_keys():
        return ANONYMOUS
    return service.find_key(digest_of(given)) if scheme.lower() == "bearer" else None


def _salted(service: Service, text: str) -> str:
    """Nobody guesses the text without the salt."""
    return hashlib.blake2b(text.encode(), key=service.state.salt, digest_size=16).hexdigest()


def _credentials(request: web.Request) -> tuple[str, bytes]:
    if (key := request.headers.get("x-api-key")) is not None and speaks_messages(request):
        return "Bearer", key.strip().encode(errors="surrogateescape")
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    return scheme, given.strip().encode(errors="surrogateescape")
