"""The messages of a dialogue, and the request that asks for the next answer."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from proxy.cli.dialogue.client import ChatEvent, Text, ToolCall

Message = dict[str, Any]


@dataclass
class Conversation:
    model: str | None = None
    """The model to ask; None: not chosen yet."""
    system: str | None = None
    hooks: list[str] = field(default_factory=list)
    """Hooks that requests name, to run in addition to the server's own."""
    fields: dict[str, Any] = field(default_factory=dict)
    """Other fields of the requests, such as `max_tokens`."""
    messages: list[Message] = field(default_factory=list)
    """Without the system prompt."""
    last: str | None = None
    """The latest message, also if it left the history."""
    _has_last: bool = False
    """Whether the history has it."""

    def body(self) -> Message:
        """The request for the next answer."""
        system = [{"role": "system", "content": self.system}] if self.system else []
        hooks = {"hooks": self.hooks} if self.hooks else {}
        return {"model": self.model, "messages": [*system, *self.messages], **hooks, **self.fields}

    @property
    def open_calls(self) -> list[Mapping[str, Any]]:
        """The model's tool calls that have no result yet."""
        answered = set()
        for message in reversed(self.messages):
            if message["role"] == "tool":
                answered.add(message["tool_call_id"])
            else:
                return [call for call in message.get("tool_calls", ()) if call["id"] not in answered]
        return []

    def add(self, text: str) -> None:
        """The result of the first open tool call, or else the user's message."""
        self.last, self._has_last = text, True
        if calls := self.open_calls:
            self.messages.append({"role": "tool", "tool_call_id": calls[0]["id"], "content": text})
        else:
            self.messages.append({"role": "user", "content": text})

    def answer(self, message: Message) -> None:
        self.messages.append(message)

    def undo(self) -> str | None:
        """Take out the latest message that has not been typed by the model, and the answer to it. Returns its
        text; None if there is no message."""
        self._has_last = False
        while self.messages:
            message = self.messages.pop()
            if message["role"] != "assistant":
                return str(message["content"])
        return None

    def take_last(self) -> str | None:
        """The latest message, to be sent again. It is no longer in the history."""
        if self._has_last:
            self.undo()
        return self.last

    def clear(self) -> None:
        self.messages.clear()
        self._has_last = False


class Answer:
    """An answer, put together from its events."""

    def __init__(self) -> None:
        self._content: list[str] = []
        self._calls: dict[int, dict[str, str]] = {}

    def add(self, event: ChatEvent) -> None:
        if isinstance(event, Text) and event.channel == "content":
            self._content.append(event.text)
        elif isinstance(event, ToolCall):
            call = self._calls.setdefault(event.index, {"id": "", "name": "", "arguments": ""})
            for name in call:
                call[name] += getattr(event, name)

    def message(self, *, is_whole: bool = True) -> Message | None:
        """As a message of the history; None if there is nothing to keep. Without its end, an answer's tool
        calls are left out."""
        content, calls = "".join(self._content), self._calls if is_whole else {}
        if not content and not calls:
            return None
        message: Message = {"role": "assistant", "content": content}
        if calls:
            message["tool_calls"] = [
                {"id": one["id"], "type": "function", "function": {k: one[k] for k in ("name", "arguments")}}
                for one in calls.values()
            ]
        return message
