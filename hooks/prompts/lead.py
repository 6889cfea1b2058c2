"""The text that an output continues (contract 2.8)."""

from collections.abc import Mapping
from itertools import takewhile
from typing import Any

from engine.protocol import Channel, GenerationRequest

_BEFORE_CONTENT = ("reasoning_content", "reasoning", "refusal")
"""The fields of a message that hold text and end no prompt if the message has a content."""
_CONTINUING = ("continue_final_message", "chat_template", "prefix", "partial")
"""Fields that may have the output continue the last message. The caller's own template may end with it.
Mistral and DeepSeek have `prefix`, Moonshot and Alibaba `partial`, both in the message itself."""


def lead_of(request: GenerationRequest, output_index: int, channel: Channel) -> str:
    """The prompt of a completion, or the text of a chat's last message where the output may continue it. The
    messages of the same role before it count as well: a template may join them, and an empty one behind
    another changes nothing.

    Empty for other requests, and for tool calls and the echo, which continue nothing. Empty as well for token
    ids that no tokenizer has made text.
    """
    if channel not in ("content", "reasoning"):
        return ""
    if request.prompts:
        prompt = request.prompts[output_index // request.sampling.n]
        return prompt if isinstance(prompt, str) else ""
    if not request.messages or not _may_continue(request.messages[-1], request.extra):
        return ""
    role = request.messages[-1].get("role")
    last = [*takewhile(lambda message: message.get("role") == role, reversed(request.messages))]
    return "".join(map(_message_text, reversed(last)))


def _may_continue(message: Mapping[str, Any], extra: Mapping[str, Any]) -> bool:
    """Whether the output may continue the chat's last message. Some engines continue the assistant's unasked.
    Upstreams also take the fields from an object, such as `chat_template_kwargs`."""
    objects = (extra, *(value for value in extra.values() if isinstance(value, Mapping)), message)
    return message.get("role") == "assistant" or any(
        fields.get("add_generation_prompt", True) is not True or any(map(fields.get, _CONTINUING))
        for fields in objects
    )


def _message_text(message: Mapping[str, Any]) -> str:
    """The content comes last: a prompt that continues the message ends with it. Without a content, the prompt
    ends with the tool calls' arguments."""
    texts = [_text_of(message.get(field)) for field in _BEFORE_CONTENT]
    return "".join([*texts, *_arguments_of(message.get("tool_calls")), _text_of(message.get("content"))])


def _arguments_of(calls: Any) -> list[str]:
    functions = [call.get("function") for call in _listed(calls) if isinstance(call, Mapping)]
    texts = [function.get("arguments") for function in functions if isinstance(function, Mapping)]
    return [text for text in texts if isinstance(text, str)]


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = _listed(content)
    texts = [part.get("text") or part.get("refusal") if hasattr(part, "get") else part for part in parts]
    return "".join(text for text in texts if isinstance(text, str))


def _listed(value: Any) -> list[Any] | tuple[Any, ...]:
    return value if isinstance(value, list | tuple) else ()
