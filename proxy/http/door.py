"""The door: the one middleware, which every HTTP request passes.

It makes the request's `Arrival`, turns away other sites' pages, finds out who asks, counts the caller's
requests, and turns errors into answers. `proxy.http.admission` does the rest for an endpoint.
"""

from aiohttp import hdrs, web
from aiohttp.typedefs import Middleware

from proxy.http.access.browser import BrowserRule, is_preflight, preflight_answer
from proxy.http.arrival import ARRIVAL, Arrival
from proxy.http.dialect import error_answer
from proxy.http.optional import page_paths
from proxy.network.connections import Connection
from proxy.network.errors import Handler
from proxy.service.service import Service
from proxy.wire.errors import APIError

OPEN_PATHS = frozenset({"/health", "/ready", *page_paths()})
"""Paths that need no key. The page's files hold no data; its requests for data need one."""


def door(service: Service, browser: BrowserRule, *, knows_keys: bool = True) -> Middleware:
    """`knows_keys`: False where only the operator asks, and its application checks that by itself."""

    @web.middleware
    async def pass_door(request: web.Request, handler: Handler) -> web.StreamResponse:
        arrival = request[ARRIVAL] = Arrival(request, service, service.deployments.current)
        if browser.lets_pages_read:
            arrival.headers = browser.headers(request)
        with arrival.logged():
            response: web.StreamResponse
            try:
                assert isinstance(request.protocol, Connection)
                with request.protocol.serving(request) as arrival.address:
                    browser.check(request)
                    if request.method == hdrs.METH_OPTIONS and is_preflight(request):
                        response = preflight_answer(request)
                    elif knows_keys and request.path not in OPEN_PATHS:
                        is_operators = OWN_CHECK in request.match_info.apps[-1]
                        response = await arrival.let_in(handler, is_operators=is_operators)
                    else:
                        response = await handler(request)
            except Exception as error:  # noqa: BLE001 - every error is answered
                if not isinstance(error, ConnectionError):
                    arrival.status = 500  # also where the answer has been sent
                if isinstance(error, APIError) and error.status == 401:
                    arrival.refused_key = str(error)
                response = error_answer(request, error, arrival.decisions)
            arrival.status = response.status
            return response

    return pass_door


OWN_CHECK = web.AppKey("own_check", bool)
"""Set in an application, inside of another one, that checks its requests itself."""
