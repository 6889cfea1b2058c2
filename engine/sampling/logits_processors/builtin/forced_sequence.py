"""Gives the same answer, whatever the model says: some tokens, and then the end of sequence.

This processor runs a `ForcedTokenSequenceSpec`.
"""

from pydantic import BaseModel, Field
from torch import Tensor

from engine.sampling.logits_processors import Context, ForcedTokenSequenceSpec, TokenId, TokenIds
from engine.sampling.logits_processors.builtin.base import keep_only


class ForcedSequence:
    kind = "mask"

    class Params(BaseModel, extra="forbid"):
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

    def __call__(self, input_ids: TokenIds, logits: Tensor) -> None:
        at = len(input_ids) - input_ids.num_prompt_tokens
        keep_only(logits, self._token_ids[min(at, len(self._token_ids) - 1)])


def hello_world(context: Context) -> ForcedTokenSequenceSpec:
    """Every answer is "Hello world!", to show that processors work: `WEIR_ENABLE_TEST_LOGITS_PROCESSOR=1`.

    The idea is Dynamo's. Raises `ValueError` if the model has no end-of-sequence token to end an answer.
    """
    if not context.eos_token_ids:
        raise ValueError("the test logits processor needs an end-of-sequence token, and this model has none")
    token_ids = context.tokenizer.encode("Hello world!", add_special_tokens=False)
    return ForcedTokenSequenceSpec(tuple(token_ids), context.eos_token_ids[0])
