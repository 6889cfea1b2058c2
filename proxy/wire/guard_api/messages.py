"""The texts of chat messages, as gateways list them, and a prompt's texts as the hooks let them go on."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import AfterValidator

from engine.protocol import RequestError
from proxy.wire.errors import APIError
from proxy.wire.guard_api.check import CheckedCall, JSONObject

_JUDGED = frozenset({"role", "content", "tool_calls"})
"""The fields of an answer's message that hooks are shown."""
_CALL = frozenset({"id", "type", "index", "function"})
_FUNCTION = frozenset({"name", "arguments"})


def _checked(message: JSONObject) -> JSONObject:
    role, content, calls = message.get("role"), message.get("content"), message.get("tool_calls")
    are_calls = calls is None or _are_objects(calls)
    if not (isinstance(role, str) and role and are_calls):
        raise ValueError("a message has a role, and its tool calls are a list of objects.")
    if not (isinstance(content, str | None) or _are_objects(content)):
        raise ValueError("a message's content is a text or a list of parts.")
    return message


def _are_objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) for one in value)


Message = Annotated[JSONObject, AfterValidator(_checked)]
"""A chat message of a shape that hooks can read and change."""


def texts_of(message: Mapping[str, Any]) -> list[str]:
    """The texts of a message's content: one, or one for each part that has a text."""
    content = message.get("content")
    if isinstance(content, str):
        return [content]
    parts = content if isinstance(content, list) else []
    return [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]


def answered_texts(message: Mapping[str, Any]) -> list[str]:
    """The texts of an answer's message. Raises `RequestError` if it has anything that no hook is shown."""
    texts, content = texts_of(message), message.get("content")
    has_more = any(value for field, value in message.items() if field not in _JUDGED)
    if isinstance(content, list) and [{"type": "text", "text": text} for text in texts] != content:
        has_more = True
    if has_more:
        reason = "messages: the last one has more than texts and tool calls, which no hook is shown."
        raise RequestError(reason, param="messages")
    return texts


def function_call(call: Mapping[str, Any]) -> tuple[CheckedCall, JSONObject] | None:
    """A call of a function, and its fields other than its name and arguments. None: it is no such call."""
    function = call.get("function")
    if not isinstance(function, dict) or call.get("type", "function") != "function":
        return None
    name, arguments = function.get("name"), function.get("arguments")
    if not (isinstance(name, str) and isinstance(arguments, str)):
        return None
    inner = {field: value for field, value in function.items() if value and field not in _FUNCTION}
    rest = {field: value for field, value in call.items() if value and field not in _CALL}
    return CheckedCall(name, arguments), {**rest, **({"function": inner} if inner else {})}


def only_texts_changed(before: Sequence[JSONObject], after: Sequence[Mapping[str, Any]]) -> list[str]:
    """As `changed_texts`, for a protocol that has no place for other changes. Raises `APIError` for them."""
    texts = changed_texts(before, after)
    if [*beside_texts(before)] != [*beside_texts(after)]:
        raise inexpressible("messages")
    return texts


def changed_texts(before: Sequence[JSONObject], after: Sequence[Mapping[str, Any]]) -> list[str]:
    """The texts of `before`, as `after` has them. Raises `APIError` if they are not the same number."""
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


def inexpressible(field: str) -> APIError:
    """A hook changed what the protocol's answer has no place for. Nothing may go on."""
    reason = f"A guardrail changes {field}, and this protocol cannot say how."
    return APIError(500, reason, "guardrail_error", param=field)
