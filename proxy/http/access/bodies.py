"""Reads the body of a request, and refuses one that is too large to be worth reading.

A JSON value costs more memory and time than its bytes. The lists, objects and other values of a body are
counted in its bytes, before anything is built of them. The entries of the JSON are counted again, before the
request is made of it.
"""

import asyncio
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import orjson
from aiohttp import web

from engine.protocol import RequestError
from engine.protocol.fields.names import ENGINE_NAMES, SCHEMAS
from proxy.http.door import Arrival
from proxy.service.receipt_keeping import body_digest
from proxy.settings.requests import BodyOptions
from proxy.wire.errors import APIError

BYTES_PER_TOKEN = 16
"""Bytes of JSON for a token of text. English needs about 5, and text in `\\u` escapes about 12."""
LEAST_BODY = 2 * 1024 * 1024
UNKNOWN_BODY = 16 * 1024 * 1024

MAX_DEPTH = 100
"""Levels of nesting in a body. A schema needs fewer, and every library that reads the body can read more."""

SMALL = 32 * 1024
"""Bytes of a body in which nothing needs to be counted, and which takes no time worth a turn of others."""
SLICE = 256 * 1024
"""Bytes that are counted at a time. Other requests are served between two slices."""

_OWN_NAMES = [pair for names in ENGINE_NAMES.values() for pair in names.items()]
_SCHEMAS = sorted(
    {"guided_decoding", *SCHEMAS} | {own.partition(".")[0] for own, name in _OWN_NAMES if name in SCHEMAS}
)
"""Fields that hold a schema, a grammar or a pattern, by each endpoint's names."""
_BESIDE = frozenset({"allOf", "anyOf", "oneOf", "not", "if", "then", "else"})
"""Keywords whose schemas apply to the same value."""


def max_body_size(options: BodyOptions, max_model_len: int | None) -> int:
    """Bytes of the longest body that is read, for a model of this length (None: not known)."""
    return options.max_body_size or _default_size(max_model_len)


@lru_cache(256)
def _default_size(max_model_len: int | None) -> int:
    return UNKNOWN_BODY if max_model_len is None else max(LEAST_BODY, BYTES_PER_TOKEN * max_model_len)


async def read_json(arrival: Arrival, options: BodyOptions, max_model_lens: Iterable[int | None]) -> Any:
    """The JSON value of the body, which is for one of the models of these lengths (None: not known). Raises
    `APIError` 400, 413 or 429."""
    limit = num_ids = 0
    for length in max_model_lens:
        limit = options.max_body_size or max(limit, _default_size(length))
        num_ids = max(num_ids, length or 0)
    limit = limit or LEAST_BODY
    if (arrival.http.content_length or 0) > limit:
        raise _too_large(limit)
    body = await read_body(arrival.http, limit) if arrival.body is None else arrival.body
    if len(body) > limit:  # a message of a socket that was opened under an earlier configuration
        raise _too_large(limit)
    arrival.count_bytes(len(body))
    if arrival.service.receipts.keeps_any:
        # Others get a turn while a thread reads a large body.
        is_large = len(body) > SLICE
        arrival.body_digest = await asyncio.to_thread(body_digest, body) if is_large else body_digest(body)
    return await parsed(body, options, num_ids)


async def parsed(body: bytes, options: BodyOptions, num_ids: int = 0) -> Any:
    """The JSON value. `num_ids`: values for token ids. Raises `APIError` 400."""
    # Brackets count also in strings. The count ends behind `MAX_DEPTH`: to count all takes ten times as long.
    num_brackets, place = 0, -1
    for bracket in (b"[", b"{"):
        while num_brackets <= MAX_DEPTH and (place := body.find(bracket, place + 1)) >= 0:
            num_brackets += 1
    has_many = num_brackets > MAX_DEPTH
    if len(body) > SMALL:
        await _check_values(body, options, num_ids, has_many=has_many)
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise APIError(400, f"The body is not valid JSON: {error}") from error
    if has_many and is_deeper(value, MAX_DEPTH):
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


async def _check_values(body: bytes, options: BodyOptions, num_ids: int, *, has_many: bool) -> None:
    """Raise `APIError` 400 for too many lists, objects or values. `num_ids`: values for token ids.
    `has_many`: whether more than `MAX_DEPTH` brackets open in the body, those in strings included."""
    max_values, max_objects = options.max_json_values + num_ids, options.max_json_objects
    if not has_many and max_objects > MAX_DEPTH and len(body) <= 2 * max_values:
        return  # each value takes two bytes or more, with its comma
    # Most bodies are within the bounds even if commas and brackets inside of strings count. Such a count is
    # fast, because it does not look for the strings.
    most_values, most_objects = 1, 1 if has_many else 1 + MAX_DEPTH
    for start in range(0, len(body), SLICE):
        end = start + SLICE
        most_values += body.count(b",", start, end)
        if has_many:
            most_objects += body.count(b"[", start, end) + body.count(b"{", start, end)
        await asyncio.sleep(0)
    if most_values <= max_values and most_objects <= max_objects:
        return
    values = objects = 1
    for commas, opened in _structure(body):
        values += commas
        objects += opened
        if objects > max_objects:
            reason = f"The body has too many objects and lists: at most {max_objects} are read."
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


def check_counts(body: Any, options: BodyOptions) -> None:
    """Raise `RequestError` for the first field with more entries than the options allow.

    A field of a wrong type is not looked at: it is refused when the request is read.
    """
    if not isinstance(body, dict):
        return
    _check(len(body), options.max_fields, "fields", None)
    num_tools = 0
    for name in ("messages", "input"):
        if isinstance(items := body.get(name), list):
            num_tools += _check_messages(items, name, options)
    for name in ("tools", "functions"):
        if isinstance(tools := body.get(name), list):
            num_tools = _check_tools(tools, name, options, num_tools)
    if not body.keys().isdisjoint(("prompt", "n", "best_of")):
        _check_prompts(body, options)
    if isinstance(system := body.get("system"), list):
        _check_messages([{"content": system}], "system", options)
    for name in ("stop", "stop_sequences"):
        stop = body.get(name)
        if isinstance(stop, list):
            _check(len(stop), options.max_stop_strings, "stop strings", name)
    bias = body.get("logit_bias")
    if isinstance(bias, dict):
        _check(len(bias), options.max_logit_bias, "entries", "logit_bias")
    if isinstance(metadata := body.get("metadata"), dict):
        _check_metadata(metadata, options)
    for name in _SCHEMAS:
        if name in body:
            _check_schema(body[name], name, options)


def _check(number: int, most: int, things: str, param: str | None) -> None:
    if number > most:
        where = f"{param}: " if param else ""
        raise RequestError(
            f"{where}there are {number} {things}, and at most {most} are taken.", param=param, code="too_long"
        )


def _check_messages(messages: list[Any], name: str, options: BodyOptions) -> int:
    """A chat's messages, or a response's items. The result of a tool may have parts of its own. Returns the
    number of tools in the items."""
    things = "messages" if name == "messages" else "items"
    _check(len(messages), options.max_messages, things, name)
    num_parts, num_tools, max_fields = 0, 0, options.max_fields
    for i, message in enumerate(messages):
        if not isinstance(message, dict):
            continue
        parts: list[Any] = []
        for field in ("content", "output", "summary", "tool_calls"):
            if isinstance(own := message.get(field), list):
                parts += own
        if parts:
            for part in parts[:]:
                if isinstance(part, dict) and isinstance(inner := part.get("content"), list):
                    parts += inner
            num_parts += len(parts)
            _check(num_parts, options.max_content_parts, "parts and tool calls", name)
        if isinstance(tools := message.get("tools"), list):
            num_tools = _check_tools(tools, f"{name}.{i}.tools", options, num_tools)
        for one in (message, *parts):
            if isinstance(one, dict) and len(one) > max_fields:
                _check(len(one), max_fields, "fields", f"{name}.{i}")
    return num_tools


def _check_tools(tools: list[Any], name: str, options: BodyOptions, num_before: int) -> int:
    """The tools of a namespace count as well, and each by itself. Returns the number of tools with the
    `num_before` elsewhere in the request."""
    num_tools = num_before + len(tools)
    _check(num_tools, options.max_tools, "tools", name)
    for i, tool in enumerate(tools):
        inner = tool.get("tools") if isinstance(tool, dict) else None
        if not isinstance(inner, list):
            _check_schema(tool, f"{name}.{i}", options)
            continue
        num_tools += len(inner)
        _check(num_tools, options.max_tools, "tools", name)
        _check_schema({**tool, "tools": None}, f"{name}.{i}", options)
        for j, one in enumerate(inner):
            _check_schema(one, f"{name}.{i}.tools.{j}", options)
    return num_tools


def _check_schema(schema: Any, param: str, options: BodyOptions) -> None:
    if isinstance(schema, dict | list | str):
        size = _json_size(schema)
        _check(size, options.max_schema_size, "bytes", param)
        most = _branches(schema)[1] if isinstance(schema, dict | list) else 0
        _check(most, options.max_schema_branches, "schemas for one value", param)


def _branches(value: Any) -> tuple[int, int]:
    """The schemas for the value that the schema `value` is for, and the most for any value within it."""
    own, most = 1, 1
    for name, part in value.items() if isinstance(value, dict) else enumerate(value):
        is_beside = name in _BESIDE
        for one in part if is_beside and isinstance(part, list) else (part,):
            number, inside = _branches(one) if isinstance(one, dict | list) else (1, 1)
            own += number if is_beside else 0
            most = max(most, inside)
    return own, max(own, most)


def _check_prompts(body: dict[str, Any], options: BodyOptions) -> None:
    prompt = body.get("prompt")
    num_prompts = 1
    if isinstance(prompt, list) and not all(type(one) is int for one in prompt):
        num_prompts = len(prompt)
        _check(num_prompts, options.max_prompts, "prompts", "prompt")
    candidates = {name: value for name in ("n", "best_of") if isinstance(value := body.get(name), int)}
    most = max(candidates, key=lambda name: candidates[name], default="n")
    param = most if num_prompts == 1 else "prompt"
    _check(num_prompts * candidates.get(most, 1), options.max_outputs, "outputs", param)


def _check_metadata(metadata: dict[str, Any], options: BodyOptions) -> None:
    _check(len(metadata), options.max_metadata, "entries", "metadata")
    for key, value in metadata.items():
        _check(len(key), options.max_metadata_key, "characters in a key", "metadata")
        size = len(value) if isinstance(value, str) else _json_size(value)
        _check(size, options.max_metadata_value, "characters in a value", "metadata")


def _json_size(value: Any) -> int:
    return len(orjson.dumps(value))
