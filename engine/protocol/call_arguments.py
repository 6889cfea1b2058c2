"""The arguments of tool calls.

In the API they are an object as JSON text. Histories also have other ones: cut by `max_tokens`, written
twice, null, a list, or JSON in JSON. A conversation with such a turn goes on. Models and upstreams write some
of these, too.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from engine.protocol.characters import ESCAPED_HALF, with_whole_characters

IGNORED_ARGUMENTS = "messages.tool_calls.function.arguments"
"""The name of arguments that were not the JSON of an object, in the list of ignored fields."""
_MAX_JSON_IN_JSON = 3


def object_of(arguments: Any) -> dict[str, Any]:
    """The arguments as an object of whole characters. JSON in JSON is decoded, and arguments that are no
    object are `{}`."""
    for _ in range(_MAX_JSON_IN_JSON):
        if not isinstance(arguments, str):
            break
        try:
            value = json.loads(arguments)
            arguments = with_whole_characters(value) if ESCAPED_HALF.search(arguments) else value
        except (ValueError, RecursionError):
            return {}
    return dict(arguments) if isinstance(arguments, Mapping) else {}


def is_object(arguments: Any) -> bool:
    """Whether arguments are an object, its JSON text, or nothing at all."""
    if isinstance(arguments, str) and arguments.strip():
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return False
        return isinstance(arguments, Mapping)
    return arguments is None or isinstance(arguments, str | Mapping)


def object_text(arguments: str) -> str:
    """The arguments of a call, as a model or an upstream wrote them. An object that is as text in a
    string is its own text, and `null` and an empty string are `{}`. Any other text stays as it is."""
    if not arguments.lstrip().startswith(('"', "n")):
        return arguments
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    if value is None or value.strip() in ("", "null"):
        return "{}"
    return value if is_whole_object(value) else arguments


def is_whole_object(arguments: str) -> bool:
    """Whether a text is a JSON object, so that no more of it can come."""
    if not arguments.rstrip().endswith("}"):
        return False
    try:
        return isinstance(orjson.loads(arguments), dict)
    except ValueError:
        pass
    try:  # orjson reads no escape of half a character, which clients read
        return isinstance(json.loads(arguments, parse_constant=_not_json), dict)
    except (ValueError, RecursionError):
        return False


def _not_json(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def has_other_arguments(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a call of these messages has arguments that are not an object."""
    return not all(map(is_object, _arguments(messages)))


def _arguments(messages: Sequence[Mapping[str, Any]]) -> Iterator[Any]:
    for message in messages:
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list | tuple) else ():
            function = call.get("function") if isinstance(call, Mapping) else None
            if isinstance(function, Mapping):
                yield function.get("arguments")
