"""A logits processor: an answer without a single digit, whatever is asked.

weir serve --logits-processor no_digits=examples/no_digits.py:NoDigits
"""

import torch
from torch import Tensor

from engine.sampling.logits_processors import Context, TokenIds


class NoDigits:
    kind = "mask"

    @classmethod
    def prepare(cls, context: Context) -> Tensor:
        raw = map(context.tokenizer.raw, range(context.vocab_size))
        digits = [i for i, token in enumerate(raw) if any(byte in b"0123456789" for byte in token)]
        return torch.tensor(digits, device=context.device)

    def __init__(self, shared: Tensor) -> None:
        self.digits = shared

    def __call__(self, input_ids: TokenIds, logits: Tensor) -> None:
        logits[self.digits] = float("-inf")
