"""The request fields that all endpoints share, and the one place that makes a `GenerationRequest` of them.

Names are those of OpenAI, vLLM and TensorRT-LLM. `proxy.wire.openai.endpoint_fields` says what becomes
of unknown ones.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from engine.protocol import GenerationRequest, RequestError, SamplingParams
from engine.protocol.fields.names import LENGTH_LIMITS
from engine.protocol.processor_specs import NamedProcessorSpec
from proxy.wire.openai.endpoint_fields import (
    KEEPS_ENDS,
    EndpointFields,
    Options,
    check_code,
    check_ends,
    may_be_refused,
)

TokenId = Annotated[int, Field(ge=0)]

MAX_DIGITS = 19
"""Digits of a token id. Python refuses to read a number of some thousands."""
PromptLogprobs = Annotated[
    int | None,
    Field(ge=0, le=20, description="Top alternatives of each prompt token; 0: the token only. No stream"),
]
StopString = Annotated[str, Field(min_length=1, max_length=1000)]

_KEEPS_STOPS = "is not supported: stop strings are cut before hooks see the text, so none is ever delivered"
_KEEPS_ENDS = f"must be left: {KEEPS_ENDS}"
_IS_CODE = "is refused: no code is taken from a request"
_NO_LIMIT = -1
"""llama.cpp's and Ollama's value for no limit of their own."""
MAX_PROCESSORS = 32
"""Logits processors of a request."""


class StreamOptions(Options):
    include_usage: bool = False
    """Send one last chunk with `choices: []` and the usage."""
    continuous_usage_stats: bool = False
    """Send the usage so far with every chunk (vLLM)."""


class LogitsProcessor(BaseModel):
    """A logits processor that the server has registered, with the request's parameters for it."""

    model_config = ConfigDict(strict=True, extra="forbid", defer_build=True)

    name: str
    params: dict[str, Any] = {}

    def spec(self) -> NamedProcessorSpec:
        return NamedProcessorSpec(self.name, self.params)


class GenerationFields(EndpointFields):
    """The fields of any generation. A null means the same as a missing field."""

    model_config = ConfigDict(strict=True, extra="allow", protected_namespaces=())
    refused: ClassVar[Mapping[str, str]] = {
        "include_stop_str_in_output": _KEEPS_STOPS,  # vLLM's name, contract 2.7
        "no_stop_trim": _KEEPS_STOPS,  # SGLang's name
        "chat_template": _IS_CODE,  # contract 7.3
        "custom_logit_processor": _IS_CODE,
        "truncation_side": _KEEPS_ENDS,
    }

    model: str | None = Field(None, description="Default: the served model")
    stream: bool = False
    stream_options: StreamOptions | None = None
    n: int = Field(1, ge=1, le=128)
    max_tokens: int | None = Field(None, ge=0)
    min_tokens: int = Field(0, ge=0)
    temperature: float = Field(1.0, ge=0, le=2)
    top_p: float = Field(1.0, gt=0, le=1)
    top_k: int = Field(0, ge=-1, description="0 or -1: all")
    min_p: float = Field(0.0, ge=0, le=1)
    presence_penalty: float = Field(0.0, ge=-2, le=2)
    frequency_penalty: float = Field(0.0, ge=-2, le=2)
    repetition_penalty: float = Field(1.0, ge=0.01, le=100)
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] = Field(
        default_factory=dict, description="By token id"
    )
    seed: int | None = Field(None, ge=-(2**63), le=2**63 - 1)
    stop: StopString | Annotated[list[StopString], Field(fail_fast=True)] = Field(
        default_factory=list, description="Texts that end an output and are not part of it"
    )
    stop_token_ids: list[TokenId] = Field(default_factory=list, max_length=1024, fail_fast=True)
    ignore_eos: bool = False
    logits_processors: list[LogitsProcessor] = Field(
        default_factory=list,
        max_length=MAX_PROCESSORS,
        fail_fast=True,
        description="Processors that the server has registered",
    )
    return_token_ids: bool = Field(False, description="Return token ids with the text")
    return_tokens_as_token_ids: bool = Field(False, description="Name tokens `token_id:N` in logprobs")
    cache_salt: str | None = Field(
        None, min_length=1, description="Share cached prompts only with requests of the same salt"
    )
    priority: int = Field(0, description="Lower is served earlier, if the server schedules by priority")
    hooks: list[str] = Field(
        default_factory=list,
        description="Hooks to run in addition to the server's own; the server must allow them",
    )
    user: str | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)

    @property
    def shows_reasoning(self) -> bool:
        """Whether the answer has the reasoning that hooks release."""
        return True

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            has_null = None in data.values()
            return {key: value for key, value in data.items() if value is not None} if has_null else data
        raise ValueError("the request body must be a JSON object")

    @field_validator("logit_bias")
    @classmethod
    def _keys_are_token_ids(cls, bias: dict[str, float]) -> dict[str, float]:
        if not all(key.isdecimal() and len(key) <= MAX_DIGITS for key in bias):
            raise ValueError("keys must be token ids")
        return bias

    @field_validator("logits_processors", mode="before")
    @classmethod
    def _processors_are_named(cls, processors: Any) -> Any:
        # vLLM took a function's import path here in the past.
        if isinstance(processors, list) and not all(isinstance(one, dict) for one in processors):
            raise ValueError('no code is taken from a request; name a processor: {"name": ..., "params": {}}')
        return processors

    def shared_request(
        self,
        request_id: str,
        model: str,
        *,
        logprobs: int | None,
        logprob_token_ids: Sequence[int] = (),
        prompt_logprobs: int | None = None,
        best_of: int | None = None,
        extra: Mapping[str, Any] = {},
        return_token_ids: bool = False,
        **own: Any,
    ) -> GenerationRequest:
        """The request that the shared fields make, with the endpoint's `own` fields of `GenerationRequest`.

        Raises `RequestError` for fields that contradict each other or that would break a promise.
        """
        if self.stream_options is not None and not self.stream:
            raise RequestError("stream_options can only be given when stream is true", param="stream_options")
        given, others = self.model_fields_set, self.model_extra
        # Fields that could make another server break a promise are refused, whichever engine runs.
        if others or not given.isdisjoint(may_be_refused(type(self))):
            self.check_refused()
        if others:
            check_code(others)
            check_ends(others)
        if prompt_logprobs is not None and self.stream:
            raise RequestError("prompt_logprobs cannot be streamed", param="prompt_logprobs")
        if logprob_token_ids and logprobs is None:
            raise RequestError("logprob_token_ids can only be given with logprobs", param="logprob_token_ids")
        limits = self._length_limits()
        return GenerationRequest(
            request_id=request_id,
            model=model,
            endpoint=self.endpoint,
            sampling=SamplingParams(
                n=self.n,
                best_of=best_of,
                # The smallest of the caller's limits holds, whatever their names.
                max_tokens=min(limits.values(), default=self.max_tokens),
                min_tokens=self.min_tokens,
                temperature=self.temperature,
                top_k=max(0, self.top_k),
                top_p=self.top_p,
                min_p=self.min_p,
                presence_penalty=self.presence_penalty,
                frequency_penalty=self.frequency_penalty,
                repetition_penalty=self.repetition_penalty,
                logit_bias={int(key): one for key, one in self.logit_bias.items()} if self.logit_bias else {},
                seed=self.seed,
                stop=(self.stop,) if isinstance(self.stop, str) else tuple(self.stop),
                stop_token_ids=tuple(self.stop_token_ids),
                ignore_eos=self.ignore_eos,
                logprobs=logprobs,
                logprob_token_ids=tuple(logprob_token_ids),
                prompt_logprobs=prompt_logprobs,
                logits_processors=tuple(map(LogitsProcessor.spec, self.logits_processors)),
            ),
            given=frozenset(given).difference(LENGTH_LIMITS).union(limits),
            # Token ids are also needed to name tokens by them.
            return_token_ids=return_token_ids or self.return_token_ids or self.return_tokens_as_token_ids,
            cache_salt=self.cache_salt,
            priority=self.priority,
            stream=self.stream,
            hooks=tuple(dict.fromkeys(self.hooks)),
            user=self.user,
            metadata=self.metadata,
            extra={**self.extra, **extra} if others else extra,
            **own,
        )

    def _length_limits(self) -> dict[str, int]:
        """The limits of an output's tokens that the caller gives, by name. Raises `RequestError`."""
        given = self.model_fields_set
        limits: dict[str, int] = {}
        for name in LENGTH_LIMITS:
            if name not in given:
                continue
            value, is_checked = getattr(self, name), name in type(self).model_fields
            if not is_checked and (type(value) is not int or (value < 1 and value != _NO_LIMIT)):
                raise RequestError(f"{name} must be a whole number of at least 1.", param=name)
            if value != _NO_LIMIT:
                limits[name] = value
        return limits
