"""Processors that tests register, of both forms, some of them bad."""

import weakref
from typing import Any, ClassVar

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from engine.config import LogitsProcessorConfig
from engine.logits_processors import BaseLogitsProcessor, CustomLogitProcessor, NamedProcessorSpec, TokenId

HERE = "tests.engine.logits_processors.processors."


class Only:
    """A mask, row by row: one token and no other."""

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
    """A mask, all rows at once: each row its own tokens."""

    kind = "mask"
    calls: ClassVar[list[list[list[int]]]] = []

    class Params(BaseModel):
        ban: list[TokenId]

    def __call__(self, logits: Tensor, params: list[dict[str, Any]]) -> Tensor:
        self.calls.append([p["ban"] for p in params])
        for row, p in zip(logits, params, strict=True):
            row[p["ban"]] = float("-inf")
        return logits


class Likes(BaseLogitsProcessor):
    """A shaper, row by row: towards what stands `back` tokens before."""

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
    """A shaper of the batch form, as SGLang's are written, that counts in the row's dict."""

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
    """As libraries in Rust raise."""


class Fails:
    """Of the batch form: bad in the way that a row asks for."""

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
    """The same, row by row."""

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
    """Asks for all that was masked."""

    def __call__(self, input_ids: Any, logits: Tensor) -> Tensor:
        return torch.zeros_like(logits)


class RevivesMask(Revives):
    kind = "mask"


def config(name: str, **settings: Any) -> LogitsProcessorConfig:
    """`Name` registered as `name`."""
    return LogitsProcessorConfig(name.lower(), HERE + name, **settings)


ALL = tuple(
    map(
        config,
        ("Only", "Ban", "Likes", "Counts", "Fails", "FailsAlone", "FailsMask", "Revives", "RevivesMask"),
    )
)


def named(**params: dict[str, Any]) -> tuple[NamedProcessorSpec, ...]:
    """What a request has: `named(only={"token_id": 5})`."""
    return tuple(NamedProcessorSpec(name, values) for name, values in params.items())
