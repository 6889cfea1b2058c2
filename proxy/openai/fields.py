"""The request fields that chat and completions share, as OpenAI, vLLM and TensorRT-LLM name them.

Unknown fields are tolerated: they go on to an upstream, and the in-process engine refuses those that it knows
it could not honour.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from engine.processor_specs import NamedProcessorSpec
from engine.protocol import RequestError, SamplingParams

TokenId = Annotated[int, Field(ge=0)]

MAX_DIGITS = 19
"""Of a token id. Python refuses to read a number of some thousands."""
MAX_STOPS = 32
StopString = Annotated[str, Field(min_length=1, max_length=1000)]
"""Each is looked for in every piece of text, so there is a limit to how many and how long."""

GIVING_STOPS = ("include_stop_str_in_output", "no_stop_trim")
"""Fields by which vLLM and SGLang give a stop string with the text (contract 2.7)."""
CODE = ("chat_template", "custom_logit_processor")
"""Fields by which servers take a template to run, and pickled code (contract 7.3)."""
MAX_PROCESSORS = 32
"""Logits processors of a request."""


class StreamOptions(BaseModel):
    model_config = ConfigDict(strict=True)

    include_usage: bool = False
    """Send one last chunk with `choices: []` and the usage."""
    continuous_usage_stats: bool = False
    """Send the usage so far with every chunk (vLLM)."""


class LogitsProcessor(BaseModel):
    """One that the server has registered."""

    model_config = ConfigDict(strict=True, extra="forbid")

    name: str
    params: dict[str, Any] = {}


class GenerationFields(BaseModel):
    """What a caller may say of any generation. A null means the same as leaving the field out."""

    model_config = ConfigDict(strict=True, extra="allow", protected_namespaces=())

    model: str | None = Field(None, description="The served model, if left out")
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
    logit_bias: dict[str, Annotated[float, Field(ge=-100, le=100)]] = Field({}, description="By token id")
    seed: int | None = Field(None, ge=-(2**63), le=2**63 - 1)
    stop: StopString | Annotated[list[StopString], Field(max_length=MAX_STOPS, fail_fast=True)] = Field(
        [], description="Texts that end an output and are not part of it"
    )
    stop_token_ids: list[TokenId] = Field([], max_length=1024, fail_fast=True)
    ignore_eos: bool = False
    logits_processors: list[LogitsProcessor] = Field(
        [], max_length=MAX_PROCESSORS, fail_fast=True, description="Of those that the server has registered"
    )
    return_token_ids: bool = Field(False, description="Give token ids with the text")
    return_tokens_as_token_ids: bool = Field(False, description="Name tokens `token_id:N` in logprobs")
    cache_salt: str | None = Field(
        None, min_length=1, description="Share cached prompts only with requests of the same salt"
    )
    priority: int = Field(0, description="Lower is served earlier, if the server schedules by priority")
    hooks: list[str] = Field([], description="Hooks to run beside the server's own, of those it allows")
    user: str | None = None
    metadata: dict[str, Any] = {}

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        if isinstance(data, Mapping):
            return {key: value for key, value in data.items() if value is not None}
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
        # vLLM once took a function's import path here.
        if isinstance(processors, list) and not all(isinstance(one, dict) for one in processors):
            raise ValueError('no code is taken from a request; name a processor: {"name": ..., "params": {}}')
        return processors

    @property
    def extra(self) -> dict[str, Any]:
        """Fields that Weir has no name for."""
        return self.model_extra or {}

    @property
    def wants_ids(self) -> bool:
        """Whether an engine must tell token ids, to be given or to name tokens by."""
        return self.return_token_ids or self.return_tokens_as_token_ids

    @property
    def stop_strings(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop)

    def sampling(self, *, max_tokens: int | None, logprobs: int | None) -> SamplingParams:
        """Raises `RequestError` where fields do not go together."""
        if self.stream_options is not None and not self.stream:
            raise RequestError("stream_options can only be given when stream is true", param="stream_options")
        self._check_extra()
        return SamplingParams(
            n=self.n,
            max_tokens=max_tokens,
            min_tokens=self.min_tokens,
            temperature=self.temperature,
            top_k=max(0, self.top_k),
            top_p=self.top_p,
            min_p=self.min_p,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            repetition_penalty=self.repetition_penalty,
            logit_bias={int(key): value for key, value in self.logit_bias.items()},
            seed=self.seed,
            stop=self.stop_strings,
            stop_token_ids=tuple(self.stop_token_ids),
            ignore_eos=self.ignore_eos,
            logprobs=logprobs,
            logits_processors=tuple(NamedProcessorSpec(p.name, p.params) for p in self.logits_processors),
        )

    def _check_extra(self) -> None:
        """What would have another server undo a promise is refused here, whichever engine it is for."""
        for name in GIVING_STOPS:
            if self.extra.get(name):
                raise RequestError("no part of a stop string is ever given", param=name)
        for name in CODE:
            if self.extra.get(name):
                raise RequestError("no code is taken from a request", param=name)
        template_kwargs = self.extra.get("chat_template_kwargs")
        if isinstance(template_kwargs, Mapping) and template_kwargs.get("chat_template"):
            raise RequestError("no code is taken from a request", param="chat_template_kwargs.chat_template")
