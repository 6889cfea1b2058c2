"""Errors as aiohttp's responses."""

from collections.abc import Awaitable, Callable

import orjson
from aiohttp import web

from proxy.wire.errors import APIError, to_api_error

SERVER = {"Server": "Weir"}
"""The header of every answer: aiohttp would name its version, and Python's."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def api_error(error: Exception) -> APIError:
    """As `to_api_error`, for aiohttp's own errors too."""
    return _of_aiohttp(error) if isinstance(error, web.HTTPException) else to_api_error(error)


def response_of(error: APIError) -> web.Response:
    """The error in OpenAI's shape."""
    headers = {**SERVER} if error.retry_after is None else {**SERVER, "Retry-After": str(error.retry_after)}
    if error.is_final:
        headers["x-should-retry"] = "false"  # the official SDKs repeat requests that fail by 5xx, unless told
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    response = web.Response(
        status=error.status, body=orjson.dumps(error.body()), content_type="application/json", headers=headers
    )
    if error.status == 408:
        response.force_close()
    return response


def _of_aiohttp(error: web.HTTPException) -> APIError:
    if error.status == 404:
        return APIError(404, "There is no such path.", "not_found_error")
    if error.status == 405:
        return APIError(405, "This path does not take this method.")
    if error.status == 413:
        return APIError(413, "The request body is too large.")
    return APIError(error.status, error.reason)
