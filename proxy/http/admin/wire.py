"""The parts that the operator's requests and answers share."""

from datetime import UTC, datetime
from typing import Any, TypeVar

import orjson
from aiohttp import web
from pydantic import BaseModel

from proxy.http.access.bodies import read_body
from proxy.service.operator.operator_store import OperatorStore
from proxy.service.service import SERVICE
from proxy.wire.errors import APIError

MAX_BODY = 64 * 1024
"""Bytes of a request's body."""


def operator_store(http: web.Request) -> OperatorStore:
    """The service's store. The operator's API and the store are left out together."""
    operator = http.config_dict[SERVICE].operator
    assert isinstance(operator, OperatorStore)
    return operator


Fields = TypeVar("Fields", bound=BaseModel)


async def read(http: web.Request, fields: type[Fields]) -> Fields:
    """The body. Raises `APIError` 400, 413 or 415, and `ValidationError`."""
    if http.content_type != "application/json":
        raise APIError(415, "The body must be JSON, with the header Content-Type: application/json.")
    try:
        value = orjson.loads(await read_body(http, MAX_BODY))
    except orjson.JSONDecodeError:
        raise APIError(400, "The body is not valid JSON.") from None
    return fields.model_validate(value)


def answer(body: dict[str, Any], status: int = 200) -> web.Response:
    # No cache may keep a key or a caller's text.
    headers = {"Cache-Control": "no-store"}
    return web.Response(
        body=orjson.dumps(body), status=status, content_type="application/json", headers=headers
    )


def listing(data: list[dict[str, Any]], **more: Any) -> web.Response:
    return answer({"object": "list", "data": data, **more})


def number(http: web.Request, name: str, default: int, most: int) -> int:
    """A number in the query. Raises `APIError` 400 for one that is not between 1 and `most`."""
    text = http.query.get(name, str(default))
    if not (text.isascii() and text.isdecimal() and len(text) <= 20 and 1 <= int(text) <= most):
        raise APIError(400, f"{name}: a number from 1 to {most} is needed.", param=name)
    return int(text)


def moment(http: web.Request, name: str) -> float | None:
    """A time in the query, as seconds since 1970. Raises `APIError` 400."""
    text = http.query.get(name)
    if text is None:
        return None
    try:
        seconds = _seconds(text)
    except (ValueError, OverflowError):
        seconds = -1.0
    if not 0 <= seconds < 1e10:
        reason = "a time is needed: seconds since 1970, or ISO 8601 as 2026-11-28T12:00:00Z"
        raise APIError(400, f"{name}: {reason}.", param=name)
    return seconds


def _seconds(text: str) -> float:
    """A time without a zone is UTC. Raises `ValueError`."""
    if "-" not in text[1:] or "e-" in text.lower():
        return float(text)
    # A plus sign in a URL is a space.
    moment = datetime.fromisoformat(text.replace(" ", "+") if "T" in text else text)
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
