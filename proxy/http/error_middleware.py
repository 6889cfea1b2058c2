"""TODO"""

from collections.abc import Callable

from aiohttp import web
from aiohttp.typedefs import Middleware

from proxy.wire.errors import APIError, Handler, to_api_error


def error_middleware(respond: Callable[[web.Request, APIError], web.Response]) -> Middleware:
    """Answers by `respond` if a handler raises before its response has started. Afterwards it raises the
    error, and aiohttp closes the connection."""

    @web.middleware
    async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except Exception as error:
            has_begun = request.writer.output_size > 0
            if has_begun and isinstance(error, ConnectionError):
                raise  # the client is gone: no error of the server's
            told = to_api_error(error)  # it logs the server's errors
            if has_begun:
                raise
            response = respond(request, told)
            if isinstance(error, web.HTTPMethodNotAllowed):
                response.headers["Allow"] = error.headers["Allow"]
            return response

    return answer_errors
