"""Web pages of other sites may do nothing through their visitors' browsers, unless the operator allows it.

A page of another site can send requests to a server that only its visitor can reach. A browser tells where a
request comes from in `Host` (a name that an attacker may have pointed at 127.0.0.1), `Origin` and
`Sec-Fetch-Site`. Other clients send no `Origin`, and nothing here concerns them.
"""

import re
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from aiohttp import hdrs, web
from aiohttp.typedefs import Middleware

from proxy.network.addresses import read_address
from proxy.settings.browser import BrowserOptions
from proxy.wire.errors import APIError, Handler

_METHODS = "GET, POST, DELETE"
_RATES = [f"{fact}-{what}" for what in ("requests", "tokens") for fact in ("limit", "remaining", "reset")]
_EXPOSED = ", ".join(
    ["X-Request-Id", "X-Weir-Ignored-Fields", "Retry-After", *(f"x-ratelimit-{rate}" for rate in _RATES)]
)
_PREFLIGHT_SECONDS = "600"
_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[^\[\]:@%/?#\s]+)(?::[0-9]*)?")
_LOCALHOST = re.compile(r"(?:[a-z0-9_-]+\.)*localhost")


def browser_middleware(options: BrowserOptions, listen_host: str) -> Middleware:
    """Refuses requests to host names that are not allowed, and requests of other sites' pages. Answers the
    preflight requests of allowed origins."""
    is_host_allowed = _host_rule(options.allowed_hosts, listen_host)

    @web.middleware
    def check(request: web.Request, handler: Handler) -> Awaitable[web.StreamResponse]:
        if not is_host_allowed(_asked_host(request)):
            raise APIError(
                421, "This host name is not served here (--allowed-hosts).", code="host_not_allowed"
            )
        if not (_may_ask(request, options.cors_origins) or _opens_the_page(request)):
            raise APIError(
                403,
                "Pages of other sites may not use this server (--cors-origin).",
                "permission_error",
                code="cross_site_request",
            )
        if _is_preflight(request):
            return _answer_preflight(request)
        return handler(request)

    return check


def cors_signal(options: BrowserOptions) -> Callable[[web.Request, web.StreamResponse], Awaitable[None]]:
    """Lets pages of allowed origins read the response. For the application's `on_response_prepare`."""

    async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
        origin = request.headers.get(hdrs.ORIGIN)
        if origin is not None and _is_listed(origin, options.cors_origins):
            response.headers[hdrs.ACCESS_CONTROL_ALLOW_ORIGIN] = origin
            response.headers[hdrs.ACCESS_CONTROL_EXPOSE_HEADERS] = _EXPOSED
            response.headers.add(hdrs.VARY, hdrs.ORIGIN)

    return add_headers


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
    """The name in a header `Host`, without its port. Empty if it is no name."""
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
    return request.headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin")


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


def _is_preflight(request: web.Request) -> bool:
    asks = {hdrs.ORIGIN, hdrs.ACCESS_CONTROL_REQUEST_METHOD} <= request.headers.keys()
    return request.method == hdrs.METH_OPTIONS and asks


async def _answer_preflight(request: web.Request) -> web.Response:
    headers = {
        hdrs.ACCESS_CONTROL_ALLOW_METHODS: _METHODS,
        hdrs.ACCESS_CONTROL_MAX_AGE: _PREFLIGHT_SECONDS,
        hdrs.ACCESS_CONTROL_ALLOW_HEADERS: request.headers.get(hdrs.ACCESS_CONTROL_REQUEST_HEADERS, ""),
        "Access-Control-Allow-Private-Network": "true",
    }
    return web.Response(status=204, headers=headers)
