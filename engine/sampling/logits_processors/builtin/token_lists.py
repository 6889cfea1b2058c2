"""Forbids a list of tokens, or all other tokens. Each request has its own list.

vLLM calls the second `allowed_token_ids`. SGLang's processor for the first needs one list for all requests of
a batch.
"""

from pydantic import BaseModel, Field
from torch import Tensor

from engine.sampling.logits_processors import Context, TokenId, TokenIds
from engine.sampling.logits_processors.builtin.base import as_index, keep_only, take_out


class _Params(BaseModel, extra="forbid"):
    token_ids: list[TokenId] = Field(min_length=1, fail_fast=True)


class AllowedTokens:
    kind = "mask"
    Params = _Params

    def __init__(self, params: _Params, context: Context) -> None:
        self.token_ids = frozenset(params.token_ids)
        self._index = as_index(params.token_ids, context.device)

    def __call__(self, input_ids: TokenIds, logits: Tensor) -> None:
        keep_only(logits, self._index)


class DisallowedTokens(AllowedTokens):
    def __call__(self, input_ids: TokenIds, logits: Tensor) -> None:
        take_out(logits, self._index)
