"""Takes out the tokens that grammars forbid, of all rows that have one at once."""

from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import torch
from torch import Tensor

from engine.guided.guide import Guide


class GuidedMask:
    """A logits processor of the batch form (contract 7.2): a row's parameters have its `guide`."""

    kind = "mask"

    def __init__(self, device: torch.device, num_threads: int | None = None) -> None:
        """So many threads find out what may come; None: as many as torch uses by itself."""
        self._limits = LIMITS.to(device)
        self._num_threads = num_threads or torch.get_num_threads()
        self._threads = ThreadPoolExecutor(self._num_threads, "weir-guided")

    def __call__(self, logits: Tensor, params: list[dict[str, Any]]) -> Tensor:
        bits = self._allowed([one["guide"] for one in params], logits.shape[-1])
        return torch.minimum(
            logits, unpack(bits.to(logits.device), self._limits)[:, : logits.shape[-1]], out=logits
        )

    def _allowed(self, guides: list[Guide], vocab_size: int) -> Tensor:
        """A bit for each token, packed in int32 `[rows, vocab / 32]`."""
        bits = torch.zeros(len(guides), (vocab_size + 31) // 32, dtype=torch.int32)
        rows = list(zip(guides, bits, strict=True))
        own, *others = (rows[i :: self._num_threads] for i in range(min(self._num_threads, len(rows))))
        filled = [self._threads.submit(_fill, some) for some in others]
        try:
            _fill(own)
        finally:
            wait(filled)  # no guide is in two hands
        for some in filled:
            some.result()
        return bits


def _fill(rows: list[tuple[Guide, Tensor]]) -> None:
    with torch.inference_mode():  # a thread has its own
        for guide, bits in rows:
            guide.fill(bits)


def unpack(bits: Tensor, values: Tensor) -> Tensor:
    """Packed in int32 `[rows, words]`, as float32 `[rows, words * 32]`: `values` has eight for each byte."""
    return values.index_select(0, bits.view(torch.uint8).flatten().int()).view(len(bits), -1)


LIMITS = torch.tensor([[float("inf" if byte >> i & 1 else "-inf") for i in range(8)] for byte in range(256)])
"""What a logit may be at most, for each bit of a byte. Looking up eight at once is several times as fast as
masking by booleans."""
