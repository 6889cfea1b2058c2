"""Writes a chat as turns of the Messages API. No I/O.

A turn's content is a list of blocks. Messages of one role in a row are one turn, and so are results of tools
with the user's words after them. System messages that begin the chat are the system prompt. Later ones are
turns of their own.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any

import orjson

from engine.protocol import RequestError
from engine.upstream.messages.fields import refused
from engine.upstream.messages.signatures import Signatures

Block = dict[str, Any]
_SYSTEM = ("system", "developer")
_FIELDS = {
    "system": {"content"},
    "user": {"content"},
    "assistant": {"content", "refusal", "reasoning_content", "reasoning", "tool_calls"},
    "tool": {"content", "tool_call_id", "name"},
}
_MARK = "cache_control"
"""The mark for the cache. A message that has one marks its last block."""
_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_DATA_URI = re.compile(r"data:(?P<type>[^;,]*);base64,(?P<data>.*)", re.DOTALL)


def to_turns(
    messages: Sequence[Mapping[str, Any]], signatures: Signatures, caller: str = ""
) -> tuple[list[Block], list[dict[str, Any]]]:
    """The blocks of the system prompt, and the turns. Reasoning of earlier answers is left out unless
    `signatures` knows what signs it. `caller`: whose chat it is.

    Raises `RequestError`, which names the field, for what the API cannot express.
    """
    first = [*takewhile(lambda message: message.get("role") in _SYSTEM, messages)]
    system = [block for i, message in enumerate(first) for block in _blocks(message, i, signatures, caller)]
    turns: list[dict[str, Any]] = []
    for i, message in enumerate(messages[len(first) :], start=len(first)):
        role = {"tool": "user", "developer": "system"}.get(message["role"], message["role"])
        blocks = _blocks(message, i, signatures, caller)
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": role, "content": blocks})
    return system, [turn for turn in turns if turn["content"]]


def _blocks(message: Mapping[str, Any], i: int, signatures: Signatures, caller: str) -> list[Block]:
    blocks = list(_own_blocks(message, i, signatures, caller))
    if blocks and (mark := message.get(_MARK)):
        blocks[-1] = {_MARK: mark} | blocks[-1]
    return blocks


def _own_blocks(message: Mapping[str, Any], i: int, signatures: Signatures, caller: str) -> Iterator[Block]:
    place = f"messages[{i}]"
    role = "system" if message["role"] == "developer" else message["role"]
    if role not in _FIELDS:
        raise refused(f"{place}.role")
    for name, value in message.items():
        if value and name not in ("role", _MARK) and name not in _FIELDS[role]:
            raise refused(f"{place}.{name}")
    content = _content(message.get("content"), f"{place}.content")
    if role == "tool":
        tool_use_id = tool_id(message.get("tool_call_id"), f"{place}.tool_call_id")
        yield {"type": "tool_result", "tool_use_id": tool_use_id, "content": list(content)}
        return
    if role == "assistant":
        yield from signatures.blocks(message.get("reasoning_content") or message.get("reasoning"))
    yield from content
    if role == "assistant":
        yield from _content(message.get("refusal"), f"{place}.refusal")
        for block in _calls(message.get("tool_calls") or (), f"{place}.tool_calls"):
            yield from signatures.hidden(caller, block["id"])
            yield block


def _content(content: Any, place: str) -> Iterator[Block]:
    """The blocks of a text, or of parts. The API refuses empty texts."""
    if isinstance(content, str):
        content = ({"type": "text", "text": content},)
    if not isinstance(content, list | tuple | None):
        raise refused(place)
    for j, part in enumerate(content or ()):
        block = _block(part, f"{place}[{j}]")
        if block.get("text") != "":
            yield block


def _block(part: Any, place: str) -> Block:
    match part:
        case {"type": "text", "text": str(text)} | {"type": "refusal", "refusal": str(text)}:
            block: Block = {"type": "text", "text": text}
        case {"type": "image_url", "image_url": {"url": str(url), **options}}:
            if options.get("detail") not in (None, "auto"):
                raise refused(f"{place}.image_url.detail")
            block = {"type": "image", "source": _source(url)}
        case {"type": "file", "file": {"file_data": str(data), **options}} if not options.get("file_id"):
            named = {"title": options["filename"]} if options.get("filename") else {}
            block = {"type": "document", "source": _source(data), **named}
        case _:
            raise refused(place)
    return block | ({_MARK: part[_MARK]} if part.get(_MARK) else {})


def _source(url: str) -> dict[str, Any]:
    found = _DATA_URI.fullmatch(url)
    if found is None:
        return {"type": "url", "url": url}
    return {"type": "base64", "media_type": found["type"], "data": found["data"]}


def _calls(calls: Iterable[Mapping[str, Any]], place: str) -> Iterator[Block]:
    for j, call in enumerate(calls):
        match call:
            case {"function": {"name": str(name), **function}} if call.get("type") in (None, "function"):
                where = f"{place}[{j}].function.arguments"
                call_input = _input(function.get("arguments"), where)
                call_id = tool_id(call.get("id"), f"{place}[{j}].id")
                yield {"type": "tool_use", "id": call_id, "name": name, "input": call_input}
            case _:
                raise refused(f"{place}[{j}]")


def _input(arguments: Any, place: str) -> orjson.Fragment:
    """The arguments as they are: a parser would round long numbers, and orjson does not write every depth."""
    text = arguments or "{}"
    try:
        is_object = isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        is_object = False
    if not is_object:
        raise RequestError(f"{place} must be a JSON object.", param=place)
    return orjson.Fragment(text)


def tool_id(call_id: Any, place: str) -> str:
    """The id as the API allows it. An id with other characters becomes a hash: a call and its result still
    agree."""
    if not isinstance(call_id, str) or not call_id:
        raise RequestError(f"{place} must be a text.", param=place)
    if _ID.fullmatch(call_id):
        return call_id
    return f"toolu_{hashlib.sha256(call_id.encode(errors='surrogatepass')).hexdigest()[:32]}"
