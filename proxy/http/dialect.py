"""Which API a client speaks, where it has its key, and errors in its shape."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import orjson
from aiohttp import web

from proxy.http.meant_path import hint_for, without_second_version
from proxy.network.errors import api_error, response_of
from proxy.telemetry.logs import REQUEST_ID
from proxy.wire.answer_decisions import AnswerDecisions
from proxy.wire.errors import APIError
from proxy.wire.messages.errors import error_body
from proxy.wire.openai.answer import new_id

PATHS = "/v1/messages"
VERSION = "anthropic-version"
"""Every client of the Messages API sends this header, whatever the path."""
_OVERLOADED = 529


class Dialect(NamedTuple):
    """The ways of clients of one API that a part of the service adds."""

    key: Callable[[Mapping[str, str]], str | None]
    """The key in a request's headers, if it is in another place than `Authorization: Bearer`."""
    error: Callable[[APIError], tuple[int, Any, Mapping[str, str]]]
    """An error's status, its body, and its headers."""


DIALECTS = web.AppKey("dialects", dict[str, Dialect])
"""By the path of the endpoint."""


def dialect_of(request: web.Request) -> Dialect | None:
    """The dialect of the endpoint, if it is none of the service's own."""
    resource = request.match_info.route.resource
    return None if resource is None else request.config_dict[DIALECTS].get(resource.canonical)


def speaks_messages(request: web.Request) -> bool:
    """Whether the client of a request reads the shapes of the Messages API."""
    path = without_second_version(request.path)  # where it is answered with a hint
    is_path = path == PATHS or path.startswith(f"{PATHS}/")
    return is_path or (request.path.startswith("/v1/models") and VERSION in request.headers)


def error_answer(
    http: web.Request, error: Exception, decisions: AnswerDecisions | None = None
) -> web.Response:
    """The answer for an error, in the shape that the client reads. `decisions`: those that led to it, if the
    answer has them. Raises the error if an answer has begun: aiohttp then closes the connection."""
    has_begun = http.writer.output_size > 0
    if has_begun and isinstance(error, ConnectionError):
        raise error  # the client is gone: no error of the server's
    failure = api_error(error)  # it logs the server's errors
    if has_begun:
        raise error
    if isinstance(error, web.HTTPNotFound):
        failure.message += hint_for(http)
    response, body = response_of(failure), failure.body()
    if speaks_messages(http):
        request_id = REQUEST_ID.get() or new_id("req", "_")
        body = error_body(body["error"], request_id, failure.status)
        if failure.status == 503:
            response.set_status(_OVERLOADED, "Overloaded")
        response.headers["request-id"] = request_id
    elif (dialect := dialect_of(http)) is not None:
        status, body, headers = dialect.error(failure)
        response.set_status(status)
        response.headers.update(headers)
    if isinstance(error, web.HTTPMethodNotAllowed):
        response.headers["Allow"] = error.headers["Allow"]
    response.body = orjson.dumps(body) if decisions is None else decisions.added_to(orjson.dumps(body))
    return response
