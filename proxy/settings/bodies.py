"""The bounds of a request's body."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

BYTES_PER_TOKEN = 16
"""Bytes of JSON for a token of text. English needs about 5, and text in `\\u` escapes about 12."""
LEAST_BODY = 2 * 1024 * 1024
UNKNOWN_BODY = 16 * 1024 * 1024
AtLeastOne = Annotated[int, Field(ge=1)]
NotNegative = Annotated[int, Field(ge=0)]


class BodyOptions(BaseModel):
    """The bounds of a request's body. A body beyond one of them is refused with the field's name."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    max_body_size: AtLeastOne | None = None
    """Longest request body, in bytes (default: 16 for each token that the model can take, but at least 2 MiB;
    16 MiB if the model's length is not known)"""
    max_json_values: AtLeastOne = 131_072
    """Values in a body, beside one token id for each token that the model can take"""
    max_json_objects: AtLeastOne = 16_384
    """Objects and lists in a body"""
    max_fields: AtLeastOne = 256
    """Fields of a body, and of one message, part, item or tool"""
    max_messages: AtLeastOne = 2048
    """Messages of a chat, and items of a response's conversation"""
    max_content_parts: AtLeastOne = 2048
    """Parts and tool calls of all messages of a chat, or of all items of an input"""
    max_tools: NotNegative = 256
    """Tools of a request"""
    max_prompts: AtLeastOne = 1024
    """Prompts of a completion"""
    max_outputs: AtLeastOne = 4096
    """Outputs of a request: its prompts times n or best_of"""
    max_stop_strings: NotNegative = 32
    """Stop strings of a request"""
    max_logit_bias: NotNegative = 1024
    """Entries of logit_bias"""
    max_metadata: NotNegative = 16
    """Entries of metadata"""
    max_metadata_key: AtLeastOne = 64
    """Characters of a key of metadata"""
    max_metadata_value: AtLeastOne = 512
    """Characters of a value of metadata, or bytes of its JSON if it is no text"""
    max_schema_size: AtLeastOne = 128 * 1024
    """Bytes of one tool, and of a schema or a grammar that an answer must follow"""
    max_schema_branches: AtLeastOne = 100
    """Schemas for one value in a schema of a request: entries of anyOf, oneOf and allOf, and those in them"""


def max_body_size(options: BodyOptions, max_model_len: int | None) -> int:
    """Bytes of the longest body that is read, for a model of this length (None: not known)."""
    if options.max_body_size is not None:
        return options.max_body_size
    if max_model_len is None:
        return UNKNOWN_BODY
    return max(LEAST_BODY, BYTES_PER_TOKEN * max_model_len)
