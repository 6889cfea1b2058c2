"""GGUF's blocks of whole numbers, as the matrices that the kernels multiply.

A row is a sequence of blocks of 32 inputs: a scale, perhaps a shift, then the numbers. The layouts are those
of ggml's `ggml-common.h`. Nothing is rounded.
"""

from collections.abc import Callable

import numpy as np
import torch
from gguf import GGMLQuantizationType as Kind
from numpy.typing import NDArray

from engine.device.kernels.quantized import QuantizedWeight

SIZE = 32
"""Inputs of a block."""
Bytes = NDArray[np.uint8]


def _half(blocks: Bytes, at: int) -> torch.Tensor:
    """The float16 at byte `at` of each block: `[out, blocks, bytes]` to `[out, blocks]`."""
    return torch.from_numpy(np.ascontiguousarray(blocks[:, :, at : at + 2]).view(np.float16)[:, :, 0].copy())


def _nibbles(blocks: Bytes, at: int) -> Bytes:
    """The 32 numbers of 4 bits from byte `at` on: the lower halves of 16 bytes, then the upper ones."""
    stored = blocks[:, :, at : at + SIZE // 2]
    return np.concatenate([stored & 15, stored >> 4], axis=2)


def _fifths(blocks: Bytes, at: int) -> Bytes:
    """The fifth bit of each number, at its place: bit i of 4 bytes is that of number i."""
    return np.unpackbits(blocks[:, :, at : at + 4], axis=2, bitorder="little") * np.uint8(16)


def _weight(
    bits: int,
    numbers: NDArray[np.int8],
    scales: torch.Tensor,
    lowest: int,
    shifts: torch.Tensor | None = None,
) -> QuantizedWeight:
    """`lowest`: added to the numbers, which lie around zero, if a shift is added to the weights."""
    flat = torch.from_numpy(np.ascontiguousarray(numbers.reshape(numbers.shape[0], -1)))
    offsets = torch.full(scales.shape, lowest, dtype=torch.int8) if lowest else None
    return QuantizedWeight(4 if bits == 4 else 8, flat, scales, offsets, SIZE, shifts=shifts)


def _q8_0(blocks: Bytes) -> QuantizedWeight:
    return _weight(8, blocks[:, :, 2:].view(np.int8), _half(blocks, 0), 0)


def _q4_0(blocks: Bytes) -> QuantizedWeight:
    return _weight(4, _nibbles(blocks, 2).view(np.int8) - np.int8(8), _half(blocks, 0), 0)


def _q4_1(blocks: Bytes) -> QuantizedWeight:
    numbers = _nibbles(blocks, 4).view(np.int8) - np.int8(8)
    return _weight(4, numbers, _half(blocks, 0), 8, _half(blocks, 2))


def _q5_0(blocks: Bytes) -> QuantizedWeight:
    numbers = (_nibbles(blocks, 6) | _fifths(blocks, 2)).view(np.int8) - np.int8(16)
    return _weight(8, numbers, _half(blocks, 0), 0)


def _q5_1(blocks: Bytes) -> QuantizedWeight:
    numbers = (_nibbles(blocks, 8) | _fifths(blocks, 4)).view(np.int8)
    return _weight(8, numbers, _half(blocks, 0), 0, _half(blocks, 2))


KEPT: dict[int, tuple[int, Callable[[Bytes], QuantizedWeight]]] = {
    Kind.Q8_0: (34, _q8_0),
    Kind.Q4_0: (18, _q4_0),
    Kind.Q4_1: (20, _q4_1),
    Kind.Q5_0: (22, _q5_0),
    Kind.Q5_1: (24, _q5_1),
}
"""The bytes of a block, and what reads it, of each type that has a kernel."""


def kept(rows: Bytes, kind: int) -> QuantizedWeight:
    """`rows`: `[out, bytes]`. `kind` is one of `KEPT`."""
    size, read = KEPT[kind]
    return read(rows.reshape(rows.shape[0], -1, size))
