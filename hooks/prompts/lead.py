"""The text that an output continues (contract 2.8)."""

from typing import Any

from engine.protocol import Channel, GenerationRequest


def lead_of(request: GenerationRequest, output_index: int, channel: Channel) -> str:
    """The prompt of a completion, or the text of the last message if that is an assistant's.

    Empty for other requests, and for tool calls and the echo, which continue nothing. Empty as well for token
    ids that no tokenizer has made text.
    """
    if channel not in ("content", "reasoning"):
        return ""
    if request.prompts:
        prompt = request.prompts[output_index // request.sampling.n]
        return prompt if isinstance(prompt, str) else ""
    last = request.messages[-1] if request.messages else {}
    return _text_of(last.get("content")) if last.get("role") == "assistant" else ""


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list | tuple) else ()
    texts = [part.get("text") if hasattr(part, "get") else part for part in parts]
    return "".join(text for text in texts if isinstance(text, str))
