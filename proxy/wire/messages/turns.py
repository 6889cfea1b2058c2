"""The turns of a request to the Messages API, and the chat that they stand for.

A turn's content is a text or blocks. The blocks of one turn become one chat message, but each result of a
tool becomes a message of its own, in front of the turn's other blocks.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Annotated, Any, Literal

import orjson
from pydantic import BeforeValidator, Field, model_validator

from engine.protocol.documents import document_part
from engine.protocol.fields.names import is_neutral
from proxy.wire.messages.blocks_kept import is_mark, is_opaque
from proxy.wire.openai.answer import JSONObject
from proxy.wire.openai.chat import text_is_a_part, text_or_parts
from proxy.wire.openai.endpoint_fields import RequestObject


class Source(RequestObject):
    """The bytes of an image or a document, the place to find them, or the document's text."""

    type: Literal["base64", "url", "text", "content"]
    media_type: str | None = None
    data: str | None = None
    url: str | None = None
    content: "Content | None" = None

    @model_validator(mode="after")
    def _has_what_its_type_says(self) -> "Source":
        needed = _NEEDED_OF_SOURCE[self.type]
        if missing := [name for name in needed if getattr(self, name) is None]:
            raise ValueError(f"a source of type {self.type} needs {', '.join(missing)}")
        # No hook is shown these two, so they have no place for words.
        if "data" in needed and self.media_type and not _MEDIA_TYPE.fullmatch(self.media_type):
            raise ValueError("the media_type of a source is one such as image/png")
        if self.type == "base64" and not is_opaque(self.data):
            raise ValueError("the data of a base64 source is base64")
        return self

    @property
    def as_url(self) -> str:
        return self.url or "" if self.type == "url" else f"data:{self.media_type};base64,{self.data}"

    @property
    def texts(self) -> list[str] | None:
        """The document's own texts. None: it is a file."""
        if self.type == "content":
            return [block.text or "" for block in self.content or ()]
        return [self.data or ""] if self.type == "text" else None


_MEDIA_TYPE = re.compile(r"(?=.{3,100}$)[A-Za-z0-9.+-]+/[A-Za-z0-9.+-]+")
_NEEDED_OF_SOURCE = {
    "base64": ("media_type", "data"),
    "url": ("url",),
    "text": ("data",),
    "content": ("content",),
}


class Block(RequestObject):
    """A block of a turn's content. The fields of other types than its own are ignored."""

    type: (
        Literal["text", "image", "document", "search_result"]
        | Literal["tool_use", "tool_result", "tool_reference", "thinking", "redacted_thinking"]
    )
    text: str | None = None
    source: Source | str | None = None
    title: str | None = None
    context: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: "Content" = Field(default_factory=list)
    is_error: bool | None = None
    tool_name: str | None = None
    thinking: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        return {k: v for k, v in data.items() if v is not None} if isinstance(data, dict) else data

    @model_validator(mode="after")
    def _has_what_its_type_says(self) -> "Block":
        if missing := [name for name in _NEEDED.get(self.type, ()) if getattr(self, name) is None]:
            raise ValueError(f"a {self.type} block needs {', '.join(missing)}")
        if self.type in ("image", "document") and not isinstance(self.source, Source):
            raise ValueError(f"the source of a {self.type} block is an object")
        if self.type == "image" and isinstance(self.source, Source) and self.source.texts is not None:
            raise ValueError("an image's source is base64 or url")
        if self.type == "search_result" and not isinstance(self.source, str):
            raise ValueError("the source of a search_result block is a text")
        inner = self.source.content or () if isinstance(self.source, Source) else ()
        if self.type == "search_result":
            inner = self.content
        if any(block.type != "text" for block in inner):
            raise ValueError(f"the content of a {self.type} block is text")
        return self

    @property
    def unread(self) -> Iterator[str]:
        """The names of the fields that ask for something and have no effect here."""
        for name, value in (self.model_extra or {}).items():
            is_read = is_mark(value) if name == "cache_control" else name in _MARKS
            if not is_read and not is_neutral(name, value):
                yield name
        if self.context and isinstance(self.source, Source) and self.source.texts is None:
            yield "context"  # a file has no place for it
        for block in self.content:
            yield from block.unread

    def to_part(self) -> JSONObject:
        """The part of a chat message's content."""
        source = self.source
        if isinstance(source, str):
            return document_part(self.title, source, *(block.text for block in self.content))
        if source is None:
            return {"type": "text", "text": self.text if self.type == "text" else self.tool_name}
        if self.type == "image":
            return {"type": "image_url", "image_url": {"url": source.as_url}}
        if source.texts is not None:
            return document_part(self.title, self.context, *source.texts)
        file = {"file_data": source.as_url} | ({"filename": self.title} if self.title else {})
        return {"type": "file", "file": file}


_MARKS = frozenset({"caller", "signature", "data"})
"""Fields that servers put into blocks. Clients send them back."""
_NEEDED = {
    "text": ("text",),
    "image": ("source",),
    "document": ("source",),
    "search_result": ("source", "title"),
    "tool_use": ("id", "name"),
    "tool_result": ("tool_use_id",),
    "tool_reference": ("tool_name",),
    "thinking": ("thinking",),
}

Content = Annotated[list[Block], BeforeValidator(text_is_a_part, json_schema_input_type=str | list[Block])]
Block.model_rebuild()

_OF_USER = {"text", "image", "document", "search_result"}
_RESULT = {*_OF_USER, "tool_reference"}
_USER, _ASSISTANT = {*_OF_USER, "tool_result"}, {"text", "tool_use", "thinking"}
_ALLOWED = {"user": _USER, "assistant": _ASSISTANT | {"redacted_thinking"}, "system": {"text"}}


class Turn(RequestObject):
    """One turn of a conversation."""

    role: Literal["user", "assistant", "system"]
    content: Content

    @model_validator(mode="after")
    def _has_blocks_of_its_role(self) -> "Turn":
        for block in self.content:
            if block.type not in _ALLOWED[self.role]:
                raise ValueError(f"a turn of {self.role} has no {block.type} block")
            if any(inner.type not in _RESULT for inner in block.content):
                kinds = ", ".join(sorted(_RESULT))
                raise ValueError(f"the blocks of a tool_result are of the types {kinds}")
        return self


def system_text(content: Iterable[Block]) -> str:
    """The text of a system prompt, which is a text or text blocks."""
    return "\n\n".join(block.text for block in content if block.text)


def to_messages(turns: Iterable[Turn]) -> list[JSONObject]:
    """The turns as a chat. Turns of one role in a row are one turn."""
    messages: list[JSONObject] = []
    for role, run in groupby(turns, attrgetter("role")):
        blocks = [block for turn in run for block in turn.content]
        if role == "user":
            messages += _of_user(blocks)
        elif role == "assistant":
            messages.append(_of_assistant(blocks))
        else:
            messages.append({"role": "system", "content": system_text(blocks)})
    return messages


def turn_indices(turns: Sequence[Turn]) -> list[int]:
    """The turn of each message that `to_messages` makes: the first of those that it is made of."""
    indices: list[int] = []
    first = 0
    for role, run in groupby(turns, attrgetter("role")):
        own = [[block.type for block in turn.content] for turn in run]
        if role == "user":
            results = [i for i, types in enumerate(own) for kind in types if kind == "tool_result"]
            rest = [i for i, types in enumerate(own) for kind in types if kind != "tool_result"]
            indices += [first + i for i in [*results, *(rest[:1] or ([] if results else [0]))]]
        else:
            indices.append(first)
        first += len(own)
    return indices


def _of_user(blocks: list[Block]) -> Iterator[JSONObject]:
    for block in blocks:
        if block.type == "tool_result":
            content = text_or_parts([one.to_part() for one in block.content])
            yield {"role": "tool", "tool_call_id": block.tool_use_id, "content": _failed(content, block)}
    rest = [block for block in blocks if block.type != "tool_result"]
    if rest or not blocks:
        yield {"role": "user", "content": text_or_parts([block.to_part() for block in rest])}


def _failed(content: str | list[JSONObject], block: Block) -> str | list[JSONObject]:
    """The result's content. A chat has no other place to say that a tool failed."""
    if not block.is_error:
        return content
    if isinstance(content, str):
        return f"Error: {content}" if content else "Error"
    return [{"type": "text", "text": "Error:"}, *content]


def _of_assistant(blocks: list[Block]) -> JSONObject:
    """Signatures of thinking, and redacted thinking, come from other servers and say nothing here."""
    message: JSONObject = {"role": "assistant"}
    message["content"] = "".join(block.text or "" for block in blocks if block.type == "text")
    if thinking := "".join(block.thinking or "" for block in blocks if block.type == "thinking"):
        message["reasoning_content"] = thinking
    if calls := [_call(block) for block in blocks if block.type == "tool_use"]:
        message["tool_calls"] = calls
    return message


def _call(block: Block) -> JSONObject:
    arguments = orjson.dumps(block.input or {}).decode()
    return {"id": block.id, "type": "function", "function": {"name": block.name, "arguments": arguments}}
