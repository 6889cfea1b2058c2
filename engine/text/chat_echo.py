"""The echo of a chat: the message that the answer continues, in front of the answer, as vLLM gives it.

The text is the caller's own, so no engine is asked for it: every engine's answer begins in the same way.
"""

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any

from engine.protocol import Delta, GenerationRequest
from engine.protocol.deltas import with_prompt_of, without_prompt
from engine.streams.generation import Generation, Stage


def with_echo(request: GenerationRequest, source: Generation) -> Generation:
    """`source`, each output with its echo first if the request is a chat that wants one."""
    text = echoed_text(request) if request.echo and request.is_chat else ""
    return Stage(source, partial(_with_text, text)) if text else source


def echoed_text(request: GenerationRequest) -> str:
    """The last message's text if the assistant said it, or if the prompt begins no new message. Parts of text
    are joined by a line's end."""
    last = request.messages[-1] if request.messages else {}
    begins_new = not (
        request.extra.get("continue_final_message") or request.extra.get("add_generation_prompt") is False
    )
    if begins_new and last.get("role") != "assistant":
        return ""
    content = last.get("content") or ""
    return content if isinstance(content, str) else "\n".join(filter(None, map(_part_text, content)))


def _part_text(part: Any) -> str:
    text = part.get("text") if isinstance(part, Mapping) else part
    return text if isinstance(text, str) else ""


async def _with_text(text: str, source: Generation) -> AsyncGenerator[Delta, None]:
    begun: set[int] = set()
    async with aclosing(source):
        async for delta in source:
            if delta.index not in begun:
                begun.add(delta.index)
                yield with_prompt_of(Delta(index=delta.index, text=text, channel="echo"), delta)
                delta = without_prompt(delta)
            yield delta
