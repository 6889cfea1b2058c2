"""The input of a response: items, and the chat that they stand for.

The items of an answer can be input again: a caller who keeps the conversation sends them back, with or
without their ids, and for `previous_response_id` the service adds them itself. A conversation that began
elsewhere also has items that Weir never makes, such as a search of the web. In the chat, each of these is a
call and its result, so that hooks and the model read all of it.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import (
    BeforeValidator,
    Field,
    PlainSerializer,
    ValidationInfo,
    WrapValidator,
    field_validator,
    model_validator,
)

from proxy.wire.openai.answer import JSONObject
from proxy.wire.openai.chat import text_is_a_part, text_or_parts
from proxy.wire.openai.endpoint_fields import RequestObject
from proxy.wire.openai.response_tools import LOCAL_SHELL, Tool, arguments_of, chat_name


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


_OPAQUE = {"compaction", "compaction_summary", "context_compaction"}
"""Items that only the server that made them can read. They are left out."""
_NO_CALLS = _OPAQUE | {"message", "reasoning", "item_reference", "additional_tools"}
_ADDING = {"additional_tools", "tool_search_output"}
"""Items whose tools can be called from then on."""
_OF_OTHERS = {"agent_message", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "program"}
"""Items that are a call and its result in a chat, beside those whose type ends with `_call`."""
_RESULTS = ("results", "outputs", "result", "error", "tools")
"""The fields of other items that have a result."""
_NO_ARGUMENTS = {
    *("type", "id", "status", "call_id", "role", "name", "server_label", "content", "output"),
    *_RESULTS,
}


def _only_added(value: Any, read: Callable[[Any], Any], info: ValidationInfo) -> Any:
    return read(value) if info.data.get("type") in _ADDING else value


def _as_it_is(tools: Any) -> Any:
    return tools


def _result_is_parts(value: Any, info: ValidationInfo) -> Any:
    """The parts of a result. That of a function or a custom tool has the API's parts already."""
    if info.data.get("type") in _NEEDED or isinstance(value, str) or value is None:
        return text_is_a_part(value)
    values = value if isinstance(value, list) else [value]
    return [_part_of(one) for one in values]


def _part_of(value: Any) -> JSONObject:
    if isinstance(value, Mapping):
        if isinstance(image := value.get("image_url"), str):
            return {"type": "input_image", "image_url": image}
        if value.get("type") == "input_text":
            return dict(value)
    return {"type": "input_text", "text": _written(value)}


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


class InputItem(RequestObject):
    """One item of a conversation."""

    type: str = Field("message", description="May be missing for a message")
    id: str | None = None
    role: Literal["user", "assistant", "system", "developer"] | None = None
    content: Content | None = None
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: Any = Field(None, description="A text, of a `function_call`")
    input: str | None = None
    action: dict[str, Any] | None = None
    output: Annotated[
        list[InputPart] | None,
        BeforeValidator(_result_is_parts, json_schema_input_type=str | list[InputPart] | None),
    ] = None
    tools: Annotated[list[Tool] | None, WrapValidator(_only_added), PlainSerializer(_as_it_is)] = None

    @field_validator("type")
    @classmethod
    def _is_known(cls, kind: str) -> str:
        if kind in _NO_CALLS or kind in _OF_OTHERS or kind.endswith(("_call", "_output")):
            return kind
        raise ValueError("this server takes no items of this type")

    @model_validator(mode="after")
    def _has_what_its_type_says(self) -> "InputItem":
        missing = [name for name in _NEEDED.get(self.type, ()) if getattr(self, name) is None]
        if missing:
            raise ValueError(f"a {self.type} needs {', '.join(missing)}")
        if self.type == "function_call" and not isinstance(self.arguments, str | None):
            raise ValueError("the arguments of a function_call are a text")
        if self.is_result and not (self.call_id or self.id):
            raise ValueError(f"a {self.type} needs call_id")
        return self

    @property
    def is_result(self) -> bool:
        """Whether it is the result of a call that is an item of its own."""
        return self.type.endswith("_output")

    @property
    def is_assistants(self) -> bool:
        return self.role == "assistant" if self.type == "message" else not self.is_result

    @property
    def is_opaque(self) -> bool:
        """Whether nobody here can read it."""
        return self.type in _OPAQUE

    @property
    def added_tools(self) -> list[Tool]:
        """Tools for the rest of the conversation."""
        return self.tools or [] if self.type in _ADDING else []

    def function(self) -> JSONObject:
        """The function, with its arguments, that stands for a call. One that OpenAI's servers, or a client's
        own, carried out is a function with the name of the item's type."""
        kind, named = self.type, chat_name(self.name or self.type, self.namespace)
        if kind == "function_call":
            return {"name": named, "arguments": "{}" if self.arguments is None else self.arguments}
        if kind == "custom_tool_call":
            return {"name": named, "arguments": arguments_of(self.input or "")}
        if kind == "local_shell_call":
            action = {name: value for name, value in (self.action or {}).items() if name != "type"}
            return {"name": LOCAL_SHELL, "arguments": _written(action)}
        server = self._extra("server_label")
        name = self.name or kind.removesuffix("_call")
        arguments = self.arguments
        if kind == "tool_search_call" and isinstance(arguments, dict):
            arguments = _written(arguments)
        if not isinstance(arguments, str):
            arguments = _written(self.model_dump(exclude=_NO_ARGUMENTS, exclude_none=True))
        return {"name": chat_name(name, server if isinstance(server, str) else None), "arguments": arguments}

    @property
    def has_own_result(self) -> bool:
        """Whether its result is not an item of its own."""
        return self.type not in _NEEDED and (self.call_id is None or bool(self.result()))

    def result(self) -> str | list[JSONObject]:
        """The content of a result."""
        parts = [part.to_chat() for part in (*(self.content or ()), *(self.output or ()))]
        # The result of this type is an image, in base64.
        others = () if self.type == "image_generation_call" else _RESULTS
        given = self.model_dump(include={*others}, exclude_none=True)
        found = (given.get(name) for name in others)
        parts += [{"type": "text", "text": _written(one)} for one in found if one is not None]
        return text_or_parts(parts)

    def _extra(self, name: str) -> Any:
        return (self.model_extra or {}).get(name)


_NEEDED = {
    "message": ("role", "content"),
    "function_call": ("call_id", "name"),
    "function_call_output": ("call_id", "output"),
    "custom_tool_call": ("call_id", "name", "input"),
    "custom_tool_call_output": ("call_id", "output"),
    "local_shell_call": ("action",),
    "additional_tools": ("tools",),
    "reasoning": (),
    "item_reference": ("id",),
}


def to_messages(items: Iterable[InputItem]) -> list[JSONObject]:
    """The items as a chat. Adjacent items of the assistant (text, reasoning, calls) form one message."""
    return [message for _, message in placed_messages(items)]


def placed_messages(items: Iterable[InputItem]) -> list[tuple[int, JSONObject]]:
    """The messages of `to_messages`, each with the place of the first item that it is made of."""
    shown = [
        (place, item)
        for place, item in enumerate(items)
        if not (item.is_opaque or item.type == "additional_tools")
    ]
    ids = [item.call_id or item.id or f"call_{i}" for i, (_, item) in enumerate(shown)]
    # The result of a command may have the id of the item in place of the call's.
    calls = {item.id: call_id for (_, item), call_id in zip(shown, ids, strict=True) if not item.is_result}
    placed = [_Placed(*one, calls.get(call_id, call_id)) for one, call_id in zip(shown, ids, strict=True)]
    messages: list[tuple[int, JSONObject]] = []
    for is_assistants, run in groupby(placed, lambda one: one.item.is_assistants):
        adjacent = list(run)
        if is_assistants:
            messages += _assistants(adjacent)
        else:
            messages += [(one.place, _message(one.item, one.call_id)) for one in adjacent]
    return messages


class _Placed(NamedTuple):
    """An item, its place among all, and the id of its call."""

    place: int
    item: InputItem
    call_id: str


def _message(item: InputItem, call_id: str) -> JSONObject:
    if item.is_result:
        return _result(item, call_id)
    # Few chat templates know the role developer. A system message means the same to them.
    role = "system" if item.role == "developer" else item.role
    return {"role": role, "content": text_or_parts([part.to_chat() for part in item.content or ()])}


def _result(item: InputItem, call_id: str) -> JSONObject:
    return {"role": "tool", "tool_call_id": call_id, "content": item.result()}


def _assistants(items: Sequence[_Placed]) -> list[tuple[int, JSONObject]]:
    """The message of adjacent items, and the results that some of them have themselves."""
    content: list[str] = []
    reasoning: list[str] = []
    calls: list[JSONObject] = []
    results: list[tuple[int, JSONObject]] = []
    for place, item, call_id in items:
        if item.type in ("message", "reasoning"):
            texts = content if item.type == "message" else reasoning
            texts += [part.visible_text for part in item.content or ()]
            continue
        calls.append({"id": call_id, "type": "function", "function": item.function()})
        if item.has_own_result:
            results.append((place, _result(item, call_id)))
    message: JSONObject = {"role": "assistant", "content": "".join(content)}
    if calls:
        message["tool_calls"] = calls
    if any(reasoning):
        message["reasoning_content"] = "".join(reasoning)
    return [(items[0].place, message), *results]
