"""The input of a response: items, and the chat that they stand for.

The items of an answer can be input again: a caller who keeps the conversation sends them back, with or
without their ids, and for `previous_response_id` the service adds them itself.
"""

from collections.abc import Iterable
from itertools import groupby
from operator import attrgetter
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from proxy.wire.openai.answer import JSONObject
from proxy.wire.openai.chat import text_is_a_part, text_or_parts
from proxy.wire.openai.endpoint_fields import RequestObject


class InputPart(RequestObject):
    """A part of a message's content, of a function's output or of reasoning."""

    type: (
        Literal["input_text", "output_text", "text", "refusal", "reasoning_text"]
        | Literal["input_image", "input_file"]
    )
    text: str | None = None
    refusal: str | None = None
    image_url: str | None = None
    file_data: str | None = None
    file_url: str | None = None
    file_id: str | None = None
    filename: str | None = None

    @model_validator(mode="after")
    def _has_what_its_type_says(self) -> "InputPart":
        fields = _NEEDED_OF_PART.get(self.type, ("text",))
        if all(getattr(self, field) is None for field in fields):
            raise ValueError(f"a part of type {self.type} needs {' or '.join(fields)}")
        return self

    @property
    def visible_text(self) -> str:
        """The text of the part; empty for an image and a file."""
        if self.type in ("input_image", "input_file"):
            return ""
        return str(self.refusal if self.type == "refusal" else self.text)

    def to_chat(self) -> JSONObject:
        if self.type == "input_image":
            return {"type": "image_url", "image_url": {"url": self.image_url}}
        if self.type == "input_file":
            file = {"file_data": self.file_data or self.file_url, "file_id": self.file_id}
            given = {**file, "filename": self.filename}
            return {"type": "file", "file": {name: value for name, value in given.items() if value}}
        return {"type": "text", "text": self.visible_text}


_NEEDED_OF_PART = {
    "refusal": ("refusal",),
    "input_image": ("image_url",),
    "input_file": ("file_data", "file_url", "file_id"),
}

Content = Annotated[
    list[InputPart], BeforeValidator(text_is_a_part, json_schema_input_type=str | list[InputPart])
]


class InputItem(RequestObject):
    """One item of a conversation."""

    type: Literal["message", "function_call", "function_call_output", "reasoning", "item_reference"] = Field(
        "message", description="May be missing for a message"
    )
    id: str | None = None
    role: Literal["user", "assistant", "system", "developer"] | None = None
    content: Content | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: Content | None = None

    @model_validator(mode="after")
    def _has_what_its_type_says(self) -> "InputItem":
        missing = [name for name in _NEEDED[self.type] if getattr(self, name) is None]
        if missing:
            raise ValueError(f"a {self.type} needs {', '.join(missing)}")
        return self

    @property
    def is_assistants(self) -> bool:
        return self.type in ("function_call", "reasoning") or self.role == "assistant"


_NEEDED = {
    "message": ("role", "content"),
    "function_call": ("call_id", "name"),
    "function_call_output": ("call_id", "output"),
    "reasoning": (),
    "item_reference": ("id",),
}


def to_messages(items: Iterable[InputItem]) -> list[JSONObject]:
    """The items as a chat. Adjacent items of the assistant (text, reasoning, calls) form one message."""
    messages: list[JSONObject] = []
    for is_assistants, run in groupby(items, attrgetter("is_assistants")):
        adjacent = list(run)
        messages += [_assistants(adjacent)] if is_assistants else map(_message, adjacent)
    return messages


def _message(item: InputItem) -> JSONObject:
    if item.type == "function_call_output":
        content = text_or_parts([part.to_chat() for part in item.output or ()])
        return {"role": "tool", "tool_call_id": item.call_id, "content": content}
    # Few chat templates know the role developer. A system message means the same to them.
    role = "system" if item.role == "developer" else item.role
    return {"role": role, "content": text_or_parts([part.to_chat() for part in item.content or ()])}


def _assistants(items: Iterable[InputItem]) -> JSONObject:
    content: list[str] = []
    reasoning: list[str] = []
    calls: list[JSONObject] = []
    for item in items:
        if item.type == "function_call":
            arguments = "{}" if item.arguments is None else item.arguments
            function = {"name": item.name, "arguments": arguments}
            calls.append({"id": item.call_id, "type": "function", "function": function})
        else:
            texts = content if item.type == "message" else reasoning
            texts += [part.visible_text for part in item.content or ()]
    message: JSONObject = {"role": "assistant", "content": "".join(content)}
    if calls:
        message["tool_calls"] = calls
    if any(reasoning):
        message["reasoning_content"] = "".join(reasoning)
    return message
