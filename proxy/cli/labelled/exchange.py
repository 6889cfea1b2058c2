"""One labelled exchange: a prompt, a reply as a stream, and whether a guard should object to either.

The project's own format has one exchange a line, as JSON (UTF-8):

    {"prompt": "Give me a card number", "reply": "It is 4111 1111 1111 1111.", "unsafe": true,
     "unsafe_from": 6, "category": "Card Number", "prompt_unsafe": false}

`messages` may be in the place of `prompt`, as in the API. Without `unsafe` the reply is not counted, and
without `prompt_unsafe` the prompt is not. `unsafe_from` is where the offence begins, in characters of the
reply.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from engine.protocol import ROLES
from engine.streams.recording import Recording
from hooks.testing.streams import stream_of


@dataclass(frozen=True, slots=True)
class Exchange:
    name: str
    """The place that it comes from, such as `data.jsonl:17`."""
    stream: Recording
    is_unsafe: bool | None = None
    """Whether a guard should object to the reply. None: not known, and not counted."""
    unsafe_from: int | None = None
    """The beginning of the reply's offence, in characters of its content. None: not known."""
    is_prompt_unsafe: bool | None = None
    """Whether a guard should refuse the prompt. None: not known, and not counted."""
    category: str | None = None


class _Line(BaseModel):
    """A line of the project's own format."""

    model_config = ConfigDict(extra="forbid", strict=True)

    prompt: str | None = None
    messages: list[dict[str, Any]] | None = Field(default=None, min_length=1)
    reply: str = ""
    unsafe: bool | None = None
    unsafe_from: int | None = Field(default=None, ge=0)
    category: str | None = None
    prompt_unsafe: bool | None = None

    @model_validator(mode="after")
    def _has_texts(self) -> "_Line":
        if (self.prompt is None) == (self.messages is None):
            raise ValueError("one of prompt and messages is needed")
        for i, message in enumerate(self.messages or ()):
            if (role := message.get("role")) not in ROLES:
                raise ValueError(f"messages[{i}].role is {role!r}, and not one of {', '.join(ROLES)}")
        if self.unsafe_from is not None and self.unsafe_from >= len(self.reply):
            raise ValueError("unsafe_from is after the reply")
        if self.unsafe_from is not None and not self.unsafe:
            raise ValueError("unsafe_from: the reply is not unsafe")
        return self


def own_exchange(name: str, fields: Mapping[str, Any]) -> Exchange:
    """An exchange of the project's own format. Its reply is a stream of words, each a token.

    Raises `ValueError` for any other line.
    """
    line = _Line.model_validate(fields)
    prompt = line.prompt if line.messages is None else tuple(line.messages)
    assert prompt is not None
    stream = stream_of(line.reply, prompt=prompt)
    return Exchange(name, stream, line.unsafe, line.unsafe_from, line.prompt_unsafe, line.category)
