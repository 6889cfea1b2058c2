"""Validates JSON by the types of an SDK, strictly: no field is missing, and none is unknown.

The SDKs accept any further field, so that servers can add some. Here the fields that Weir adds are listed.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

import orjson
from pydantic import BaseModel, TypeAdapter

OURS = {
    # vLLM's fields, and the guard's reason (contract 3.3).
    "Choice.stop_reason",
    "CompletionChoice.stop_reason",
    "Response.stop_reason",
    # OpenAI's servers send it, and the type lacks it.
    "Response.store",
    # vLLM's field for reasoning, in a whole chat and in a chunk.
    "ChatCompletionMessage.reasoning_content",
    "ChoiceDelta.reasoning_content",
    # vLLM's fields for the caller who asks for token ids, or for the prompt's logprobs.
    "Choice.token_ids",
    "Choice.prompt_token_ids",
    "CompletionChoice.token_ids",
    "CompletionChoice.prompt_token_ids",
    "ChatCompletion.prompt_logprobs",
    "CompletionChoice.prompt_logprobs",
    # What each hook said (contract 8.13).
    "Moderation.decisions",
    # vLLM's field of a model.
    "Model.max_model_len",
    # OpenAI documents them, and other versions of the SDK have them.
    "ResponseFunctionCallArgumentsDoneEvent.name",
    "Logprob.bytes",
    "LogprobTopLogprob.bytes",
    # Contract 4.2: the error of a stream has the shape of an HTTP error. OpenAI's servers send it so, too.
    "ResponseErrorEvent.error",
}
"""The fields that Weir adds to the SDKs' types, as `Type.field`."""


def valid(kind: Any, value: Any) -> Any:
    """`value` as the SDK's type `kind`. Raises `ValidationError`, and fails for an unknown field."""
    # JSON has no dates and no enumerations, so a strict validation takes JSON.
    made = _adapter(kind).validate_json(orjson.dumps(value), strict=True)
    unknown = set(_unknown(made)) - OURS
    assert not unknown, f"{sorted(unknown)} in {value}"
    return made


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _unknown(value: Any) -> Iterator[str]:
    if isinstance(value, BaseModel):
        yield from (f"{type(value).__name__}.{name}" for name in value.model_extra or ())
        value = [getattr(value, name) for name in type(value).model_fields]
    elif isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for one in value:
            yield from _unknown(one)
