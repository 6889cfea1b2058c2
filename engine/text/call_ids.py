"""Ids of tool calls for chat templates that write a call's id in the place of its name, as Kimi K2's does.

Such a model writes `functions.NAME:NUMBER`, and numbers the calls of a chat. The service's ids have no names,
so earlier turns get ids of this form.
"""

from collections.abc import Mapping, Sequence
from typing import Any

Message = dict[str, Any]


def with_named_ids(messages: Sequence[Message]) -> list[Message]:
    """The messages with such ids, in the calls and in the tools' results."""
    ids: dict[Any, str] = {}
    num_calls = 0
    made: list[Message] = []
    for message in messages:
        given = message.get("tool_call_id")
        if isinstance(given, str) and given in ids:
            message = {**message, "tool_call_id": ids[given]}
        if message.get("tool_calls"):
            calls = []
            for call in message["tool_calls"]:
                function = call.get("function")
                name = function.get("name") if isinstance(function, Mapping) else None
                named = f"functions.{name}:{num_calls}"
                if isinstance(old := call.get("id"), str):
                    ids[old] = named
                calls.append({**call, "id": named})
                num_calls += 1
            message = {**message, "tool_calls": calls}
        made.append(message)
    return made
