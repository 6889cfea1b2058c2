"""The texts of chat messages, as gateways list them, and a prompt's texts as the hooks let them go on."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from engine.protocol import RequestError
from proxy.wire.guard_api.check import JSONObject


def texts_of(message: Mapping[str, Any]) -> list[str]:
    """The texts of a message's content: one, or one for each part that has a text."""
    content = message.get("content")
    if isinstance(content, str):
        return [content]
    parts = content if isinstance(content, list) else []
    return [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]


def changed_texts(before: Sequence[JSONObject], after: Sequence[Mapping[str, Any]]) -> list[str]:
    """The texts of `before`, as `after` has them. Raises `RequestError` if they are not the same number."""
    if len(before) != len(after):
        raise inexpressible("messages")
    return [text for pair in zip(before, after, strict=True) for text in _changed(*pair)]


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    old, new = texts_of(before), texts_of(after)
    if len(new) == 1 < len(old):  # a hook that rewrites parts together makes one of them
        new += [""] * (len(old) - 1)
    if len(old) != len(new):
        raise inexpressible("messages")
    return new


def beside_texts(messages: Sequence[Mapping[str, Any]]) -> Iterator[JSONObject]:
    """The messages without their texts."""
    for message in messages:
        content = message.get("content")
        parts = content if isinstance(content, list | tuple) else ()
        others = [
            part for part in parts if not (isinstance(part, dict) and isinstance(part.get("text"), str))
        ]
        yield {**message, "content": others}


def inexpressible(field: str) -> RequestError:
    """A hook changed what the protocol's answer has no place for. Nothing may go on."""
    return RequestError(
        f"A guardrail changes {field}, and this protocol cannot say how.", param=field, status=500
    )
