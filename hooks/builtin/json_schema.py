"""JSON that keeps to a schema, answers' or tool calls': `json_schema`, with `args: {tools: true}`.

The stream ends before the first character after which no valid document can follow. Nothing is held: what is
written so far may always become one.
"""

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import orjson

from hooks import Chunk, Verdict, checked, emit, terminate
from hooks.detect.argument_types import Text, blamed_on
from hooks.json.documents import Document
from hooks.json.schema_compiler import compile_schema
from hooks.json.schemas import Compiled

Source = Mapping[str, Any] | str | Path
"""A schema, or the file that it is in."""
MAX_SIZE = 256 * 1024
"""Bytes of a schema that comes with a request."""
_NO_PARAMETERS = {"type": "object"}


class JsonSchema:
    """Finds answers and tool calls that are not JSON of a given schema.

    Ends what breaks a schema with the reason `json_schema`; what ends too soon, with `json_incomplete`; a
    call of a tool that the request has not, with `unknown_tool`; and what cannot be checked, because the
    request's own schema is none, is too large or asks for what no stream can be held to, with
    `unusable_schema`."""

    max_hold = 0

    @checked
    def __init__(
        self,
        *,
        schema: Source | Literal["request"] | None = None,
        tools: bool | Mapping[str, Source] = False,
        incomplete: Literal["terminate", "allow"] = "terminate",
        text: Text | None = None,
    ) -> None:
        """`schema`: the answer's; `request`: the one of the request's `response_format`, if it has one.
        `tools`: true, every call's arguments are held to the request's own definitions; or schemas by tool
        name, and calls of other tools pass. `incomplete`: what to do if an answer ends before its document
        does. `text`: closing words of an answer that is ended.

        Raises `ValueError` for a schema that is none, or cannot be checked in a stream, and `OSError`.
        """
        if schema is None and not tools:
            raise ValueError("json_schema needs a schema, tools or both")
        self._is_requested = schema == "request"
        self._schema = None if schema is None or self._is_requested else _loaded("schema", schema)
        self._has_own_tools = tools is True
        own = tools if isinstance(tools, Mapping) else {}
        self._tools = {name: _loaded(f"tools.{name}", one) for name, one in own.items()}
        self._is_strict = incomplete == "terminate"
        self._text = text

    def __call__(self, chunk: Chunk) -> Verdict:
        if chunk.aborted or chunk.channel not in ("content", "tool_call"):
            return emit(chunk.pending)
        if "document" not in chunk.state:
            problem = self._begin(chunk)
            if problem is not None:
                return self._end(chunk, problem, 0)
        document: Document | None = chunk.state["document"]
        if document is None:
            return emit(chunk.pending)
        return self._read(chunk, document)

    def _begin(self, chunk: Chunk) -> str | None:
        """Find the stream's schema, if it has one. Returns what keeps it from being checked."""
        try:
            schema = self._schema_of(chunk)
        except LookupError:
            return "unknown_tool"
        except ValueError:
            return "unusable_schema"
        chunk.state["document"] = None if schema is None else Document(schema)
        return None

    def _schema_of(self, chunk: Chunk) -> Compiled | None:
        """Raises `LookupError` for a tool that there is not, `ValueError` for a schema that is none."""
        if chunk.channel == "content":
            return _requested(chunk.request.extra) if self._is_requested else self._schema
        if not self._has_own_tools:
            return self._tools.get(chunk.tool_name or "")
        for tool in chunk.request.tools:
            function = tool.get("function")
            if isinstance(function, Mapping) and function.get("name") == chunk.tool_name:
                return _compiled(function.get("parameters"))
        raise LookupError

    def _read(self, chunk: Chunk, document: Document) -> Verdict:
        text = chunk.text_diff
        good = document.feed(text)
        is_whole = not chunk.is_final or document.finish() or self._may_be_empty(chunk, document)
        if document.is_lost:
            return self._end(chunk, "unusable_schema" if document.is_too_complex else "json_schema", good)
        if not is_whole and self._is_strict:
            return self._end(chunk, "json_incomplete", good)
        return emit(text)

    def _may_be_empty(self, chunk: Chunk, document: Document) -> bool:
        """Whether saying nothing is right: beside tool calls, and for a tool that needs no arguments."""
        if not document.is_blank:
            return False
        if chunk.channel == "content":
            return chunk.request.uses_tools
        none = Document(document.schema)
        return none.feed("{}") == 2 and none.finish()

    def _end(self, chunk: Chunk, reason: str, after: int) -> Verdict:
        return terminate(reason, after=after, text=self._text if chunk.channel == "content" else None)


def _loaded(argument: str, source: Source) -> Compiled:
    with blamed_on(argument):
        if isinstance(source, str | Path):
            source = json.loads(Path(source).read_text(encoding="utf-8"))
        return compile_schema(source)


def _requested(extra: Mapping[str, Any]) -> Compiled | None:
    """Of the request's `response_format`."""
    asked = extra.get("response_format")
    if not isinstance(asked, Mapping) or asked.get("type") not in ("json_object", "json_schema"):
        return None
    named = asked.get("json_schema")
    return _compiled(named.get("schema") if isinstance(named, Mapping) else None)


def _compiled(schema: Any) -> Compiled:
    """A request's own schema; None: any object. Raises `ValueError`."""
    try:
        written = orjson.dumps(_NO_PARAMETERS if schema is None else schema, default=dict)
    except TypeError as error:
        raise ValueError("the schema is no JSON") from error
    found = _cached(written)
    if isinstance(found, ValueError):
        raise found
    return found


@lru_cache(maxsize=64)
def _cached(written: bytes) -> Compiled | ValueError:
    if len(written) > MAX_SIZE:
        return ValueError("the schema is too large")
    try:
        return compile_schema(orjson.loads(written))
    except ValueError as error:
        return error
