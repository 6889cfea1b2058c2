"""Matrix multiplications in C, as Python calls them, and as a whole layer in C does."""

import ctypes
from collections.abc import Callable
from ctypes import c_int64, c_void_p

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.device.kernels.cpu.native_library import Library, address


class Matrix(ctypes.Structure):
    """A multiplication as layer.c calls it."""

    _fields_ = (("multiply", c_void_p), ("weights", c_void_p), ("outs", c_int64))


class NativeMatrix:
    """Implements `Linear`. It rounds once, at the end. A row's result does not depend on the other rows."""

    def __init__(
        self,
        library: Library,
        function: Callable[..., int],
        layout: ctypes.Structure,
        ins: int,
        padded: int,
        outs: int,
    ) -> None:
        """`layout`: the first argument of `function`, which reads `padded` inputs of each token."""
        self._layout = layout
        self._itself = ctypes.byref(layout)
        self._multiply = function
        self._outs = outs
        self._padding = padded - ins
        self._input = library.dtype if library.pair > 1 else torch.float32
        is_read_as_it_is = not self._padding and self._input == library.dtype
        self.matrix = (
            Matrix(ctypes.cast(function, c_void_p).value, ctypes.addressof(layout), outs)  # type: ignore[arg-type]
            if is_read_as_it_is
            else None
        )
        """None: the rows must be padded, or converted, before they are multiplied."""

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        tokens = x.shape[0]
        out = x.new_empty(tokens, self._outs)
        if self.matrix is None:
            x = F.pad(x, (0, self._padding)).to(self._input)
        if not self._multiply(self._itself, out.data_ptr(), x.data_ptr(), address(residual), tokens):
            raise out_of_memory()
        return out


def out_of_memory() -> MemoryError:
    return MemoryError("not enough memory for the sums of a matrix multiplication's inputs")
