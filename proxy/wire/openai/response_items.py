"""The items of a response's output, and the events of each item, in this order:

item added ─► [content part added] ─► deltas ─► text or arguments done ─► [content part done] ─► item done
"""

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

from engine.protocol import Delta
from engine.protocol.call_arguments import is_whole_object, object_of
from proxy.wire.openai.answer import Event, JSONObject, new_id
from proxy.wire.openai.response_tools import Callee, Toolbox, action_of, text_of

Status = Literal["in_progress", "completed", "incomplete"]


class OutputItem(ABC):
    """One item while it grows. Weir gives it its id: an upstream's own id is text that no hook has seen."""

    prefix: ClassVar[str]
    kind: ClassVar[str]
    """The events of its text, if it has any, are `kind` with `.delta` and `.done`."""

    def __init__(self, output_index: int) -> None:
        self.id = new_id(self.prefix, "_")
        self.output_index = output_index
        self.status: Status = "in_progress"
        self._pieces: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    def begin(self) -> list[Event]:
        return [("response.output_item.added", self._whole())]

    def add(self, text: str, logprobs: list[JSONObject]) -> list[Event]:
        self._pieces.append(text)
        return [(f"{self.kind}.delta", {**self._place(), "delta": text})]

    def end(self, status: Status) -> list[Event]:
        # A client may wait for a delta, so an item without text gets an empty one.
        events = [] if self._pieces else self.add("", [])
        self.status = status
        return [*events, *self._done(), ("response.output_item.done", self._whole())]

    @abstractmethod
    def json(self) -> JSONObject:
        """The item as it is so far."""

    @abstractmethod
    def _done(self) -> list[Event]:
        """The events that say that its text is complete."""

    def _place(self) -> JSONObject:
        return {"item_id": self.id, "output_index": self.output_index}

    def _whole(self) -> JSONObject:
        return {"output_index": self.output_index, "item": self.json()}


class Call(OutputItem):
    """A call of a tool. Its text is the arguments of the function that stands for the tool."""

    def __init__(self, output_index: int, callee: Callee) -> None:
        super().__init__(output_index)
        self.callee = callee
        self.call_id = new_id("call", "_")

    def end(self, status: Status) -> list[Event]:
        """A whole call is completed, also in a response that is not."""
        return super().end("completed" if is_whole_object(self.text) else status)

    def _called(self) -> JSONObject:
        """The tool's name, with its namespace if it has one."""
        name, namespace = self.callee.name, self.callee.namespace
        return {"name": name} if namespace is None else {"name": name, "namespace": namespace}


class FunctionCall(Call):
    prefix = "fc"
    kind = "response.function_call_arguments"

    def json(self) -> JSONObject:
        return {
            "type": "function_call",
            "id": self.id,
            "call_id": self.call_id,
            **self._called(),
            "arguments": self.text,
            "status": self.status,
        }

    def _done(self) -> list[Event]:
        named = {"name": self.callee.name, "arguments": self.text}
        return [(f"{self.kind}.done", {**self._place(), **named})]


class CustomCall(Call):
    """A call with a text, which comes in one piece at the call's end."""

    prefix = "ctc"
    kind = "response.custom_tool_call_input"

    def add(self, text: str, logprobs: list[JSONObject]) -> list[Event]:
        self._pieces.append(text)
        return []

    def json(self) -> JSONObject:
        return {
            "type": "custom_tool_call",
            "id": self.id,
            "call_id": self.call_id,
            **self._called(),
            "input": text_of(self.text),
            "status": self.status,
        }

    def _done(self) -> list[Event]:
        text, place = text_of(self.text), self._place()
        return [
            (f"{self.kind}.delta", {**place, "delta": text}),
            (f"{self.kind}.done", {**place, "input": text}),
        ]


class LocalShellCall(Call):
    """A command for the user's machine. The API has no events for its parts."""

    prefix = "lsh"

    def add(self, text: str, logprobs: list[JSONObject]) -> list[Event]:
        self._pieces.append(text)
        return []

    def json(self) -> JSONObject:
        return {
            "type": "local_shell_call",
            "id": self.id,
            "call_id": self.call_id,
            "action": action_of(self.text),
            "status": self.status,
        }

    def _done(self) -> list[Event]:
        return []


class ToolSearchCall(LocalShellCall):
    """A search for tools, which the client makes. The API has no events for its parts."""

    prefix = "tsc"

    def json(self) -> JSONObject:
        return {
            "type": "tool_search_call",
            "id": self.id,
            "call_id": self.call_id,
            "execution": "client",
            "arguments": object_of(self.text),
            "status": self.status,
        }


_CALLS: dict[str, type[Call]] = {
    "function": FunctionCall,
    "custom": CustomCall,
    "local_shell": LocalShellCall,
    "tool_search": ToolSearchCall,
}


class _WithContent(OutputItem):
    """An item whose content has one part: its text."""

    def begin(self) -> list[Event]:
        return [*super().begin(), ("response.content_part.added", {**self._place(), "part": self.part()})]

    @abstractmethod
    def part(self) -> JSONObject: ...

    @property
    def content(self) -> list[JSONObject]:
        return [self.part()] if self._pieces else []

    def _place(self) -> JSONObject:
        return {**super()._place(), "content_index": 0}

    def _done(self) -> list[Event]:
        return [
            (f"{self.kind}.done", {**self._place(), "text": self.text}),
            ("response.content_part.done", {**self._place(), "part": self.part()}),
        ]


class Reasoning(_WithContent):
    prefix = "rs"
    kind = "response.reasoning_text"

    def part(self) -> JSONObject:
        return {"type": "reasoning_text", "text": self.text}

    def json(self) -> JSONObject:
        return {
            "type": "reasoning",
            "id": self.id,
            "summary": [],
            "content": self.content,
            "status": self.status,
        }


class Message(_WithContent):
    prefix = "msg"
    kind = "response.output_text"

    def __init__(self, output_index: int) -> None:
        super().__init__(output_index)
        self._logprobs: list[JSONObject] = []

    def add(self, text: str, logprobs: list[JSONObject]) -> list[Event]:
        self._logprobs += logprobs
        ((kind, fields),) = super().add(text, logprobs)
        return [(kind, {**fields, "logprobs": logprobs})]

    def part(self) -> JSONObject:
        return {"type": "output_text", "text": self.text, "annotations": [], "logprobs": list(self._logprobs)}

    def json(self) -> JSONObject:
        return {
            "type": "message",
            "id": self.id,
            "role": "assistant",
            "content": self.content,
            "status": self.status,
        }

    def _done(self) -> list[Event]:
        (kind, fields), part = super()._done()
        return [(kind, {**fields, "logprobs": list(self._logprobs)}), part]


def item_for(delta: Delta, output_index: int, toolbox: Toolbox) -> OutputItem:
    """A new item of the kind that `delta`'s text belongs to."""
    if delta.tool_call is not None:
        callee = toolbox.callee(delta.tool_call.name)
        return _CALLS[callee.kind](output_index, callee)
    return Reasoning(output_index) if delta.channel == "reasoning" else Message(output_index)
