"""The memory for keys and values, in blocks. The `BlockManager` decides which sequence owns a block."""

import math
import mmap
from contextlib import suppress
from typing import NamedTuple

import torch
from torch import Tensor


class LayerShape(NamedTuple):
    """The keys and values that one attention layer stores for a token."""

    num_kv_heads: int
    key_dim: int
    value_dim: int

    def num_bytes(self, dtype: torch.dtype) -> int:
        return self.num_kv_heads * (self.key_dim + self.value_dim) * dtype.itemsize


class KVCache:
    """For each layer, keys `[num_blocks + 1, num_kv_heads, block_size, key_dim]`, and values likewise.

    A head's part of a block lies in one piece, so that attention reads memory in order. A token's slot is
    `block * block_size + offset`. No sequence owns the last block, `scratch_block`: the padding of a batch
    writes to it.
    """

    def __init__(
        self,
        layers: dict[int, LayerShape],
        *,
        num_blocks: int,
        block_size: int,
        dtype: torch.dtype,
        device: torch.device,
        num_scores: int = 0,
    ) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.scratch_block = num_blocks

        def pool(num_heads: int, dim: int) -> Tensor:
            return _zeros((num_blocks + 1, num_heads, block_size, dim), dtype, device)

        self.keys = {i: pool(s.num_kv_heads, s.key_dim) for i, s in layers.items()}
        self.values = {i: pool(s.num_kv_heads, s.value_dim) for i, s in layers.items()}
        self.scores: Tensor | None = None
        """The scores of probes for each token, `[slots, num_scores]`, float32. None: no probes."""
        if num_scores:
            self.scores = _zeros(((num_blocks + 1) * block_size, num_scores), torch.float32, device)

    def write(self, layer: int, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        """Store `keys` and `values`, each `[tokens, num_kv_heads, dim]`, at `slots` `[tokens]`."""
        blocks, offsets = slots // self.block_size, slots % self.block_size
        for pool, tokens in ((self.keys[layer], keys), (self.values[layer], values)):
            pool.transpose(1, 2)[blocks, offsets] = tokens.to(pool.dtype)

    def gather(self, layer: int, block_tables: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of the blocks `[rows, blocks]`, each `[rows, heads, blocks * block_size, dim]`."""
        keys, values = self.keys[layer][block_tables], self.values[layer][block_tables]
        return keys.transpose(1, 2).flatten(2, 3), values.transpose(1, 2).flatten(2, 3)


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    # Zeros, because masked values still take part in sums: 0 * nan is nan. On the CPU, the kernel zeroes a
    # page at its first use, where torch would write to all of the memory now. With large pages, the first
    # token would take 2 MB of each pool: 120 MB in 30 layers.
    num_bytes = math.prod(shape) * dtype.itemsize
    if device.type != "cpu" or not num_bytes:
        return torch.zeros(shape, dtype=dtype, device=device)
    try:
        memory = mmap.mmap(-1, num_bytes)
    except (OSError, OverflowError) as error:
        raise MemoryError(f"there is no memory of {num_bytes} bytes") from error
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        with suppress(OSError):  # a kernel without large pages
            memory.madvise(mmap.MADV_NOHUGEPAGE)
    return torch.frombuffer(memory, dtype=dtype).view(shape)
