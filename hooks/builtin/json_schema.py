"""Answers and tool calls that must be JSON of a schema: `json_schema`, with `args: {tools: true}`.

The guard ends the stream before the first character after which no valid document can follow. It holds only
what may be a code fence, because the text that it lets through can always become a valid document. The fence
around an answer's document is withheld.
"""

import json
from collections.abc import Mapping
from copy import deepcopy
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import orjson

from hooks import Chunk, Verdict, checked, emit, hold, redact, terminate
from hooks.detect.argument_types import Text, blamed_on
from hooks.json import fence
from hooks.json.document import Document
from hooks.json.schema import Compiled
from hooks.json.schema_compiler import compile_schema

Source = Mapping[str, Any] | str | Path
"""A schema, or the path of a file with the schema."""
MAX_SIZE = 256 * 1024
"""Most bytes of a schema in a request."""
MAX_REQUESTED_CHECKS = 100
"""Most schemas that apply to one value, in a schema of a request. Checking them delays other requests."""
_NO_PARAMETERS = {"type": "object"}


class JsonSchema:
    """Finds answers and tool calls that are not JSON of a given schema.

    The guard ends a stream with one of four reasons. `json_schema`: the text breaks the schema.
    `json_incomplete`: the document is incomplete at the end. `unknown_tool`: the request does not define the
    called tool. `unusable_schema`: the request's schema is invalid, too large or not checkable in streams.
    """

    max_hold = fence.MAX_OPENING

    @checked
    def __init__(
        self,
        *,
        schema: Source | Literal["request"] | None = None,
        tools: bool | Mapping[str, Source] = False,
        incomplete: Literal["terminate", "allow"] = "terminate",
        text: Text | None = None,
    ) -> None:
        """`schema`: the schema of answers; `request`: the schema in the request's `response_format`, if any.
        `tools`: true checks every call's arguments with the request's own definitions; a mapping from tool
        names to schemas lets calls of other tools pass. `incomplete`: the action if an answer ends before its
        document does. `text`: closing words of an answer that the guard ends.

        Raises `ValueError` for an invalid schema or one that cannot be checked in a stream, and `OSError`.
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

    copyable = True
    reads_text = False

    def __call__(self, chunk: Chunk) -> Verdict:
        if chunk.aborted or chunk.channel not in ("content", "tool_call"):
            return emit(chunk.pending)
        if "document" not in chunk.state and (problem := self._begin(chunk)):
            return self._end(chunk, problem, 0)
        document: Document | None = chunk.state["document"]
        if document is None:
            return emit(chunk.pending)
        if chunk.channel != "content":
            return self._read(chunk, document, chunk.pending)
        return self._read_answer(chunk, document)

    def _begin(self, chunk: Chunk) -> str | None:
        """Find the stream's schema, if it has one. Returns the reason why it cannot be checked, if any."""
        try:
            schema = self._schema_of(chunk)
        except LookupError:
            return "unknown_tool"
        except ValueError:
            return "unusable_schema"
        chunk.state["document"] = None if schema is None else Document(schema)
        return None

    def _schema_of(self, chunk: Chunk) -> Compiled | None:
        """Raises `LookupError` for an unknown tool, `ValueError` for an invalid schema."""
        if chunk.channel == "content":
            return _requested(chunk.request.extra) if self._is_requested else self._schema
        if not self._has_own_tools:
            return self._tools.get(chunk.tool_name or "")
        for tool in chunk.request.tools:
            function = tool.get("function")
            if isinstance(function, Mapping) and function.get("name") == chunk.tool_name:
                return _compiled(function.get("parameters"))
        raise LookupError

    def _read_answer(self, chunk: Chunk, document: Document) -> Verdict:
        """Read an answer, whose document may stand in a code fence."""
        text, state = chunk.pending, chunk.state
        begin = end = 0
        if document.is_blank and "is_fenced" not in state:
            if place := fence.opening(text):
                state["is_fenced"] = True
                begin, end = place
            elif (num := fence.num_opening(text)) and not chunk.is_final:
                return hold(num)
        if state.get("is_closed"):
            return self._read(chunk, document, text, behind=True)
        at = _end_of_document(document, text, end) if state.get("is_fenced") else -1
        if at >= 0:
            if text.startswith(fence.MARK, at):
                state["is_closed"] = True
            elif fence.MARK.startswith(text[at:]) and not chunk.is_final:
                document.feed(text[end:at])
                return redact([(begin, end, "")] if end else [], hold=len(text) - at)
        return self._read(chunk, document, text, (begin, end), at if state.get("is_closed") else -1)

    def _read(
        self,
        chunk: Chunk,
        document: Document,
        text: str,
        opened: tuple[int, int] = (0, 0),
        closed: int = -1,
        *,
        behind: bool = False,
    ) -> Verdict:
        """`opened`: the place of a fence's first line. `closed`: the place of its end, or -1. `behind`: the
        text is behind a fence, where only blanks may be."""
        begin, end = opened[1], len(text) if closed < 0 else closed
        good = begin + document.feed(text[begin:end])
        rest = text[end + len(fence.MARK) :] if closed >= 0 else ""
        if not document.is_lost and rest:
            document.feed(rest)
        is_whole = not chunk.is_final or document.finish() or self._may_be_empty(chunk, document)
        shown = "" if behind else text[begin : min(good, end)]
        if document.is_lost:
            reason = "unusable_schema" if document.is_too_complex else "json_schema"
            return self._end(
                chunk, reason, opened[0] if opened[1] or behind else good, shown if opened[1] else ""
            )
        if not is_whole and self._is_strict:
            return self._end(
                chunk, "json_incomplete", opened[0] if opened[1] else good, shown if opened[1] else ""
            )
        spans = [(*opened, "")] if opened[1] else []
        if closed >= 0 or behind:
            spans.append((0 if behind else closed, len(text), ""))
        return redact([span for span in spans if span[1] > span[0]]) if spans else emit(text)

    def _may_be_empty(self, chunk: Chunk, document: Document) -> bool:
        """Whether an empty text is valid: an answer beside tool calls, or a tool that needs no arguments."""
        if not document.is_blank:
            return False
        if chunk.channel == "content":
            return chunk.request.uses_tools
        none = Document(document.schema)
        return none.feed("{}") == 2 and none.finish()

    def _end(self, chunk: Chunk, reason: str, after: int, shown: str = "") -> Verdict:
        """`shown`: text behind a withheld fence, which is shown all the same."""
        words = self._text if chunk.channel == "content" else None
        return terminate(reason, after=after, text=(shown + (words or "")) if shown else words)


def _end_of_document(document: Document, text: str, begin: int) -> int:
    """The place of the first backtick in `text[begin:]` before which the document is whole, or -1."""
    read, at = None, begin
    while (found := text.find("`", at)) >= 0:
        read = read or deepcopy(document)
        read.feed(text[at:found])
        if deepcopy(read).finish():
            return found
        read.feed("`")
        at = found + 1
    return -1


def _loaded(argument: str, source: Source) -> Compiled:
    with blamed_on(argument):
        if isinstance(source, str | Path):
            source = json.loads(Path(source).expanduser().read_text(encoding="utf-8"))
        return compile_schema(source)


def _requested(extra: Mapping[str, Any]) -> Compiled | None:
    """Return the schema of the request's `response_format`, if it has one."""
    asked = extra.get("response_format")
    if not isinstance(asked, Mapping) or asked.get("type") not in ("json_object", "json_schema"):
        return None
    named = asked.get("json_schema")
    return _compiled(named.get("schema") if isinstance(named, Mapping) else None)


def _compiled(schema: Any) -> Compiled:
    """Compile a request's own schema; None: any object. Raises `ValueError` for an invalid schema."""
    try:
        written = orjson.dumps(_NO_PARAMETERS if schema is None else schema, default=dict)
    except TypeError as error:
        raise ValueError("the schema is not JSON") from error
    found = _cached(written)
    if isinstance(found, ValueError):
        raise found
    return found


@lru_cache(maxsize=64)
def _cached(written: bytes) -> Compiled | ValueError:
    if len(written) > MAX_SIZE:
        return ValueError("the schema is too large")
    try:
        return compile_schema(orjson.loads(written), MAX_REQUESTED_CHECKS)
    except ValueError as error:
        return error
