"""Every error as the API's error object, with the right status (contract 4.2).

An error of the caller names the field at fault. An error of the server is logged, and the caller gets a
general message.
"""

import logging
from dataclasses import KW_ONLY, dataclass
from http import HTTPStatus
from typing import Any

import orjson
from pydantic import ValidationError

from engine.protocol import EngineError, LogitsProcessorError, QueueFullError, RequestError
from engine.protocol.prompt_size import CONTEXT_LENGTH_EXCEEDED
from hooks.decisions.failure import HookError
from proxy.settings.did_you_mean import choice_hint
from proxy.storage.query import StateError

logger = logging.getLogger("weir.proxy")


_FINAL = frozenset({400, 403, 404, 405, 413, 415, 422, 501})
"""Statuses of requests that fail again."""


@dataclass(eq=False)
class APIError(Exception):
    """An error as a client sees it. `param` names the field at fault; `retry_after` is in seconds."""

    status: int
    message: str
    type: str = "invalid_request_error"
    _: KW_ONLY
    param: str | None = None
    code: str | None = None
    retry_after: int | None = None

    def __str__(self) -> str:
        return self.message

    @property
    def is_final(self) -> bool:
        """Whether the same request fails again: the caller is at fault, or a guard failed."""
        return self.status in _FINAL or self.type == "guardrail_error"

    def body(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}

    def raw(self) -> bytes:
        """The response as bytes, for a connection without a request. The connection is to be closed."""
        body = orjson.dumps(self.body())
        retry = "" if self.retry_after is None else f"Retry-After: {self.retry_after}\r\n"
        head = (
            f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n{retry}Connection: close\r\n\r\n"
        )
        return head.encode() + body


class CancelledByOperator(APIError):
    """The operator has cancelled the request."""

    def __init__(self) -> None:
        super().__init__(
            403,
            "The operator of this server cancelled the request.",
            "permission_error",
            code="request_cancelled",
        )


def to_api_error(error: Exception) -> APIError:
    """The error that a client gets for `error`. Logs an error of the server."""
    if isinstance(error, APIError):
        return error
    if isinstance(error, StateError):
        logger.error("%s", error)
        return APIError(503, "What this request needs cannot be reached now.", "server_error", retry_after=1)
    if isinstance(error, HookError) and error.param is not None:
        return APIError(400, str(error), param=error.param, code=CONTEXT_LENGTH_EXCEEDED)
    if isinstance(error, HookError | LogitsProcessorError):
        return APIError(500, str(error), "guardrail_error")
    if isinstance(error, RequestError):
        kind = "not_found_error" if error.status == 404 else "invalid_request_error"
        return APIError(error.status, str(error), kind, param=error.param, code=error.code)
    if isinstance(error, QueueFullError):
        wait = error.retry_after
        return APIError(429, str(error), "rate_limit_error", code=error.code, retry_after=wait)
    if isinstance(error, EngineError):
        kind = "rate_limit_error" if error.status == 429 else "server_error"
        return APIError(error.status, str(error), kind, retry_after=1 if error.status in (429, 503) else None)
    if isinstance(error, ValidationError):
        return _invalid(error)
    logger.error("internal error", exc_info=error)
    return APIError(500, "The server had an error while processing the request.", "server_error")


def _invalid(error: ValidationError) -> APIError:
    first = error.errors(include_url=False)[0]
    # The location also names the members of a union by their type. A client knows only keys and indices.
    param = ".".join(str(part) for part in first["loc"] if _is_field(part)) or None
    message = first["msg"].removeprefix("Value error, ") + choice_hint(first)
    return APIError(400, f"{param}: {message}" if param else message, param=param, code=first["type"])


def _is_field(part: int | str) -> bool:
    return isinstance(part, int) or (part.replace("_", "").isalnum() and part not in _UNION_TAGS)


_UNION_TAGS = frozenset({"str", "int", "float", "bool", "constrained"})
