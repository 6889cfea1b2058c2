"""A `GenerationRequest` as the JSON body that an OpenAI-compatible upstream takes."""

from dataclasses import fields
from typing import Any

from engine.protocol import GenerationRequest, RequestError, SamplingParams

# Weir has names for these, or answers for them itself: the caller's own never reach the upstream.
_OURS = frozenset(
    {field.name for field in fields(SamplingParams)}
    | {"model", "messages", "prompt", "stream", "stream_options", "top_logprobs", "echo", "user", "metadata"}
    | {"return_token_ids", "return_tokens_as_token_ids"}
)
_OTHER_SHAPE = ("max_tokens", "logprobs", "logit_bias", "best_of", "logits_processors")


def request_body(request: GenerationRequest, model: str | None = None) -> dict[str, Any]:
    """The body: always streamed, with usage, and with nothing in it that nobody asked for.

    `model`: the upstream's name for the model; None: the caller's. A caller who wants token ids, or ids of a
    prompt echoed, is also served by asking for logprobs, which say what text each token has.

    Raises `RequestError` for what cannot be asked of a stream.
    """
    sampling = request.sampling
    if sampling.num_candidates > sampling.n:
        raise RequestError("best_of more than n cannot be had of an upstream.", param="best_of")
    body: dict[str, Any] = {
        **{name: value for name, value in request.extra.items() if name not in _OURS and value is not None},
        "model": model or request.model,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if request.is_chat:
        body["messages"] = list(request.messages)
    else:
        body["prompt"] = request.prompts[0] if len(request.prompts) == 1 else list(request.prompts)
    body |= {
        name: value for name, value in _changed(sampling, request.given).items() if name not in _OTHER_SHAPE
    }
    if sampling.max_tokens is not None:
        name = "max_completion_tokens" if "max_completion_tokens" in body else "max_tokens"
        body[name] = sampling.max_tokens
    if sampling.logit_bias:
        body["logit_bias"] = {str(token_id): bias for token_id, bias in sampling.logit_bias.items()}
    body |= _logprobs(request)
    if request.echo:
        body["echo"] = True
    # vLLM leaves an echoed prompt's text out for who asks for its ids.
    if request.return_token_ids and not request.echo:
        body["return_token_ids"] = True
    body |= _tools(request)
    if request.user is not None:
        body["user"] = request.user
    if request.cache_salt is not None:
        body["cache_salt"] = request.cache_salt
    if request.priority:
        body["priority"] = request.priority
    if request.metadata:
        body["metadata"] = dict(request.metadata)
    return body


def _changed(sampling: SamplingParams, given: frozenset[str]) -> dict[str, Any]:
    default = SamplingParams()
    values = {field.name: getattr(sampling, field.name) for field in fields(sampling)}
    return {name: value for name, value in values.items() if name in given or value != getattr(default, name)}


def _tools(request: GenerationRequest) -> dict[str, Any]:
    body: dict[str, Any] = {}
    if request.tools:
        body["tools"] = list(request.tools)
    if request.tool_choice is not None:
        body["tool_choice"] = request.tool_choice
    if "parallel_tool_calls" in request.given or not request.parallel_tool_calls:
        body["parallel_tool_calls"] = request.parallel_tool_calls
    return body


def _logprobs(request: GenerationRequest) -> dict[str, Any]:
    wanted = request.sampling.logprobs
    if wanted is None:
        echoes_ids = request.echo and any(isinstance(prompt, tuple) for prompt in request.prompts)
        if not request.return_token_ids and not echoes_ids:
            return {}
        wanted = 0
    if not request.is_chat:
        return {"logprobs": wanted}
    return {"logprobs": True, "top_logprobs": wanted} if wanted else {"logprobs": True}
