"""Matrix multiplications in C, as Python calls them, and as a whole layer in C does."""

import ctypes
from collections.abc import Callable
from ctypes import c_int64, c_void_p

from torch import Tensor

from engine.device.kernels.cpu.native_library import address


class Matrix(ctypes.Structure):
    """A multiplication as layer.c calls it."""

    _fields_ = (("multiply", c_void_p), ("weights", c_void_p), ("outs", c_int64))


class NativeMatrix:
    """Implements `Linear`. It rounds once, at the end. A row's result does not depend on the other rows."""

    def __init__(self, function: Callable[..., int], layout: ctypes.Structure, outs: int) -> None:
        """`layout`: the first argument of `function`."""
        self._layout = layout
        self._itself = ctypes.byref(layout)
        self._multiply = function
        self._outs = outs
        self.matrix = Matrix(ctypes.cast(function, c_void_p).value, ctypes.addressof(layout), outs)  # type: ignore[arg-type]

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        tokens = x.shape[0]
        out = x.new_empty(tokens, self._outs)
        if not self._multiply(self._itself, out.data_ptr(), x.data_ptr(), address(residual), tokens):
            raise out_of_memory()
        return out


def out_of_memory() -> MemoryError:
    return MemoryError("not enough memory for the inputs of a matrix multiplication")
