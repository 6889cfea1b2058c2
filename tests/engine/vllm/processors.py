"""Logits processors for the tests of vLLM, which builds them in a process of its own."""

from pydantic import BaseModel
from torch import Tensor

from engine.sampling.logits_processors import TokenIds


class Failing:
    """Works for some tokens, and then raises."""

    class Params(BaseModel, extra="forbid"):
        after: int

    def __init__(self, params: Params) -> None:
        self._after = params.after

    def __call__(self, input_ids: TokenIds, logits: Tensor) -> None:
        if len(input_ids) - input_ids.num_prompt_tokens >= self._after:
            raise RuntimeError("it failed")


class ByPlace:
    """Has the token at each place be 100 and the place's number in the output."""

    kind = "mask"

    def __call__(self, input_ids: TokenIds, logits: Tensor) -> None:
        token_id = 100 + len(input_ids) - input_ids.num_prompt_tokens
        kept = logits[token_id].clone()
        logits.fill_(float("-inf"))
        logits[token_id] = kept
