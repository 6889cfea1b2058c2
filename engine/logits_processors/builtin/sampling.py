"""What the sampler does by itself, as processors: for a server that wants it of every request.

They only change what a request asks for, so that there is one way of doing it, for all rows at once.
"""

import math
from dataclasses import replace
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from engine.logits_processors import TokenId
from engine.protocol import SamplingParams


class LogitBias:
    """Beside the request's own: biases of one token add up."""

    class Params(BaseModel):
        model_config = ConfigDict(extra="forbid")

        logit_bias: dict[Annotated[TokenId, Field(strict=False)], Annotated[float, Field(ge=-1e30, le=1e30)]]
        """By token id, which in JSON is a text."""

    @staticmethod
    def sampling(params: Params, sampling: SamplingParams) -> SamplingParams:
        own = sampling.logit_bias
        added = {i: own.get(i, 0.0) + bias for i, bias in params.logit_bias.items()}
        return replace(sampling, logit_bias={**own, **added})


class MinTokens:
    """At least so many, but no more than the request has room for."""

    class Params(BaseModel):
        model_config = ConfigDict(extra="forbid")

        min_tokens: int = Field(ge=0)

    @staticmethod
    def sampling(params: Params, sampling: SamplingParams) -> SamplingParams:
        most = math.inf if sampling.max_tokens is None else sampling.max_tokens
        wanted = max(sampling.min_tokens, min(params.min_tokens, most))
        return replace(sampling, min_tokens=int(wanted))
