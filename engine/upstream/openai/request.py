"""Writes a `GenerationRequest` as the JSON body that an OpenAI-compatible upstream takes."""

from dataclasses import fields
from typing import Any

from engine.protocol import GenerationRequest, RequestError, SamplingParams

_SET_BY_WEIR = frozenset(
    {field.name for field in fields(SamplingParams)}
    | {"model", "messages", "prompt", "stream", "stream_options", "top_logprobs", "echo", "user", "metadata"}
    | {"return_token_ids", "return_tokens_as_token_ids"}
)
"""Fields that Weir writes or answers itself. In `GenerationRequest.extra` they do not reach the upstream."""
_OF_MESSAGES = frozenset(
    {"thinking", "service_tier", "cache_control", "anthropic_beta", "context_management"}
)
"""Fields of the Messages API. Servers of this API know other values of these names, or refuse them."""
_WRITTEN_APART = ("max_tokens", "logprobs", "logit_bias", "best_of", "logits_processors", "prompt_logprobs")
"""Fields of `SamplingParams` that have another form in the body, or none."""
_DEFAULTS = {
    field.name: getattr(SamplingParams(), field.name)
    for field in fields(SamplingParams)
    if field.name not in _WRITTEN_APART
}
"""The other fields of `SamplingParams`, with their defaults."""


def request_body(request: GenerationRequest, model: str | None = None) -> dict[str, Any]:
    """The body. It asks for a stream with usage, or for a whole answer if the caller wants `prompt_logprobs`,
    and leaves out fields that the caller did not set.

    `model`: the upstream's name for the model. None: the caller's. If the caller wants token ids, or echoed
    ids of a prompt, the body also asks for logprobs: they say which text each token has.

    Raises `RequestError` for a request that an upstream cannot answer.
    """
    sampling, given, is_chat = request.sampling, request.given, request.is_chat
    asks_echo = echoes_ids = False
    if request.echo:
        echoes_ids = _has_ids(request)
        _check_echo(request)
        # Without an echo, vLLM refuses to generate nothing.
        asks_echo = asks_for_echo(request) or sampling.max_tokens == 0
    body: dict[str, Any] = {"model": model or request.model}
    if request.extra:
        unsent = _SET_BY_WEIR | _OF_MESSAGES if request.endpoint == "messages" else _SET_BY_WEIR
        body |= {k: v for k, v in request.extra.items() if k not in unsent and v is not None}
    if sampling.prompt_logprobs is None:
        body |= {"stream": True, "stream_options": {"include_usage": True}}
    else:  # the ids say which of the tokens at one place is the prompt's
        body |= {"prompt_logprobs": request.num_prompt_logprobs, "return_token_ids": True}
    if is_chat:
        body["messages"] = list(request.messages)
    else:
        body["prompt"] = request.prompts[0] if len(request.prompts) == 1 else list(request.prompts)
    for name, default in _DEFAULTS.items():
        value = getattr(sampling, name)
        if value != default or name in given:
            body[name] = value
    if sampling.max_tokens is not None:
        body["max_tokens"] = sampling.max_tokens
    if sampling.logit_bias:
        body["logit_bias"] = {str(token_id): bias for token_id, bias in sampling.logit_bias.items()}
    logprobs = sampling.logprobs
    if logprobs is None and (request.return_token_ids or echoes_ids):
        logprobs = 0  # they say which text each token has
    if logprobs is not None and not is_chat:
        body["logprobs"] = logprobs
    elif logprobs is not None:
        body |= {"logprobs": True, "top_logprobs": logprobs} if logprobs else {"logprobs": True}
    if asks_echo:
        body["echo"] = True
    if request.return_token_ids:
        body["return_token_ids"] = True
    if request.tools:
        body["tools"] = list(request.tools)
    if request.tool_choice is not None:
        body["tool_choice"] = request.tool_choice
    if not request.parallel_tool_calls or "parallel_tool_calls" in given:
        body["parallel_tool_calls"] = request.parallel_tool_calls
    if request.user is not None:
        body["user"] = request.user
    if request.cache_salt is not None:
        body["cache_salt"] = request.cache_salt
    if request.priority:
        body["priority"] = request.priority
    if request.metadata:
        body["metadata"] = dict(request.metadata)
    return body


def _check_echo(request: GenerationRequest) -> None:
    """Raise `RequestError` for an echo with parts that an upstream does not give together."""
    if request.is_chat or asks_for_echo(request):
        return
    has_prompt, sampling = request.sampling.prompt_logprobs is not None, request.sampling
    if _has_ids(request):
        reason = "beside token ids or prompt_logprobs, an upstream cannot echo a prompt of token ids"
        raise RequestError(f"echo: {reason}.", param="echo")
    if not has_prompt and (sampling.logprobs is not None or sampling.max_tokens == 0):
        reason = "beside token ids, an upstream cannot give an echo with logprobs, or alone"
        raise RequestError(f"echo: {reason}.", param="echo")


def _has_ids(request: GenerationRequest) -> bool:
    return any(isinstance(prompt, tuple) for prompt in request.prompts)


def asks_for_echo(request: GenerationRequest) -> bool:
    """Whether the upstream echoes the prompt. It need not beside `prompt_logprobs`, which hold the prompt.
    Beside token ids, vLLM would leave out the prompt's text."""
    has_own = request.sampling.prompt_logprobs is not None or request.return_token_ids
    return request.echo and not request.is_chat and not has_own
