"""Takes out the tokens that grammars forbid, for all rows that have a grammar at once."""

from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import torch
from torch import Tensor

from engine.guided.guide import Guide


class GuidedMask:
    """A logits processor of the batch form (contract 7.2). The parameters of a row have its `guide`."""

    kind = "mask"

    def __init__(self, device: torch.device, num_threads: int | None = None) -> None:
        """`num_threads`: threads that ask the guides; None: as many as torch uses by itself."""
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
            wait(filled)  # so that no other thread still uses a guide
        for some in filled:
            some.result()
        return bits


def _fill(rows: list[tuple[Guide, Tensor]]) -> None:
    with torch.inference_mode():  # each thread has its own mode
        for guide, bits in rows:
            guide.fill(bits)


def unpack(bits: Tensor, values: Tensor) -> Tensor:
    """Unpack int32 `[rows, words]` to float32 `[rows, words * 32]`. `values`: eight floats for each byte."""
    return values.index_select(0, bits.view(torch.uint8).flatten().int()).view(len(bits), -1)


LIMITS = torch.tensor([[float("inf" if byte >> i & 1 else "-inf") for i in range(8)] for byte in range(256)])
"""The most that a logit can be, for each bit of a byte, `[256, 8]`. To look up eight limits at once is
several times as fast as to mask by booleans."""
