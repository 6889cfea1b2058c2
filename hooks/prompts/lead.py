"""The text that an output continues (contract 2.8)."""

from collections.abc import Mapping, Sequence
from itertools import chain, product, takewhile
from typing import Any

from engine.protocol import Channel, GenerationRequest
from engine.protocol.system_messages import SYSTEM_ROLES, folded

_CONTINUE = ("content", "reasoning")
"""The channels that continue a text."""
_BEFORE_CONTENT = ("reasoning_content", "reasoning", "thinking", "refusal")
"""The fields of a message that hold text and end no prompt if the message has a content."""
_IN_PART = ("thinking", "reasoning", "refusal", "text")
"""The fields of a content part that hold text, or parts with text: Mistral's servers continue a thought."""
_CONTINUING = ("continue_final_message", "chat_template", "prefix", "partial")
"""Fields that may have the output continue the last message. The caller's own template may end with it.
Mistral and DeepSeek have `prefix`, Moonshot and Alibaba `partial`, both in the message itself."""
_ARGUMENTS = (("function", "arguments"), ("custom", "input"))
"""The places of a tool call's text."""
_GLUES = ("", "\n")
"""The separators that templates put between texts."""


def lead_of(request: GenerationRequest, output_index: int, channel: Channel) -> str:
    """The prompt of a completion, or the text of a chat's last message where the output may continue it. The
    messages of the same role before it count as well: a template may join them, and an empty one after
    another changes nothing.

    Empty for other requests, and for tool calls and the echo, which continue nothing. Empty as well for token
    ids that no tokenizer has made text.
    """
    if request.prompts and channel in _CONTINUE:
        prompt = request.prompts[output_index // request.sampling.n]
        return prompt if isinstance(prompt, str) else ""
    return "".join(chain.from_iterable(_chat_texts(request.messages, request.extra, channel)))


def leads_of(request: GenerationRequest, output_index: int, channel: Channel, most: int) -> tuple[str, ...]:
    """The forms that the lead may have in the prompt, the last `most` characters of each. The first is the
    end of `lead_of`.

    A chat template may trim a message, or each of its parts, may put a line's end between them, and may write
    the system's message at the beginning of another. An engine may fold the system's messages into one. So
    the output may follow directly on a word that has a space or a message after it.
    """
    forms = [lead_of(request, output_index, channel)]
    known: list[list[list[str]]] = [[]]
    # An engine may fold the system messages of a chat: then others end it.
    for messages, merged in product((request.messages, folded(request.messages)), ((), SYSTEM_ROLES)):
        texts = _chat_texts(messages, request.extra, channel, merged)
        if texts in known:
            continue
        known.append(texts)
        ends = [[part[-most:] for part in parts] for parts in texts]
        trimmed = [[part.strip()[-most:] for part in parts] for parts in texts]
        for parts_of_texts, *glues in product((ends, trimmed), _GLUES, _GLUES):
            lead = _joined(parts_of_texts, *glues)
            forms += [lead, lead.rstrip()]
    return tuple(dict.fromkeys(form[-most:] for form in forms if form))


def _joined(parts_of_texts: list[list[str]], between_parts: str, between_texts: str) -> str:
    texts = (between_parts.join(filter(None, parts)) for parts in parts_of_texts)
    return between_texts.join(filter(None, texts))


def _chat_texts(
    messages: Sequence[Mapping[str, Any]],
    extra: Mapping[str, Any],
    channel: Channel,
    merged: tuple[str, ...] = (),
) -> list[list[str]]:
    """The texts that end a chat and that the output may continue, each as its parts. `merged`: roles whose
    messages count with those of the last message's role."""
    if channel not in _CONTINUE or not messages or not _may_continue(messages[-1], extra):
        return []
    role = messages[-1].get("role")
    last = [*takewhile(lambda one: one.get("role") in (role, *merged), reversed(messages))]
    texts = chain.from_iterable(map(_message_texts, reversed(last)))
    return [parts for parts in texts if parts]


def _may_continue(message: Mapping[str, Any], extra: Mapping[str, Any]) -> bool:
    """Whether the output may continue the chat's last message. Some engines continue the assistant's unasked.
    Upstreams also take the fields from an object, such as `chat_template_kwargs`."""
    objects = (extra, *(value for value in extra.values() if isinstance(value, Mapping)), message)
    return message.get("role") == "assistant" or any(
        fields.get("add_generation_prompt", True) is not True or any(map(fields.get, _CONTINUING))
        for fields in objects
    )


def _message_texts(message: Mapping[str, Any]) -> list[list[str]]:
    """The content comes last: a prompt that continues the message ends with it. Without a content, the prompt
    ends with the tool calls' arguments."""
    before = [_parts_of(message.get(field)) for field in _BEFORE_CONTENT]
    calls = *_listed(message.get("tool_calls")), {"function": message.get("function_call")}
    return [*before, *map(_arguments_of, calls), _parts_of(message.get("content"))]


def _arguments_of(call: Any) -> list[str]:
    texts = [_field(_field(call, kind), name) for kind, name in _ARGUMENTS]
    return [text for text in texts if isinstance(text, str)]


def _parts_of(content: Any) -> list[str]:
    if isinstance(content, str):
        return [content]
    values = (value for part in _listed(content) for value in _values_of(part))
    return [text for value in values for text in _parts_of(value)]


def _values_of(part: Any) -> list[Any]:
    return [part.get(name) for name in _IN_PART] if isinstance(part, Mapping) else [part]


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else None


def _listed(value: Any) -> list[Any] | tuple[Any, ...]:
    return value if isinstance(value, list | tuple) else ()
