"""Reads the body of a request, and refuses one that is too large to be worth reading.

A JSON value costs more memory and time than its bytes. The lists, objects and other values of a body are
counted in its bytes, before anything is built of them.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import orjson
from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field

from proxy.access.callers import count_bytes
from proxy.errors import APIError

MAX_DEPTH = 100
"""Levels of nesting in a body. A schema needs fewer, and every library on the way can read more."""

SMALL = 32 * 1024
"""Bytes of a body in which nothing needs to be counted."""
SLICE = 256 * 1024
"""Bytes that are counted at a time. Other requests are served between two slices."""

BYTES_PER_TOKEN = 16
"""Bytes of JSON for a token of text. English needs about 5, and text in `\\u` escapes about 12."""
LEAST_BODY = 2 * 1024 * 1024
UNKNOWN_BODY = 16 * 1024 * 1024

AtLeastOne = Annotated[int, Field(ge=1)]
NotNegative = Annotated[int, Field(ge=0)]


class BodyOptions(BaseModel):
    """The bounds of a request's body. A body beyond one of them is refused with the field's name."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    max_body_size: AtLeastOne | None = None
    """Longest request body, in bytes (default: 16 for each token that the model can take, but at least 2 MiB;
    16 MiB if the model's length is not known)"""
    max_json_values: AtLeastOne = 131_072
    """Values in a body, beside one token id for each token that the model can take"""
    max_json_objects: AtLeastOne = 16_384
    """Objects and lists in a body"""
    max_fields: AtLeastOne = 256
    """Fields of a body, and of one message, part, item or tool"""
    max_messages: AtLeastOne = 2048
    """Messages of a chat, and items of a response's conversation"""
    max_content_parts: AtLeastOne = 2048
    """Parts and tool calls of all messages of a chat, or of all items of an input"""
    max_tools: NotNegative = 256
    """Tools of a request"""
    max_prompts: AtLeastOne = 1024
    """Prompts of a completion"""
    max_outputs: AtLeastOne = 4096
    """Outputs of a request: its prompts times n or best_of"""
    max_stop_strings: NotNegative = 32
    """Stop strings of a request"""
    max_logit_bias: NotNegative = 1024
    """Entries of logit_bias"""
    max_metadata: NotNegative = 16
    """Entries of metadata"""
    max_metadata_key: AtLeastOne = 64
    """Characters of a key of metadata"""
    max_metadata_value: AtLeastOne = 512
    """Characters of a value of metadata, or bytes of its JSON if it is no text"""
    max_schema_size: AtLeastOne = 128 * 1024
    """Bytes of one tool, and of a schema or a grammar that an answer must follow"""
    max_schema_branches: AtLeastOne = 100
    """Schemas for one value in a schema of a request: entries of anyOf, oneOf and allOf, and those in them"""


def max_body_size(options: BodyOptions, max_model_len: int | None) -> int:
    """Bytes of the longest body that is read, for a model of this length (None: not known)."""
    if options.max_body_size is not None:
        return options.max_body_size
    if max_model_len is None:
        return UNKNOWN_BODY
    return max(LEAST_BODY, BYTES_PER_TOKEN * max_model_len)


async def read_json(http: web.Request, options: BodyOptions, max_model_lens: Sequence[int | None]) -> Any:
    """The JSON value of the body, which is for one of the models of these lengths (None: not known). Raises
    `APIError` 400, 413 or 429."""
    limit = max([max_body_size(options, length) for length in max_model_lens], default=LEAST_BODY)
    if (http.content_length or 0) > limit:
        raise _too_large(limit)
    body = await read_body(http, limit)
    count_bytes(http, len(body))
    await _check_values(body, options, max([length or 0 for length in max_model_lens], default=0))
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
    if len(body) <= SMALL:
        return
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


async def let_others_in(http: web.Request) -> None:
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
