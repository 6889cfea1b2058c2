"""The blocks of a request as its caller wrote them, with the changes that hooks made to the chat.

A chat has no place for all that blocks say: which texts a mark for the cache is between, whose signature
reasoning has, in which order a turn has text and calls. An upstream of this API gets the caller's own blocks.
Hooks decide on the chat, so each text of the chat that they changed takes the place of the caller's text.
Fields that no hook is shown are left out, but for marks and settings without words.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any

import orjson

from proxy.wire.openai.answer import JSONObject

Messages = Sequence[Mapping[str, Any]]
Texts = list[tuple[JSONObject, str]]
"""The places of texts: an object, and the name of its field."""

_MARK = re.compile(r"[a-z0-9_]{1,12}")
_OPAQUE = re.compile(r"[A-Za-z0-9+/=_-]*")
"""A signature of reasoning, hidden reasoning, or a file, in base64. It is no text."""
_WINDOW = 32
"""Characters on each side by which the end of a text is found again in a changed one."""
_FIELDS = {
    "text": {"text"},
    "image": {"source"},
    "document": {"source", "title"},
    "search_result": {"source", "title", "content"},
    "tool_use": {"id", "name", "input"},
    "tool_result": {"tool_use_id", "content", "is_error"},
    "tool_reference": {"tool_name"},
    "thinking": {"thinking", "signature"},
    "redacted_thinking": {"data"},
}
_OF_SOURCE = {
    "base64": {"type", "media_type", "data"},
    "url": {"type", "url"},
    "text": {"type", "media_type", "data"},
    "content": {"type", "content"},
}
_OF_TOOL = ("type", "name", "description", "input_schema", "strict")
SWITCHES = frozenset({"defer_loading", "eager_input_streaming"})
"""Fields of tools that are true or false."""
_SENT_BACK = {"citations": (None,), "caller": (None, {"type": "direct"})}
"""Values without words that clients send back."""


class _UnmatchedError(Exception):
    """A hook gave a chat of another shape: no text has its place in the caller's blocks."""


def with_changes(body: Mapping[str, Any], asked: Messages, admitted: Messages) -> JSONObject | None:
    """The fields `system` and `messages` of the caller's body, if it has them, with the changes between two
    chats: the one that the body stands for, and the one that hooks let go on. None: the chats have other
    shapes, and the second one is all that there is."""
    try:
        system = _kept_content(body.get("system"))
        turns = [_kept_turn(turn) for turn in body["messages"]]
        for place, old, new in zip([*_places(system, turns)], asked, admitted, strict=True):
            if old is not new and old != new:
                place.change(old, new)
    except (_UnmatchedError, LookupError, TypeError, ValueError, AttributeError):
        return None
    kept: JSONObject = {"messages": [turn for turn in map(_without_empty, turns) if turn["content"]]}
    if blocks := _without_empty(system)["content"]:
        kept["system"] = blocks
    return kept


def tools_with_changes(tools: Any, asked: Messages, admitted: Messages) -> list[JSONObject] | None:
    """The field `tools`, as `with_changes` has the others."""
    if len(asked) != len(admitted):
        return None
    kept = []
    for own, old, new in zip(tools or (), asked, admitted, strict=True):
        tool = _kept(own, (*_OF_TOOL, *(name for name in SWITCHES if isinstance(own.get(name), bool))))
        if old is not new and old != new:
            match new:
                case {"type": "function", "function": {"name": name, "parameters": schema, **rest}} if (
                    rest.keys() <= {"description", "strict"}
                ):
                    tool = {k: v for k, v in tool.items() if k not in ("description", "strict") or k in rest}
                    tool |= {"name": name, "input_schema": schema} | {str(k): v for k, v in rest.items()}
                case _:
                    return None
        kept.append(tool)
    return kept


def _kept(own: Mapping[str, Any], names: Iterable[str]) -> JSONObject:
    """The fields of these names, and the mark for the cache, in the caller's order."""
    kept = {*names, "cache_control"}
    return {
        name: value
        for name, value in own.items()
        if (name in kept and (name != "cache_control" or value is None or is_mark(value)))
        or value in _SENT_BACK.get(name, ())
    }


def is_mark(value: Any) -> bool:
    """Whether it is a mark for the cache: `{"type": "ephemeral", "ttl": "1h"}`."""
    return (
        isinstance(value, Mapping)
        and value.keys() <= {"type", "ttl", "scope"}
        and all(isinstance(one, str) and _MARK.fullmatch(one) for one in value.values())
    )


def _kept_turn(turn: Mapping[str, Any]) -> JSONObject:
    kept = {name: value for name, value in turn.items() if name in ("role", "content")}
    return kept | _kept_content(turn["content"])


def _kept_content(content: Any) -> JSONObject:
    """An object whose `content` is the text, or a list of blocks. Raises `KeyError` for an unknown block."""
    if not isinstance(content, list):
        return {"content": content or ""}
    return {"content": [_kept_block(block) for block in content]}


def _kept_block(block: Mapping[str, Any]) -> JSONObject:
    names, source = _FIELDS[block["type"]], block.get("source")
    if block["type"] == "document" and isinstance(source, Mapping) and source["type"] in ("text", "content"):
        names = {*names, "context"}
    kept = _kept(block, ("type", *names))
    if "source" in kept and isinstance(source, Mapping):
        kept["source"] = {k: v for k, v in source.items() if k in _OF_SOURCE[source["type"]]}
    for of in (kept, kept.get("source")):
        if isinstance(of, dict) and isinstance(of.get("content"), list):
            of["content"] = [_kept_block(one) for one in of["content"]]
    for name in ("signature", "data"):
        if name in kept and not is_opaque(kept[name]):
            del kept[name]
    return kept


def is_opaque(value: Any) -> bool:
    """Whether it is base64, as far as its characters say."""
    return isinstance(value, str) and _OPAQUE.fullmatch(value) is not None


def _without_empty(turn: JSONObject) -> JSONObject:
    """The API refuses empty texts."""
    if isinstance(turn.get("source"), dict):
        turn = {**turn, "source": _without_empty(turn["source"])}
    content = turn.get("content")
    if not isinstance(content, list):
        return turn
    kept = [_without_empty(block) for block in content if block["type"] != "text" or block.get("text")]
    return {**turn, "content": kept}


class _Place:
    """The place of one message of the chat in the caller's turns."""

    def __init__(self, blocks: list[JSONObject], glue: str) -> None:
        """`blocks`: those that the message was made of; a text by itself is an object with `content`."""
        self._blocks = blocks
        self._glue = glue

    def change(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
        """Put in what differs. Raises `_UnmatchedError`."""
        if old.keys() != new.keys():
            raise _UnmatchedError
        for name, value in new.items():
            if value != old[name]:
                self._change(name, old[name], value)

    def _change(self, name: str, old: Any, new: Any) -> None:
        if name == "content":
            self._change_content(old, new)
        elif name == "reasoning_content" and isinstance(new, str):
            thinking = [block for block in self._blocks if block.get("type") == "thinking"]
            _put([(block, "thinking") for block in thinking], "", new, on_change=_unsigned)
        elif name == "tool_calls" and isinstance(new, list) and len(old) == len(new):
            uses = [block for block in self._blocks if block.get("type") == "tool_use"]
            for block, before, call in zip(uses, old, new, strict=True):
                if before != call:
                    _put_call(block, call)
        elif name == "tool_call_id" and isinstance(new, str):
            self._blocks[0]["tool_use_id"] = new
        else:
            raise _UnmatchedError

    def _change_content(self, old: Any, new: Any) -> None:
        if not (isinstance(old, str) and isinstance(new, str)):
            raise _UnmatchedError
        texts = [one for one in self._blocks if one.get("type", "text") == "text"]
        _put([(one, _text_in(one)) for one in texts], self._glue, new)


class _Parts(_Place):
    """A message of the user's, whose content has a part for each block."""

    def __init__(self, blocks: list[JSONObject]) -> None:
        super().__init__(blocks, "")

    def _change_content(self, old: Any, new: Any) -> None:
        before, after = _as_parts(old), _as_parts(new)
        if len(before) == len(after) == len(self._blocks):
            for block, one, other in zip(self._blocks, before, after, strict=True):
                if one != other:
                    _put_part(block, one, other)
            return
        # A hook that changes the texts of one content as a whole leaves one text.
        texts = [i for i, part in enumerate(before) if part.get("type") == "text"]
        joined = [part for i, part in enumerate(before) if i not in texts[1:]]
        if not texts or len(joined) != len(after) or len(before) != len(self._blocks):
            raise _UnmatchedError
        if any(one != other for one, other in zip(joined, after, strict=True) if one is not before[texts[0]]):
            raise _UnmatchedError
        for i in texts[1:]:
            if self._blocks[i].get("type", "text") != "text":
                raise _UnmatchedError
            self._blocks[i][_text_in(self._blocks[i])] = ""
        _put_part(self._blocks[texts[0]], before[texts[0]], after[joined.index(before[texts[0]])])


class _Result(_Place):
    """A result of a tool."""

    def __init__(self, block: JSONObject) -> None:
        super().__init__([block], "")

    def _change_content(self, old: Any, new: Any) -> None:
        block = self._blocks[0]
        parts, after = _as_parts(old), _as_parts(new)
        if block.get("is_error"):
            parts, after = _without_error(parts), _without_error(after)
        if not isinstance(block.get("content"), list):
            if len(after) != 1 or "text" not in after[0]:
                raise _UnmatchedError
            block["content"] = after[0]["text"]
            return
        _Parts(block["content"]).change({"content": parts}, {"content": after})


def _places(system: JSONObject, turns: list[JSONObject]) -> Iterator[_Place]:
    """The places of a chat's messages, as `proxy.wire.messages.turns` makes them."""
    if any(block.get("text", block.get("content")) for block in _blocks(system)):
        yield _Place(_blocks(system), "\n\n")
    for role, run in groupby(turns, lambda turn: turn["role"]):
        blocks = [block for turn in run for block in _blocks(turn)]
        if role == "assistant":
            yield _Place(blocks, "")
        elif role == "system":
            yield _Place(blocks, "\n\n")
        else:
            yield from (_Result(block) for block in blocks if block.get("type") == "tool_result")
            rest = [block for block in blocks if block.get("type") != "tool_result"]
            if rest or not blocks:
                yield _Parts(rest)


def _blocks(turn: JSONObject) -> list[JSONObject]:
    """The turn's blocks. A content that is a text is the turn itself."""
    content: list[JSONObject] | str = turn["content"]
    return content if isinstance(content, list) else [turn]


def _text_in(block: JSONObject) -> str:
    """The field with the text of a block, or of a turn, that is a part with a text."""
    return next(name for name in ("text", "tool_name", "content") if name in block)


def _as_parts(content: Any) -> list[Mapping[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list | tuple) or not all(isinstance(part, Mapping) for part in content):
        raise _UnmatchedError
    return list(content)


def _without_error(parts: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The parts without the word that is in a chat for `is_error`."""
    if len(parts) > 1:
        return parts[1:] if parts[0].get("text") == "Error:" else parts
    return [{**part, "text": str(part.get("text", "")).removeprefix("Error: ")} for part in parts]


def _put_part(block: JSONObject, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Put in the texts by which two parts differ."""
    if old["type"] == "text":
        if not isinstance(new.get("text"), str) or {**old, "text": None} != {**new, "text": None}:
            raise _UnmatchedError
        block[_text_in(block)] = new["text"]
        return
    if old["type"] != new["type"]:
        raise _UnmatchedError
    places = list(_named(block))
    for before, after in _differing(old, new):
        if old["type"] == "document":
            _put(places, "\n\n", after)
        elif own := next(((of, name) for of, name in places if of[name] == before), None):
            own[0][own[1]] = after
        else:
            raise _UnmatchedError


def _named(block: JSONObject) -> Iterator[tuple[JSONObject, str]]:
    """The places of the texts of a file, a document or a search result, in the order of its part."""
    source = block.get("source")
    of = source if isinstance(source, dict) else block
    for place, name in ((block, "title"), (block, "context"), (block, "source"), (of, "data"), (of, "url")):
        if isinstance(place.get(name), str):
            yield place, name
    content = of.get("content")
    if isinstance(content, str):
        yield of, "content"
    yield from ((one, "text") for one in content or () if isinstance(one, dict))


def _differing(old: Any, new: Any) -> Iterator[tuple[str, str]]:
    """The texts that differ, in values of one shape."""
    if isinstance(old, Mapping) and isinstance(new, Mapping) and old.keys() == new.keys():
        for name in old:
            yield from _differing(old[name], new[name])
    elif isinstance(old, str) and isinstance(new, str):
        if old != new:
            yield old, new
    elif old != new:
        raise _UnmatchedError


def _put_call(block: JSONObject, call: Mapping[str, Any]) -> None:
    function = call["function"]
    block |= {"id": call["id"], "name": function["name"]}
    try:
        block["input"] = orjson.loads(function["arguments"])
    except (orjson.JSONDecodeError, TypeError):
        raise _UnmatchedError from None


def _unsigned(block: JSONObject) -> None:
    """A signature no longer fits a changed text. Without it, the upstream is not sent the block."""
    block.pop("signature", None)


def _put(places: Texts, glue: str, text: str, on_change: Any = None) -> None:
    """Put a changed text in the places of those that it was joined of. They are the same text again, joined.

    A place ends where the characters around its end are found again. If they were changed, the place has the
    text of the next one too.
    """
    places = [(of, name) for of, name in places if of.get(name)]
    if not places:
        raise _UnmatchedError
    old = [of[name] for of, name in places]
    new = _split(old, glue, text)
    for (of, name), before, after in zip(places, old, new, strict=True):
        if before != after:
            of[name] = after
            if on_change is not None:
                on_change(of)


def _split(old: list[str], glue: str, text: str) -> list[str]:
    """`text` in as many pieces. Those that are not empty are `text`, joined by `glue`."""
    first, last = 0, len(old)
    begin, end = 0, len(text)
    while first < last - 1 and text.startswith(old[first] + glue, begin):
        begin += len(old[first]) + len(glue)
        first += 1
    while last - 1 > first and text.endswith(glue + old[last - 1], begin, end):
        end -= len(old[last - 1]) + len(glue)
        last -= 1
    rest, changed = text[begin:end], list[str]()
    open_pieces = 1
    for before, after in pairwise(old[first:last]):
        if (found := _boundary(rest, before, glue, after)) is None:
            open_pieces += 1
            continue
        changed += _by_glue(rest[:found], glue, open_pieces)
        rest, open_pieces = rest[found + len(glue) :], 1
    return [*old[:first], *changed, *_by_glue(rest, glue, open_pieces), *old[last:]]


def _boundary(text: str, before: str, glue: str, after: str) -> int | None:
    """The end of a piece in `text`: the first place with the characters on both sides, or else the only one
    with those on one side."""
    before, after = before[-_WINDOW:], after[:_WINDOW]
    if (found := text.find(before + glue + after)) >= 0:
        return found + len(before)
    for sign, length in ((glue + after, 0), (before + glue, len(before))):
        if len(sign) > len(glue) and text.count(sign) == 1:
            return text.find(sign) + length
    return None


def _by_glue(text: str, glue: str, num_pieces: int) -> list[str]:
    """Pieces of which no boundary was found. If it is not clear either where they are joined, the first piece
    has all of the text."""
    pieces = text.split(glue) if glue else [text]
    return pieces if len(pieces) == num_pieces else [text, *[""] * (num_pieces - 1)]
