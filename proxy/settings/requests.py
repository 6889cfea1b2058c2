"""The bounds of requests: how long a body may be, what it may hold, and how much one caller may ask at once.

A `ClassVar` is a limit that no operator needs to set: it is far beyond what clients send, and it bounds the
memory and the time that reading one body costs.
"""

from typing import Annotated, ClassVar

from pydantic import BaseModel, ConfigDict, Field

AtLeastOne = Annotated[int, Field(ge=1)]


class BodyOptions(BaseModel):
    """The bounds of a request's body. A body beyond one of them is refused with the field's name."""

    model_config = ConfigDict(defer_build=True)

    max_body_size: AtLeastOne | None = None
    """Longest request body, in bytes (default: 16 for each token that the model can take, but at least 2 MiB;
    16 MiB if the model's length is not known)"""
    max_json_values: ClassVar[int] = 131_072
    """Values in a body, in addition to one token id for each token that the model can take."""
    max_json_objects: ClassVar[int] = 16_384
    """Objects and lists in a body. Each costs about a hundred times its bytes."""
    max_fields: ClassVar[int] = 256
    """Fields of a body, and of one message, part, item or tool."""
    max_messages: ClassVar[int] = 2048
    """Messages of a chat, and items of a response's conversation."""
    max_content_parts: ClassVar[int] = 2048
    """Parts and tool calls of all messages of a chat, or of all items of an input."""
    max_tools: ClassVar[int] = 256
    """Tools of a request. OpenAI's API takes 128."""
    max_prompts: ClassVar[int] = 1024
    """Prompts of a completion."""
    max_outputs: ClassVar[int] = 4096
    """Outputs of a request: its prompts times n or best_of."""
    max_stop_strings: ClassVar[int] = 32
    """Stop strings of a request. OpenAI's API takes 4."""
    max_logit_bias: ClassVar[int] = 1024
    """Entries of logit_bias. OpenAI's API takes 300."""
    max_metadata: ClassVar[int] = 16
    """Entries of metadata, as in OpenAI's API, with the two lengths below."""
    max_metadata_key: ClassVar[int] = 64
    """Characters of a key of metadata."""
    max_metadata_value: ClassVar[int] = 512
    """Characters of a value of metadata, or bytes of its JSON if it is no text."""
    max_schema_size: ClassVar[int] = 128 * 1024
    """Bytes of one tool, and of a schema or a grammar that an answer must follow."""
    max_schema_branches: ClassVar[int] = 100
    """Schemas for one value in a schema of a request: entries of anyOf, oneOf and allOf, and those in them.
    Grammars are built of all of them at once."""


class CallerOptions(BaseModel):
    """The bounds of what one caller may do at once. `EngineOptions` has those of the in-process engine."""

    model_config = ConfigDict(defer_build=True)

    max_requests_per_caller: AtLeastOne = 1024
    """Requests of one caller at the same time. One more gets status 429. A caller is an API key, or on a
    server without keys an address"""
    max_body_bytes_per_caller: ClassVar[int] = 256 * 1024 * 1024
    """Bytes of the bodies of these requests. One more body beyond gets status 429. A thousand requests fit,
    with 256 KiB each, and one body alone is always taken."""
