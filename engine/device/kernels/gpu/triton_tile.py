"""The shared part of the attention kernels in Triton. Experimental: not run on a GPU yet.

Rows of queries meet one sequence's keys tile by tile. Softmax is online (Milakov and Gimelshein, 2018), in
float32 and with powers of two.
"""

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

MIN_ROWS = 16
"""The fewest rows, and the smallest depth, that `tl.dot` accepts."""
TILE_BYTES = 16 * 1024
"""Bytes of a tile's keys. With its values and prefetched tiles, they fit into every GPU's shared memory."""


class Dims(NamedTuple):
    """A head's dimensions, and the powers of two that they are padded to."""

    key: int
    value: int
    padded_key: int
    padded_value: int

    @classmethod
    def of(cls, keys: Tensor, values: Tensor) -> "Dims":
        key, value = keys.shape[-1], values.shape[-1]
        return cls(key, value, *(max(MIN_ROWS, triton.next_power_of_2(dim)) for dim in (key, value)))

    def num_keys(self, element_size: int) -> int:
        """The number of keys in a tile."""
        widest = max(self.padded_key, self.padded_value)
        return max(MIN_ROWS, min(64, TILE_BYTES // (widest * element_size)))


@triton.jit
def attend_to(
    query,  # [rows, padded_key]
    positions,  # [rows]: the position of each row's token, which sees no later key
    begin,
    end,  # no row sees a key outside these positions
    table,
    keys,
    values,  # keys and values: the head's part of block 0
    key_block_stride,
    key_slot_stride,
    value_block_stride,
    value_slot_stride,
    scale,
    SOFTCAP: tl.constexpr,
    WINDOW: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    KEY_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    PADDED_KEY: tl.constexpr,
    PADDED_VALUE: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
):
    """Weighted sums of values `[rows, padded_value]` and sums of weights `[rows]`, both divided by
    2 ** `largest`. The third result is `largest` `[rows]`, the largest scores."""
    largest = tl.full([ROWS], float("-inf"), tl.float32)
    weight_sum = tl.zeros([ROWS], tl.float32)
    value_sum = tl.zeros([ROWS, PADDED_VALUE], tl.float32)
    key_dims, value_dims = tl.arange(0, PADDED_KEY), tl.arange(0, PADDED_VALUE)
    for first in range(begin, end, TILE):
        at = first + tl.arange(0, TILE)
        block = tl.load(table + at // BLOCK_SIZE, mask=at < end, other=0).to(tl.int64)
        offset = at % BLOCK_SIZE
        key = tl.load(
            keys + (block * key_block_stride + offset * key_slot_stride)[None, :] + key_dims[:, None],
            mask=(at < end)[None, :] & (key_dims < KEY_DIM)[:, None],
            other=0.0,
        )
        scores = tl.dot(query, key, input_precision="ieee") * scale
        if SOFTCAP is not None:
            # tanh, which Triton's interpreter lacks
            scores = SOFTCAP * (2 * tl.sigmoid(2 * scores / SOFTCAP) - 1)
        seen = (at[None, :] <= positions[:, None]) & (at < end)[None, :]
        if WINDOW is not None:
            seen = seen & (at[None, :] > positions[:, None] - WINDOW)
        scores = tl.where(seen, scores * 1.4426950408889634, float("-inf"))
        grown = tl.maximum(largest, tl.max(scores, 1))
        shift = tl.where(grown == float("-inf"), 0.0, grown)  # 0 if the row has seen no key yet
        weights = tl.exp2(scores - shift[:, None])
        shrink = tl.exp2(largest - shift)
        value = tl.load(
            values + (block * value_block_stride + offset * value_slot_stride)[:, None] + value_dims[None, :],
            mask=(at < end)[:, None] & (value_dims < VALUE_DIM)[None, :],
            other=0.0,
        )
        weight_sum = weight_sum * shrink + tl.sum(weights, 1)
        value_sum = value_sum * shrink[:, None] + tl.dot(
            weights.to(value.dtype), value, input_precision="ieee"
        )
        largest = grown
    return value_sum, weight_sum, largest


@triton.jit
def normalize(value_sum, weight_sum, largest, sinks, head):
    """The weighted mean of values. The sink of each row's `head` `[rows]` adds a weight without a value."""
    if sinks is not None:
        sink = tl.load(sinks + head).to(tl.float32) * 1.4426950408889634
        grown = tl.maximum(largest, sink)
        shrink = tl.exp2(largest - grown)
        weight_sum = weight_sum * shrink + tl.exp2(sink - grown)
        value_sum = value_sum * shrink[:, None]
    return value_sum / weight_sum[:, None]
