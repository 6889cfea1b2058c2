"""How long prompts are: a measure of the work to come, and the bound of texts that can fit a model."""

from collections.abc import Mapping
from typing import Any

from engine.protocol import GenerationRequest, RequestError

LONG_PROMPT = 16 * 1024
"""Characters of a long prompt. Tokenizing or searching it may take longer than others should wait."""


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


def check_prompt_length(text: str, max_bytes: int | None, param: str) -> None:
    """Raise `RequestError` for a text that is too long for the model, whatever tokens it has."""
    if max_bytes is not None and (len(text) > max_bytes or len(text.encode(errors="replace")) > max_bytes):
        raise RequestError(
            f"{param}: over this model's maximum context length. No text of more than {max_bytes} bytes "
            "fits. Please reduce its length.",
            param=param,
            code="context_length_exceeded",
        )
