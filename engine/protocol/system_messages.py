"""Chats with more than one system message, for models that take one alone, in front.

Agents remind the model by system messages in the middle of a chat. The chat templates of many models refuse
such a chat. Folded, its system messages are one, in their order, with a blank line between two.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from engine.protocol.request import GenerationRequest

SystemMessages = Literal["auto", "fold", "keep"]
"""`auto`: they are folded for a model that refuses them otherwise."""
SYSTEM_ROLES = ("system", "developer")
BLANK_LINE = "\n\n"
_ENDINGS = ("continue_final_message", "add_generation_prompt", "chat_template", "prefix", "partial")
"""Fields that say how the prompt ends."""

Message = Mapping[str, Any]


def folded(messages: Sequence[Message]) -> Sequence[Message]:
    """The chat with one system message, in front. The same chat if it has no other."""
    system = [one for one in messages if one.get("role") in SYSTEM_ROLES]
    if not system or (len(system) == 1 and messages[0] is system[0]):
        return messages
    rest = (one for one in messages if one.get("role") not in SYSTEM_ROLES)
    return ({**system[0], "content": _joined([one.get("content") for one in system])}, *rest)


def folded_request(request: GenerationRequest) -> GenerationRequest | None:
    """The request with its chat folded. None: it is folded already, or its answer may continue a system
    message at its end."""
    if not request.messages or _continues_system(request):
        return None
    messages = folded(request.messages)
    if messages is request.messages:
        return None
    return replace(request, messages=tuple(messages), caller_body=_folded_body(request.caller_body))


def _continues_system(request: GenerationRequest) -> bool:
    last, extra = request.messages[-1], request.extra
    if last.get("role") not in SYSTEM_ROLES:
        return False
    objects = (last, extra, *(value for value in extra.values() if isinstance(value, Mapping)))
    return any(name in fields for fields in objects for name in _ENDINGS)


def _joined(contents: Iterable[Any]) -> Any:
    given = [content for content in contents if content]
    if all(isinstance(content, str) for content in given):
        return BLANK_LINE.join(given)
    parts: list[Any] = []
    for content in given:
        own = [{"type": "text", "text": content}] if isinstance(content, str) else list(content)
        if parts and isinstance(own[0], Mapping) and isinstance(own[0].get("text"), str):
            own[0] = {**own[0], "text": BLANK_LINE + own[0]["text"]}
        parts += own
    return parts


def _folded_body(body: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The same of a body of the Messages API."""
    if body is None:
        return None
    turns = body["messages"]
    later = [turn["content"] for turn in turns if turn["role"] in SYSTEM_ROLES]
    system = [block for content in (body.get("system"), *later) for block in _blocks(content)]
    rest = [turn for turn in turns if turn["role"] not in SYSTEM_ROLES]
    return {**body, "system": system, "messages": rest}


def _blocks(content: Any) -> list[Any]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())
