"""Matrix multiplication in C. Weights are laid out once, in the order in which linear.c reads them."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import c_int64, c_void_p

import numpy as np
import torch
from torch import Tensor

from engine.device.kernels.cpu.native_library import Library, address
from engine.device.kernels.cpu.native_matrix import NativeMatrix


class _Linear(ctypes.Structure):
    _fields_ = (
        *((name, c_void_p) for name in ("panels", "bias")),
        *((name, c_int64) for name in ("ins", "steps", "outs", "by_tiles")),
    )


class NativeLinear(NativeMatrix):
    """`weight` `[out, in]` has the library's type."""

    def __init__(
        self, library: Library, weight: Tensor, bias: Tensor | None = None, *, by_tiles: bool = False
    ) -> None:
        """`by_tiles`: by AMX. The library has tiles then."""
        outs, ins = weight.shape
        functions = library.functions
        panels = memory.take(functions.packed_bytes(ins, outs))
        functions.pack(panels.data_ptr(), weight.contiguous().data_ptr(), ins, outs)
        bias = bias.float() if bias is not None else None
        steps = functions.linear_steps(ins)
        self._tensors = panels, bias  # keeps them alive: C has only their addresses
        layout = _Linear(panels.data_ptr(), address(bias), ins, steps, outs, by_tiles)
        super().__init__(functions.linear, layout, outs)


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
