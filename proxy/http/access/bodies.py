"""Reads the body of a request, and refuses one that is too large to be worth reading.

A JSON value costs more memory and time than its bytes. The lists, objects and other values of a body are
counted in its bytes, before anything is built of them.
"""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any

import orjson
from aiohttp import web

from proxy.http.access.callers import count_bytes
from proxy.http.arrival import Arrival
from proxy.settings.requests import LEAST_BODY, BodyOptions, max_body_size
from proxy.wire.errors import APIError

MAX_DEPTH = 100
"""Levels of nesting in a body. A schema needs fewer, and every library on the way can read more."""

SMALL = 32 * 1024
"""Bytes of a body in which nothing needs to be counted."""
SLICE = 256 * 1024
"""Bytes that are counted at a time. Other requests are served between two slices."""


async def read_json(arrival: Arrival, options: BodyOptions, max_model_lens: Iterable[int | None]) -> Any:
    """The JSON value of the body, which is for one of the models of these lengths (None: not known). Raises
    `APIError` 400, 413 or 429."""
    limit = num_ids = 0
    for length in max_model_lens:
        limit = max(limit, max_body_size(options, length))
        num_ids = max(num_ids, length or 0)
    limit = limit or LEAST_BODY
    http = arrival.http
    if (http.content_length or 0) > limit:
        raise _too_large(limit)
    body = await read_body(http, limit)
    count_bytes(arrival, len(body))
    if len(body) > SMALL:
        await _check_values(body, options, num_ids)
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise APIError(400, f"The body is not valid JSON: {error}") from error
    if body.count(b"[") + body.count(b"{") > MAX_DEPTH and is_deeper(value, MAX_DEPTH):
        raise APIError(400, f"The body is nested too deeply: {MAX_DEPTH} levels are read.")
    return value


async def read_body(http: web.Request, limit: int) -> bytes:
    """The body, of at most `limit` bytes. Raises `APIError` 413. aiohttp's own `read` has one limit for the
    whole application."""
    body = bytearray()
    while piece := await http.content.readany():
        body += piece
        if len(body) > limit:
            raise _too_large(limit)
    return bytes(body)


def _too_large(limit: int) -> APIError:
    return APIError(413, f"The request body is too large: at most {limit} bytes are read.", code="too_long")


async def _check_values(body: bytes, options: BodyOptions, num_ids: int) -> None:
    """Raise `APIError` 400 for too many lists, objects or values. `num_ids`: values for token ids."""
    max_values = options.max_json_values + num_ids
    values = objects = 1
    for commas, opened in _structure(body):
        values += commas
        objects += opened
        if objects > options.max_json_objects:
            reason = f"The body has too many objects and lists: at most {options.max_json_objects} are read."
            raise APIError(400, reason, code="too_long")
        if values > max_values:
            reason = f"The body has too many values: at most {max_values} are read."
            raise APIError(400, reason, code="too_long")
        await asyncio.sleep(0)


def _structure(body: bytes) -> Iterator[tuple[int, int]]:
    """The numbers of commas and of opening brackets outside of strings, slice by slice.

    The numbers are right for valid JSON. Other bodies are refused when they are parsed.
    """
    is_inside = is_escaped = False
    for start in range(0, len(body), SLICE):
        piece = body[start + is_escaped : start + SLICE].replace(b"\\\\", b"")
        is_escaped = piece.endswith(b"\\")
        parts = piece.replace(b'\\"', b"").split(b'"')
        bare = b"".join(parts[is_inside::2])
        is_inside ^= len(parts) % 2 == 0
        yield bare.count(b","), bare.count(b"[") + bare.count(b"{")


async def yield_to_event_loop(http: web.Request) -> None:
    """Serve other requests between two steps that take milliseconds for a large body."""
    if http.content_length is None or http.content_length > SMALL:
        await asyncio.sleep(0)


def is_deeper(value: Any, depth: int) -> bool:
    """Whether lists and objects are nested in more than `depth` levels."""
    level = [value] if isinstance(value, dict | list) else []
    while level and depth:
        depth -= 1
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
    return bool(level)
