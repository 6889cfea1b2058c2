"""The length of prompts: a measure of the work to come, the bound of texts that can fit a model, and the
error for what does not fit."""

from collections.abc import Mapping
from typing import Any

from engine.protocol import GenerationRequest, RequestError

CONTEXT_LENGTH = "This model's maximum context length is"
"""The words by which clients such as LiteLLM know the error. LangChain reads the error's code."""
CONTEXT_LENGTH_EXCEEDED = "context_length_exceeded"
"""The error's code."""

LONG_PROMPT = 16 * 1024
"""Characters of a long prompt. Tokenizing or searching it would delay other requests."""


def prompt_size(request: GenerationRequest) -> int:
    """Characters of the texts that make a request's prompts, and their token ids."""
    return text_size((request.messages, request.prompts, request.tools, request.extra))


def text_size(value: Any) -> int:
    """Characters of all texts in a JSON value; each token id counts as one."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        return sum(map(text_size, value.values()))
    if isinstance(value, list | tuple):
        return len(value) if value and isinstance(value[0], int) else sum(map(text_size, value))
    return 1


def too_long(
    max_model_len: int | None, details: str, param: str | None = None, status: int = 400
) -> RequestError:
    """The error for a request beyond the model's context, in OpenAI's words. `max_model_len`: None if nobody
    knows it. `details`: what is too long, as the rest of a sentence."""
    limit = "exceeded:" if max_model_len is None else f"{max_model_len} tokens. However,"
    message = f"{CONTEXT_LENGTH} {limit} {details}"
    return RequestError(message, param=param, code=CONTEXT_LENGTH_EXCEEDED, status=status)


def check_num_tokens(num_tokens: int, max_model_len: int | None, param: str) -> None:
    """Raise `RequestError` for more token ids than the model takes."""
    if max_model_len is not None and num_tokens > max_model_len:
        details = f"the field {param} has {num_tokens} tokens. Please reduce its length."
        raise too_long(max_model_len, details, param)


def check_num_bytes(text: str, max_bytes: int | None, max_model_len: int | None, param: str) -> None:
    """Raise `RequestError` for a text that is too long for the model, whatever tokens it has."""
    if max_bytes is not None and (len(text) > max_bytes or len(text.encode(errors="replace")) > max_bytes):
        details = (
            f"the field {param} has more than {max_bytes} bytes, and no more fit. Please reduce its length."
        )
        raise too_long(max_model_len, details, param)
