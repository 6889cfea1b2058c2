"""The text that an output continues (contract 2.8)."""

from collections.abc import Mapping
from itertools import takewhile
from typing import Any

from engine.protocol import Channel, GenerationRequest

_TEXTS = ("reasoning_content", "reasoning", "content", "refusal")
"""The fields of an assistant's message that hold what it said."""


def lead_of(request: GenerationRequest, output_index: int, channel: Channel) -> str:
    """The prompt of a completion, or the text of the assistant's messages that end a chat: a template may
    join them, and an empty one behind another changes nothing.

    Empty for other requests, and for tool calls and the echo, which continue nothing. Empty as well for token
    ids that no tokenizer has made text.
    """
    if channel not in ("content", "reasoning"):
        return ""
    if request.prompts:
        prompt = request.prompts[output_index // request.sampling.n]
        return prompt if isinstance(prompt, str) else ""
    last = [*takewhile(_is_assistants, reversed(request.messages))]
    return "".join(_text_of(message.get(field)) for message in reversed(last) for field in _TEXTS)


def _is_assistants(message: Mapping[str, Any]) -> bool:
    return message.get("role") == "assistant"


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list | tuple) else ()
    texts = [part.get("text") or part.get("refusal") if hasattr(part, "get") else part for part in parts]
    return "".join(text for text in texts if isinstance(text, str))
