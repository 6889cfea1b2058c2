"""Processors of both forms that tests register. Some of them fail."""

import weakref
from typing import Any, ClassVar

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from engine.protocol import GenerationRequest
from engine.protocol.options import LogitsProcessorConfig
from engine.sampling.logits_processors import (
    BaseLogitsProcessor,
    CustomLogitProcessor,
    LogitsProcessorSpec,
    NamedProcessorSpec,
    TokenId,
)
from engine.sampling.logits_processors.builtin import SHORT_NAMES
from engine.sampling.logits_processors.registry import ProcessorRegistry
from tests.engine.conftest import completion

HERE = "tests.engine.sampling.logits_processors.processors."


class Only:
    """A mask of the row form: allows one token."""

    kind = "mask"

    class Params(BaseModel):
        model_config = ConfigDict(extra="forbid")
        token_id: TokenId

    def __init__(self, params: Params) -> None:
        self.token_id = params.token_id

    def __call__(self, input_ids: Any, logits: Tensor) -> None:
        kept = logits[self.token_id].item()
        logits.fill_(float("-inf"))
        logits[self.token_id] = kept


class Ban:
    """A mask of the batch form: each row forbids its own tokens."""

    kind = "mask"
    calls: ClassVar[list[list[list[int]]]] = []

    class Params(BaseModel):
        ban: list[TokenId]

    def __call__(self, logits: Tensor, params: list[dict[str, Any]]) -> Tensor:
        self.calls.append([p["ban"] for p in params])
        for row, p in zip(logits, params, strict=True):
            row[p["ban"]] = float("-inf")
        return logits


class Lists:
    """A mask that lists tokens. It never sees logits."""

    kind = "mask"

    class Params(BaseModel):
        lists: Any

    def __init__(self, params: Params) -> None:
        self.lists = params.lists

    def forbidden(self, input_ids: Any) -> Any:
        if self.lists == "raise":
            raise RuntimeError("the model said: hush")
        return self.lists

    def __call__(self, input_ids: Any, logits: Tensor) -> None:
        raise AssertionError("the sampler asks for the list")


class Likes(BaseLogitsProcessor):
    """A shaper of the row form: raises the token that came `back` tokens before."""

    class Params(BaseModel):
        back: int = 1
        by: float = 3.0

    live: ClassVar["weakref.WeakSet[Likes]"] = weakref.WeakSet()

    def __init__(self, params: Params) -> None:
        self.params = params
        self.live.add(self)

    def __call__(self, input_ids: Any, logits: Tensor) -> None:
        logits[input_ids[-self.params.back]] += self.params.by


class Counts(CustomLogitProcessor):
    """A shaper of the batch form, written as for SGLang. It counts its calls in the row's dict."""

    def __call__(self, logits: Tensor, custom_param_list: list[dict[str, Any]]) -> Tensor:
        bias = []
        for p in custom_param_list:
            req = p["__req__"]
            p["calls"] = p.get("calls", 0) + 1
            p.setdefault("lengths", []).append(len(req.output_ids))
            assert p["lengths"] == list(range(p["calls"]))
            seen = torch.zeros(logits.shape[1])
            seen[req.origin_input_ids + req.output_ids] = p.get("weight", 1.0) * p["calls"]
            bias.append(seen)
        return logits + torch.stack(bias)


class Panic(BaseException):
    """Like the exception of a panic in a Rust library."""


class Fails:
    """A processor of the batch form that fails in the way that a row asks for."""

    class Params(BaseModel):
        how: str
        after: int = 0

    def __call__(self, logits: Tensor, params: list[dict[str, Any]]) -> Tensor:
        hows = [p["how"] if len(p["__req__"].output_ids) >= p["after"] else "" for p in params]
        if "raise" in hows:
            logits.zero_()
            raise RuntimeError("the model said: hush")
        if "exit" in hows:
            raise SystemExit(3)
        if "panic" in hows:
            raise Panic
        if "sparse" in hows:
            return logits.to_sparse()
        if "shape" in hows:
            return logits[:, :-1]
        if "none" in hows:
            return None  # type: ignore[return-value]
        logits[[how == "nan" for how in hows], 7] = float("nan")
        logits[[how == "empty" for how in hows]] = float("-inf")
        return logits


class FailsAlone:
    """The same in the row form."""

    Params = Fails.Params

    def __init__(self, params: Fails.Params) -> None:
        self.how, self.after = params.how, params.after

    def __call__(self, input_ids: Any, logits: Tensor) -> Tensor | None:
        if len(input_ids) - input_ids.num_prompt_tokens < self.after:
            return None
        if self.how == "raise":
            raise RuntimeError("the model said: hush")
        if self.how == "exit":
            raise SystemExit(3)
        if self.how == "panic":
            raise Panic
        if self.how == "sparse":
            return logits.to_sparse()
        if self.how == "shape":
            return logits[:-1]
        if self.how == "nan":
            logits[7] = float("nan")
        if self.how == "empty":
            logits.fill_(float("-inf"))
        return None


class FailsMask(FailsAlone):
    kind = "mask"


class Revives:
    """Sets every logit to 0, masked ones too."""

    def __call__(self, input_ids: Any, logits: Tensor) -> Tensor:
        return torch.zeros_like(logits)


class RevivesMask(Revives):
    kind = "mask"


def config(name: str, **settings: Any) -> LogitsProcessorConfig:
    """Registers the class `Name` as `name`."""
    return LogitsProcessorConfig(name.lower(), HERE + name, **settings)


ALL = tuple(
    map(
        config,
        (
            "Only",
            "Ban",
            "Lists",
            "Likes",
            "Counts",
            "Fails",
            "FailsAlone",
            "FailsMask",
            "Revives",
            "RevivesMask",
        ),
    )
)


def named(**params: dict[str, Any]) -> tuple[NamedProcessorSpec, ...]:
    """A request's processors: `named(only={"token_id": 5})`."""
    return tuple(NamedProcessorSpec(name, values) for name, values in params.items())


BUILTIN = tuple(
    LogitsProcessorConfig(
        name, name, {"start": "<|im_start|>", "end": "<|im_end|>"} if "think" in name else {}
    )
    for name in SHORT_NAMES
    if name != "watermark"
)
WATERMARK = LogitsProcessorConfig("watermark", "watermark", {"key": "a secret", "delta": 4.0})
EVERYTHING = (*ALL, *BUILTIN, WATERMARK)

WORDS = ["is", "of", "your order", "the quick", *"abcdefghijklmnopqrstuvwxyz,.!?"]


def kinds(eos: int) -> list[dict[str, Any]]:
    """The processors and fields of different requests, for a model with this end of sequence."""
    return [
        {},
        {"processors": named(likes={"back": 2, "by": 6.0})},
        {"processors": named(counts={"weight": 0.2}), "temperature": 1.0, "seed": 7},
        {"processors": named(ban={"ban": list(range(100))}), "repetition_penalty": 1.2},
        {
            "processors": named(
                ban={"ban": list(range(60, 400, 2))}, likes={"by": 1.0}, counts={"weight": 0.1}
            )
        },
        {"processors": named(forced_sequence={"token_ids": [50, 60, 70, 80]})},
        {"processors": named(disallowed_tokens={"token_ids": list(range(0, 400, 2))})},
        {"processors": named(allowed_tokens={"token_ids": [11, 22, 33, 44]}), "temperature": 1.5, "seed": 3},
        {"processors": named(bad_words={"bad_words": WORDS}, likes={"back": 3, "by": 2.0})},
        {
            "processors": named(no_repeat_ngram={"ngram_size": 2, "window_size": 30}, likes={"back": 2}),
            "frequency_penalty": 0.4,
        },
        {"processors": named(thinking_budget={"thinking_budget": 3}, likes={"by": 2.0})},
        {"processors": named(watermark={}), "temperature": 0.8, "seed": 11, "top_p": 0.9},
        {"processors": named(min_tokens={"min_tokens": 12}, logit_bias={"logit_bias": {eos: 50.0}})},
        {
            "processors": named(
                watermark={},
                no_repeat_ngram={"ngram_size": 1, "window_size": 99},
                ban={"ban": list(range(50, 400))},
            )
        },
    ]


LIMITED: list[dict[str, Any]] = [
    {"extra": {"allowed_token_ids": [11, 22, 33, 44]}, "temperature": 1.5, "seed": 3},
    {"extra": {"bad_words": WORDS}, "temperature": 1.5, "seed": 4},
]
"""Requests with vLLM's fields that limit tokens."""


def names(registry: ProcessorRegistry, request: GenerationRequest) -> list[str]:
    return [one.name for one in registry.realize(request)[1]]


def request_of(*specs: LogitsProcessorSpec, **extra: Any) -> GenerationRequest:
    return completion((5, 6, 7), logits_processors=specs, extra=extra)
