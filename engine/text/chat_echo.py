"""The echo of a chat: the message that the answer continues, in front of the answer, as vLLM gives it.

The text is the caller's own, so no engine is asked for it: every engine's answer begins in the same way.
"""

from collections.abc import Mapping
from typing import Any

from engine.protocol import Delta, GenerationRequest
from engine.protocol.deltas import with_prompt_of, without_prompt
from engine.streams.flow import Stage


class ChatEcho(Stage):
    """Feeds each output's echo before its first delta."""

    __slots__ = ("_begun", "_text")

    def __init__(self, text: str) -> None:
        """`text`: of `echoed_text`."""
        self._text = text
        self._begun: set[int] = set()

    def feed(self, delta: Delta) -> None:
        if delta.index not in self._begun:
            self._begun.add(delta.index)
            echo = Delta(index=delta.index, text=self._text, channel="echo")
            self.next.feed(with_prompt_of(echo, delta))
            delta = without_prompt(delta)
        self.next.feed(delta)


def echoed_text(request: GenerationRequest) -> str:
    """The text to echo: the last message's, if the assistant said it or if the prompt begins no new message.
    Parts of text are joined by a line's end. Empty: the request wants no echo, or is no chat."""
    if not (request.echo and request.is_chat):
        return ""
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
