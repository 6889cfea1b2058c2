"""What an upstream's error means for the caller."""

import logging
import re
from collections.abc import Collection, Mapping
from typing import Any

import orjson

from engine.protocol import EngineError, QueueFullError, RequestError

_CALLERS_FAULT = (400, 404, 413, 422)
_REFUSED = (401, 403)
_FIELD = re.compile(r"\w+")

_log = logging.getLogger("weir.engine")


def upstream_error(status: int, body: Any, asked: Collection[str] = ()) -> RequestError | EngineError:
    """The error to raise for an upstream's HTTP status and error body (bytes, or JSON parsed).

    What the caller got wrong keeps the upstream's words; `unquoted` is without them, but for the field's
    name, if it is one of `asked`, those that the upstream was sent. What is the upstream's fault, or ours for
    how we call it, gets general ones, and the upstream's go to the log.
    """
    error = _error_object(body)
    message = str(error.get("message") or error.get("detail") or "")
    if status in _CALLERS_FAULT:
        refused = "The upstream engine refused the request."
        param = _string(error.get("param"))
        field = _FIELD.match(param or "")
        known = field[0] if field and field[0] in asked else None
        return RequestError(
            message or refused,
            param=param,
            code=_string(error.get("code")),
            status=status,
            unquoted=RequestError(refused, param=known, status=status),
        )
    if status == 429:
        return QueueFullError(message, unquoted=QueueFullError()) if message else QueueFullError()
    # An upstream's words, its error's type too, may quote what its model said: by default, only the status is
    # logged.
    _log.warning("upstream answered %d", status)
    _log.debug("upstream answered %d (%s): %s", status, error.get("type"), message[:500])
    if status in _REFUSED:
        return EngineError("The upstream engine refused this service's credentials.", status=502)
    if status in (503, 504):
        return EngineError("The upstream engine is not available.", status=status)
    return EngineError("The upstream engine failed.", status=502)


def stream_error(error: Any, *, begun: bool, asked: Collection[str] = ()) -> RequestError | EngineError:
    """The error to raise for one inside a stream: the caller's fault only if nothing has come before.

    General words: here an upstream's own may quote what its model said.
    """
    fields = _error_object(error)
    code = fields.get("code") or fields.get("status")
    status = code if isinstance(code, int) and not begun else 500
    words = {"error": {"type": fields.get("type"), "param": fields.get("param")}}
    return upstream_error(status, words, asked)


def _error_object(body: Any) -> Mapping[str, Any]:
    """The fields of `{"error": {...}}`, `{"error": "..."}`, `{"message": ...}`, or of no JSON at all."""
    if isinstance(body, bytes):
        try:
            body = orjson.loads(body)
        except orjson.JSONDecodeError:
            return {}
    if isinstance(body, Mapping) and "error" in body:
        body = body["error"]
    return body if isinstance(body, Mapping) else {"message": body}


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) else None
