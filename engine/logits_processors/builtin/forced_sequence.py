"""Gives the same answer, whatever the model says: some tokens, and then the end of sequence.

A `ForcedTokenSequenceSpec` is run by this processor. WEIR_ENABLE_TEST_LOGITS_PROCESSOR uses it to show that
processors work at all.
"""

from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

from engine.logits_processors import Context, TokenId, TokenIds
from engine.logits_processors.builtin.masks import keep_only

if TYPE_CHECKING:
    from torch import Tensor


class ForcedSequence:
    kind = "mask"

    class Params(BaseModel):
        model_config = ConfigDict(extra="forbid")

        token_ids: list[TokenId] = Field(min_length=1)
        eos_token_id: TokenId | None = None
        """None: the model's own end of sequence."""

    def __init__(self, params: Params, context: Context) -> None:
        """Raises `ValueError` if neither `params` nor the model has an end of sequence."""
        eos = params.eos_token_id
        if eos is None:
            if not context.eos_token_ids:
                raise ValueError("the model has no end-of-sequence token")
            eos = context.eos_token_ids[0]
        self._token_ids = [*params.token_ids, eos]

    def __call__(self, input_ids: TokenIds, logits: "Tensor") -> None:
        at = len(input_ids) - input_ids.num_prompt_tokens
        keep_only(logits, self._token_ids[min(at, len(self._token_ids) - 1)])
