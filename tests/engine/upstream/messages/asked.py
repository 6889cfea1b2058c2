"""Events of the Messages API, for tests of its engine."""

from collections.abc import Iterable
from typing import Any

Event = dict[str, Any]
_DELTAS = {
    "text": ("text_delta", "text"),
    "thinking": ("thinking_delta", "thinking"),
    "tool_use": ("input_json_delta", "partial_json"),
}
EMPTY = {"text": {"text": ""}, "thinking": {"thinking": "", "signature": ""}}


def begin(**usage: Any) -> Event:
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
    usage = {"input_tokens": 3, "output_tokens": 1} | usage
    return {"type": "message_start", "message": {**message, "stop_reason": None, "usage": usage}}


def start(index: int, kind: str, **fields: Any) -> Event:
    block = {"type": kind, **EMPTY.get(kind, {"id": f"theirs_{index}", "name": "f", "input": {}}), **fields}
    return {"type": "content_block_start", "index": index, "content_block": block}


def piece(index: int, kind: str, text: str) -> Event:
    name, field = _DELTAS[kind]
    return {"type": "content_block_delta", "index": index, "delta": {"type": name, field: text}}


def signature(index: int, text: str) -> Event:
    delta = {"type": "signature_delta", "signature": text}
    return {"type": "content_block_delta", "index": index, "delta": delta}


def stop(index: int) -> Event:
    return {"type": "content_block_stop", "index": index}


def block(index: int, kind: str, *pieces: str, **fields: Any) -> list[Event]:
    return [start(index, kind, **fields), *(piece(index, kind, text) for text in pieces), stop(index)]


def end(reason: str | None = "end_turn", num_tokens: int = 9, **delta: Any) -> Event:
    told = {"stop_reason": reason, "stop_sequence": None, **delta}
    return {"type": "message_delta", "delta": told, "usage": {"output_tokens": num_tokens}}


STOP: Event = {"type": "message_stop"}


def answer(*blocks: Iterable[Event], reason: str = "end_turn", **delta: Any) -> list[Event]:
    """A whole stream."""
    return [begin(), *(event for one in blocks for event in one), end(reason, **delta), STOP]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths to all values in JSON, its own first."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, inner in items for place in places(inner, (*path, key)))]


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """JSON with another value at a path."""
    if not path:
        return new
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = changed(value[path[0]], path[1:], new)
    return copy
