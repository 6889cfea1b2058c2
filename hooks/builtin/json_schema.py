"""Answers and tool calls that must be JSON of a schema: `json_schema`, with `args: {tools: true}`.

The guard ends the stream before the first character after which no valid document can follow. It holds only
what may be a code fence, because the text that it lets through can always become a valid document. The fence
around an answer's document is withheld.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
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
            return self._read(chunk, document)
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
        """Read an answer, whose document may be in a code fence."""
        text, state = chunk.pending, chunk.state
        opened = (0, 0)
        if document.is_blank and "is_fenced" not in state:
            if place := fence.opening(text):
                state["is_fenced"] = True
                opened = place
            elif (num := fence.num_opening(text)) and not chunk.is_final:
                return hold(num)
        if state.get("is_closed"):
            document.feed(text)
            return self._judge(chunk, document, 0, [(0, len(text), "")] if text else [])
        if not state.get("is_fenced"):
            return self._read(chunk, document)
        withheld = [(*opened, "")] if opened[1] else []
        end, is_whole = _read_fenced(document, text, opened[1])
        if is_whole and text.startswith(fence.MARK, end):
            state["is_closed"] = True
            withheld.append((end, len(text), ""))
            document.feed(text[end + len(fence.MARK) :])
        elif is_whole and fence.MARK.startswith(text[end:]) and not chunk.is_final:
            return redact(withheld, hold=len(text) - end)
        elif is_whole:
            document.feed(text[end:])
        return self._judge(chunk, document, end, withheld)

    def _read(self, chunk: Chunk, document: Document) -> Verdict:
        return self._judge(chunk, document, document.feed(chunk.pending))

    def _judge(
        self, chunk: Chunk, document: Document, end: int, withheld: Sequence[tuple[int, int, str]] = ()
    ) -> Verdict:
        """`end`: the end of the text that leaves if the guard ends the stream. `withheld`: the places of the
        fence's lines."""
        is_whole = not chunk.is_final or document.finish() or self._may_be_empty(chunk, document)
        reason = "json_incomplete" if not is_whole and self._is_strict else None
        if document.is_lost:
            reason = "unusable_schema" if document.is_too_complex else "json_schema"
        if reason:
            return self._end(chunk, reason, end, [span for span in withheld if span[1] <= end])
        return redact(withheld) if withheld else emit(chunk.pending)

    def _may_be_empty(self, chunk: Chunk, document: Document) -> bool:
        """Whether an empty text is valid: an answer with tool calls, or a tool that needs no arguments."""
        if not document.is_blank:
            return False
        if chunk.channel == "content":
            return chunk.request.uses_tools
        none = Document(document.schema)
        return none.feed("{}") == 2 and none.finish()

    def _end(
        self, chunk: Chunk, reason: str, after: int, withheld: Iterable[tuple[int, int, str]] = ()
    ) -> Verdict:
        text = self._text if chunk.channel == "content" else None
        return terminate(reason, after=after, text=text, spans=withheld)


def _read_fenced(document: Document, text: str, begin: int) -> tuple[int, bool]:
    """Read `text[begin:]` up to the first backtick before which the document is whole. Returns the end of the
    good text, and whether this backtick is there."""
    end = begin
    while (found := text.find("`", end)) >= 0:
        end += document.feed(text[end:found])
        if document.finish():  # no document goes on after its value with a backtick
            return end, True
        end += document.feed("`")
        if document.is_lost:
            return end, False
    return end + document.feed(text[end:]), False


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
