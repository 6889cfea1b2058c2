"""Stages that the sampler has anyway, as processors, for a server that wants them for every request.

They only change the request's sampling parameters, so that the sampler does the work, for all rows at once.
"""

import math
from dataclasses import replace
from typing import Annotated

from pydantic import BaseModel, Field

from engine.protocol import SamplingParams
from engine.sampling.logits_processors import TokenId


class LogitBias:
    """Adds biases to the request's own. Biases of one token add up."""

    class Params(BaseModel, extra="forbid"):
        logit_bias: dict[Annotated[TokenId, Field(strict=False)], Annotated[float, Field(ge=-1e30, le=1e30)]]
        """By token id. JSON writes the id as a string."""

    @staticmethod
    def sampling(params: Params, sampling: SamplingParams) -> SamplingParams:
        own = sampling.logit_bias
        added = {i: own.get(i, 0.0) + bias for i, bias in params.logit_bias.items()}
        return replace(sampling, logit_bias={**own, **added})


class MinTokens:
    """Raises the request's `min_tokens`, up to its `max_tokens`."""

    class Params(BaseModel, extra="forbid"):
        min_tokens: int = Field(ge=0)

    @staticmethod
    def sampling(params: Params, sampling: SamplingParams) -> SamplingParams:
        most = math.inf if sampling.max_tokens is None else sampling.max_tokens
        wanted = max(sampling.min_tokens, min(params.min_tokens, most))
        return replace(sampling, min_tokens=int(wanted))
