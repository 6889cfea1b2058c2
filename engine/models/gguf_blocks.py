"""GGUF's blocks of whole numbers, as the matrices that the kernels multiply.

A row is a sequence of blocks of 32 inputs: a scale, perhaps a shift, then the numbers. In the types Q4_K and
Q5_K, eight blocks lie together. Their scales and shifts are products, which are rounded to float16 here: that
is closer to the weights than bfloat16 is. Nothing else is rounded. The layouts are those of ggml's
`ggml-common.h`.
"""

from collections.abc import Callable

import numpy as np
import torch
from gguf import GGMLQuantizationType as Kind
from gguf import quants
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


def _k_scales(blocks: Bytes) -> tuple[torch.Tensor, torch.Tensor]:
    """The scale and the shift of each 32 inputs: `[out, blocks, bytes]` to `[out, 8 blocks]`, float16."""
    halves = np.ascontiguousarray(blocks[:, :, :4]).view(np.float16).astype(np.float32)
    scales, shifts = quants.Q4_K.get_scale_min(blocks[:, :, 4:16].reshape(-1, 12))
    shape = (blocks.shape[0], -1)
    of_scales, of_shifts = (np.repeat(halves[:, :, i], 8, axis=1) for i in (0, 1))
    return (
        torch.from_numpy(of_scales * scales.reshape(shape)).half(),
        torch.from_numpy(-of_shifts * shifts.reshape(shape)).half(),
    )


def _k_nibbles(blocks: Bytes, at: int) -> Bytes:
    """The numbers of 4 bits from byte `at` on: the lower halves of 32 bytes, then the upper ones."""
    stored = blocks[:, :, at:].reshape(*blocks.shape[:2], 4, 1, SIZE)
    return np.concatenate([stored & 15, stored >> 4], axis=3).reshape(*blocks.shape[:2], 8, SIZE)


def _q4_k(blocks: Bytes) -> QuantizedWeight:
    scales, shifts = _k_scales(blocks)
    return _weight(4, _k_nibbles(blocks, 16).view(np.int8) - np.int8(8), scales, 8, shifts)


def _q5_k(blocks: Bytes) -> QuantizedWeight:
    scales, shifts = _k_scales(blocks)
    bits = np.arange(8, dtype=np.uint8).reshape(8, 1)
    fifths = (blocks[:, :, None, 16:48] >> bits & 1) * np.uint8(16)
    return _weight(8, (_k_nibbles(blocks, 48) | fifths).view(np.int8), scales, 0, shifts)


KEPT: dict[int, tuple[int, Callable[[Bytes], QuantizedWeight]]] = {
    Kind.Q8_0: (34, _q8_0),
    Kind.Q4_0: (18, _q4_0),
    Kind.Q4_1: (20, _q4_1),
    Kind.Q5_0: (22, _q5_0),
    Kind.Q5_1: (24, _q5_1),
    Kind.Q4_K: (144, _q4_k),
    Kind.Q5_K: (176, _q5_k),
}
"""The bytes of a block, and what reads it, of each type that has a kernel."""


def kept(rows: Bytes, kind: int) -> QuantizedWeight:
    """`rows`: `[out, bytes]`. `kind` is one of `KEPT`."""
    size, read = KEPT[kind]
    return read(rows.reshape(rows.shape[0], -1, size))
