"""The door: the one middleware, which every HTTP request passes.

It makes the request's `Arrival`, turns away other sites' pages, finds out who asks, counts the caller's
requests, and turns errors into answers. What an endpoint needs beyond that is `proxy.http.admission`.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from aiohttp import hdrs, web
from aiohttp.typedefs import Middleware

from proxy.deployment.keys import ANONYMOUS
from proxy.http.access.auth import OPEN_PATHS, identify
from proxy.http.access.browser import BrowserRule, is_preflight, preflight_answer
from proxy.http.access.callers import counted
from proxy.http.arrival import ARRIVAL, Arrival
from proxy.http.dialect import error_answer
from proxy.network.addresses import client_address
from proxy.network.connections import Connection
from proxy.network.errors import Handler
from proxy.service.service import Service


def door(service: Service, browser: BrowserRule, *, knows_keys: bool = True) -> Middleware:
    """`knows_keys`: False where only the operator asks, and its application checks that by itself."""

    @web.middleware
    async def pass_door(request: web.Request, handler: Handler) -> web.StreamResponse:
        arrival = request[ARRIVAL] = Arrival(request, service, service.deployment)
        if hdrs.ORIGIN in request.headers:
            arrival.headers = browser.headers(request)
        with arrival.logged():
            response: web.StreamResponse
            try:
                with serving(request):
                    browser.check(request)
                    if request.method == hdrs.METH_OPTIONS and is_preflight(request):
                        response = preflight_answer(request)
                    else:
                        response = await _let_in(arrival, handler)
            except Exception as error:  # noqa: BLE001 - every error is answered
                response = error_answer(request, error, arrival.decisions)
            arrival.status = response.status
            return response

    async def _let_in(arrival: Arrival, handler: Handler) -> web.StreamResponse:
        http = arrival.http
        if not knows_keys:
            return await handler(http)
        is_operators = OWN_CHECK in http.match_info.apps[-1]
        if http.path in OPEN_PATHS:
            arrival.key = ANONYMOUS
            return await handler(http)
        identify(arrival, needs_key=not is_operators)
        if http.method != "POST":
            return await handler(http)
        with nullcontext() if is_operators else service.running(arrival.deployment):
            async with counted(arrival):
                return await handler(http)

    return pass_door


OWN_CHECK = web.AppKey("own_check", bool)
"""Set in an application, inside of another one, that checks its requests itself."""


@contextmanager
def serving(http: web.Request) -> Iterator[None]:
    """Says to the request's connection where the request begins and ends. Raises `APIError` 429 for too many
    requests that a trusted forwarder passes on from one address."""
    connection = http.protocol
    assert isinstance(connection, Connection)
    connection.begin(http)
    try:
        if connection.address is not None:
            yield
            return
        with connection.connections.counted(client_address(http)):
            yield
    finally:
        connection.end()
