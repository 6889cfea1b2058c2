"""Matrix multiplication in C. Weights are laid out once, in the order in which linear.c reads them."""

import ctypes
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from ctypes import c_int64, c_void_p
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from engine.execution.kernels.cpu.native_library import Library, address
from engine.execution.kernels.protocol import LinearMaker


class _Linear(ctypes.Structure):
    _fields_ = (
        *((name, c_void_p) for name in ("panels", "scales", "bias")),
        *((name, c_int64) for name in ("steps", "outs", "by_tiles")),
    )


class NativeLinear:
    """Implements `Linear`. It rounds once, at the end, and a row's result does not depend on the other rows.
    `weight` `[out, in]` has the library's type, or is int8 from -127 to 127 with float32 `scales` `[out]`."""

    def __init__(
        self,
        library: Library,
        weight: Tensor,
        bias: Tensor | None = None,
        scales: Tensor | None = None,
        *,
        by_tiles: bool = False,
    ) -> None:
        """`by_tiles`: by AMX. The library has tiles then, and there are no `scales`."""
        outs, ins = weight.shape
        functions, is_int8 = library.functions, scales is not None
        panels = memory.take(functions.packed_bytes(ins, outs, is_int8))
        functions.pack(panels.data_ptr(), weight.contiguous().data_ptr(), ins, outs, is_int8)
        bias = bias.float() if bias is not None else None
        padded = -(-ins // library.grain) * library.grain
        steps = padded // library.pair
        self._tensors = panels, scales, bias  # keeps them alive: C has only their addresses
        self._layout = _Linear(panels.data_ptr(), address(scales), address(bias), steps, outs, by_tiles)
        self._itself = ctypes.byref(self._layout)
        self._linear = functions.linear
        self._outs = outs
        self._padding = padded - ins
        self._input = library.dtype if library.pair > 1 else torch.float32
        self._is_read_as_it_is = not self._padding and self._input == library.dtype

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        tokens = x.shape[0]
        out = x.new_empty(tokens, self._outs)
        if not self._is_read_as_it_is:
            x = F.pad(x, (0, self._padding)).to(self._input)
        self._linear(self._itself, out.data_ptr(), x.data_ptr(), address(residual), tokens)
        return out


def native_linears(library: Library) -> Mapping[str, LinearMaker]:
    """The ways to multiply a matrix in C on this processor, by name, the likely fastest first."""
    makers: dict[str, LinearMaker] = {}
    if library.has_tiles:
        makers["C, AMX"] = partial(_tiled_linear, library)
    return {**makers, "C": partial(NativeLinear, library)}


def _tiled_linear(
    library: Library, weight: Tensor, bias: Tensor | None, scales: Tensor | None = None, /
) -> NativeLinear | None:
    return NativeLinear(library, weight, bias, by_tiles=True) if scales is None else None


class Memory:
    """Hands out zeroed memory from large pieces. numpy asks the system to back them with pages of 2 MB. With
    smaller pages, looking up addresses takes as long as reading the weights."""

    SIZE = 2**26
    ALIGNMENT = 64

    def __init__(self) -> None:
        self._left = torch.empty(0, dtype=torch.uint8)

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Memory taken meanwhile shares no piece with other memory, so that all of it can be freed."""
        left, self._left = self._left, self._left[:0]
        try:
            yield
        finally:
            self._left = left

    def take(self, num_bytes: int) -> Tensor:
        size = -(-num_bytes // self.ALIGNMENT) * self.ALIGNMENT
        if size > self._left.shape[0]:
            piece = torch.from_numpy(np.zeros(max(size, self.SIZE) + self.ALIGNMENT, np.uint8))
            self._left = piece[-piece.data_ptr() % self.ALIGNMENT :]
        taken, self._left = self._left[:size], self._left[size:]
        return taken


memory = Memory()
