"""Takes out the tokens that grammars forbid, of all rows that have one at once."""

from typing import Any

import torch
from llguidance import LLExecutor
from torch import Tensor

from engine.guided.guide import Guide


class GuidedMask:
    """A logits processor of the batch form (contract 7.2): a row's parameters have its `guide`."""

    kind = "mask"

    def __init__(self, device: torch.device, num_threads: int | None = None) -> None:
        """Rows are looked up on so many threads; None: on most of the cores."""
        self._executor = LLExecutor(num_threads)
        self._limits = LIMITS.to(device)

    def __call__(self, logits: Tensor, params: list[dict[str, Any]]) -> Tensor:
        bits = self._allowed([one["guide"] for one in params], logits.shape[-1])
        return torch.minimum(
            logits, unpack(bits.to(logits.device), self._limits)[:, : logits.shape[-1]], out=logits
        )

    def _allowed(self, guides: list[Guide], vocab_size: int) -> Tensor:
        """A bit for each token, packed in int32 `[rows, vocab / 32]`."""
        bits = torch.zeros(len(guides), (vocab_size + 31) // 32, dtype=torch.int32)
        ruled = []
        for row, guide in enumerate(guides):
            guide.catch_up()
            guide.check()
            if guide.reasoning is None:
                ruled.append((guide.matcher, row))
            else:
                guide.fill_before(guide.reasoning, bits[row])
        if ruled:
            self._executor.unsafe_compute_mask_ptr(ruled, bits.data_ptr(), bits.shape[1] * 4, len(guides))
        for guide in guides:
            guide.check()
        return bits


def unpack(bits: Tensor, values: Tensor) -> Tensor:
    """Packed in int32 `[rows, words]`, as float32 `[rows, words * 32]`: `values` has eight for each byte."""
    return values.index_select(0, bits.view(torch.uint8).flatten().int()).view(len(bits), -1)


LIMITS = torch.tensor([[float("inf" if byte >> i & 1 else "-inf") for i in range(8)] for byte in range(256)])
"""What a logit may be at most, for each bit of a byte. Looking up eight at once is several times as fast as
masking by booleans."""
