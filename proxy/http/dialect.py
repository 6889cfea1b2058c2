"""TODO"""

import orjson
from aiohttp import web

from proxy.http.in_answer import ANSWER_DECISIONS
from proxy.telemetry.logs import REQUEST_ID
from proxy.wire.errors import APIError
from proxy.wire.messages.errors import error_body
from proxy.wire.openai.answer import new_id

PATHS = "/v1/messages"
VERSION = "anthropic-version"
"""Every client of the Messages API sends this header, whatever the path."""
_OVERLOADED = 529


def speaks_messages(request: web.Request) -> bool:
    """Whether the client of a request reads the shapes of the Messages API."""
    is_path = request.path == PATHS or request.path.startswith(f"{PATHS}/")
    return is_path or (request.path.startswith("/v1/models") and VERSION in request.headers)


def error_response(request: web.Request, error: APIError) -> web.Response:
    """The response for an error, in the shape that the request's client reads."""
    response, body = error.response(), error.body()
    if speaks_messages(request):
        request_id = REQUEST_ID.get() or new_id("req", "_")
        body = error_body(body["error"], request_id, error.status)
        if error.status == 503:
            response.set_status(_OVERLOADED, "Overloaded")
        response.headers["request-id"] = request_id
    told = request.get(ANSWER_DECISIONS)
    response.body = orjson.dumps(body) if told is None else told.added_to(orjson.dumps(body))
    return response
