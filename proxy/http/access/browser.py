"""Web pages of other sites may do nothing through their visitors' browsers, unless the operator allows it.

A page of another site can send requests to a server that only its visitor can reach. A browser names the
origin of a request in `Host` (a name that an attacker may have pointed at 127.0.0.1), `Origin` and
`Sec-Fetch-Site`. Other clients send no `Origin`, and nothing here concerns them.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from urllib.parse import urlsplit

from aiohttp import hdrs, web

from proxy.network.addresses import read_address
from proxy.settings.network import BrowserOptions
from proxy.wire.errors import APIError

_METHODS = "GET, POST, DELETE"
_RATES = [f"{fact}-{what}" for what in ("requests", "tokens") for fact in ("limit", "remaining", "reset")]
_EXPOSED = ", ".join(
    [
        "X-Request-Id",
        "X-Weir-Ignored-Fields",
        "X-Weir-Guards",
        "Retry-After",
        *(f"x-ratelimit-{rate}" for rate in _RATES),
    ]
)
_PREFLIGHT_SECONDS = "600"
_SITE = "Sec-Fetch-Site"
_HOSTS_KEPT = 256
"""Hosts of requests that are remembered with their answer: those that were asked last."""
_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[^\[\]:@%/?#\s]+)(?::[0-9]*)?")
_LOCALHOST = re.compile(r"(?:[a-z0-9_-]+\.)*localhost")


class BrowserRule:
    """The requests that web pages may send to this server."""

    def __init__(self, options: BrowserOptions, listen_host: str) -> None:
        self._origins = options.cors_origins
        self.lets_pages_read = bool(self._origins)
        """Whether pages of some other origins may read responses, which then depend on the origin."""
        self._is_host_allowed = lru_cache(_HOSTS_KEPT)(_host_rule(options.allowed_hosts, listen_host))

    def check(self, http: web.Request) -> None:
        """Raise `APIError` for a host name that is not allowed, and for a request of another site's page."""
        if not self._is_host_allowed(_asked_host(http)):
            raise APIError(
                421, "This host name is not served here (--allowed-hosts).", code="host_not_allowed"
            )
        is_browser = hdrs.ORIGIN in http.headers or _SITE in http.headers
        if is_browser and not (_may_ask(http, self._origins) or _opens_the_page(http)):
            raise APIError(
                403,
                "Pages of other sites may not use this server (--cors-origin).",
                "permission_error",
                code="cross_site_request",
            )

    def headers(self, http: web.Request) -> dict[str, str]:
        """The headers that let a page of an allowed origin read the response."""
        origin = http.headers.get(hdrs.ORIGIN)
        if origin is None or not _is_listed(origin, self._origins):
            return {hdrs.VARY: hdrs.ORIGIN}
        return {
            hdrs.ACCESS_CONTROL_ALLOW_ORIGIN: origin,
            hdrs.ACCESS_CONTROL_EXPOSE_HEADERS: _EXPOSED,
            hdrs.VARY: hdrs.ORIGIN,
        }


def is_loopback(host: str) -> bool:
    """Whether `host` names this machine, as seen from itself."""
    name = host.rstrip(".").lower()
    address = read_address(name)
    return bool(_LOCALHOST.fullmatch(name) or (address and address.is_loopback))


def asked_loopback(request: web.Request) -> bool:
    """Whether the request is for a name of this machine, as seen from itself."""
    host = _asked_host(request)
    return host is not None and is_loopback(_host_name(host))


def is_of_own_page(request: web.Request) -> bool:
    """Whether the request comes from no other site's page, whichever origins are allowed."""
    return _may_ask(request, [])


def _host_rule(allowed: list[str], listen_host: str) -> Callable[[str | None], bool]:
    names = {name.rstrip(".").lower() for name in allowed}
    if "*" in names or not (names or is_loopback(listen_host)):
        return lambda host: True
    # A browser always sends the header.
    return lambda host: host is None or is_loopback(name := _host_name(host)) or name in names


def _host_name(host: str) -> str:
    """The name in a header `Host`, without its port. Empty if the header does not hold a name."""
    form = _HOST.fullmatch(host.strip())
    return form["name"].rstrip(".").lower() if form else ""


def _asked_host(request: web.Request) -> str | None:
    """The host that the request is for, perhaps with a port. If the target is a whole URL, its host counts,
    and not the header `Host` (RFC 9112, 3.2.2)."""
    url = request._message.url
    return url.raw_authority if url.absolute else request.headers.get(hdrs.HOST)


def _may_ask(request: web.Request, origins: list[str]) -> bool:
    origin = request.headers.get(hdrs.ORIGIN)
    if origin is not None:
        return _is_listed(origin, origins) or _is_own(origin, _asked_host(request))
    return request.headers.get(_SITE, "none") in ("none", "same-origin")


def _opens_the_page(request: web.Request) -> bool:
    """Whether the browser follows a link to `/`. The page there holds no data, and no frame may hold it."""
    asked = tuple(request.headers.get(f"Sec-Fetch-{name}") for name in ("Mode", "Dest"))
    return request.method == hdrs.METH_GET and request.path == "/" and asked == ("navigate", "document")


def _is_listed(origin: str, origins: list[str]) -> bool:
    return origin in origins or "*" in origins


def _is_own(origin: str, host: str | None) -> bool:
    """The scheme is not compared: a reverse proxy may have ended TLS."""
    try:
        return host is not None and urlsplit(origin).netloc.lower() == host.strip().lower()
    except ValueError:
        return False


def is_preflight(request: web.Request) -> bool:
    """Whether a browser asks, by an `OPTIONS` request, which requests a page may send."""
    return {hdrs.ORIGIN, hdrs.ACCESS_CONTROL_REQUEST_METHOD} <= request.headers.keys()


def preflight_answer(request: web.Request) -> web.Response:
    headers = {
        hdrs.ACCESS_CONTROL_ALLOW_METHODS: _METHODS,
        hdrs.ACCESS_CONTROL_MAX_AGE: _PREFLIGHT_SECONDS,
        hdrs.ACCESS_CONTROL_ALLOW_HEADERS: request.headers.get(hdrs.ACCESS_CONTROL_REQUEST_HEADERS, ""),
        "Access-Control-Allow-Private-Network": "true",
    }
    return web.Response(status=204, headers=headers)
