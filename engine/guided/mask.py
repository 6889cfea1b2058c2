"""Takes out the tokens that grammars forbid, of all rows that have one at once."""

from typing import Any

import torch
from llguidance import LLExecutor
from torch import Tensor

from engine.guided.guide import Guide
from engine.logits_processors.builtin.masks import MASKED


class GuidedMask:
    """A logits processor of the batch form (contract 7.2): a row's parameters have its `guide`."""

    kind = "mask"

    def __init__(self, num_threads: int | None = None) -> None:
        """Rows are looked up on so many threads; None: on most of the cores."""
        self._executor = LLExecutor(num_threads)

    def __call__(self, logits: Tensor, params: list[dict[str, Any]]) -> Tensor:
        guides: list[Guide] = [one["guide"] for one in params]
        bits = self._allowed(guides, logits.shape[-1])
        forbidden = unpack(bits.to(logits.device), logits.shape[-1]).logical_not_()
        return logits.masked_fill_(forbidden, MASKED)

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


def unpack(bits: Tensor, vocab_size: int) -> Tensor:
    """Bits, packed in int32 `[rows, vocab / 32]`, as booleans `[rows, vocab]`."""
    powers = torch.tensor([1 << i for i in range(8)], dtype=torch.uint8, device=bits.device)
    unpacked = bits.view(torch.uint8).unsqueeze(-1) & powers
    return (unpacked != 0).flatten(1)[:, :vocab_size]
