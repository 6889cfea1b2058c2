"""Matrix multiplication in C with weights of 8 or 4 bits, laid out once, as quantized.c reads them."""

import ctypes
from ctypes import c_int64, c_void_p

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.device.kernels.cpu.native_library import Library, address
from engine.device.kernels.cpu.native_linear import memory
from engine.device.kernels.cpu.native_matrix import NativeMatrix
from engine.device.kernels.quantized import QuantizedWeight


class _Quantized(ctypes.Structure):
    _fields_ = (
        *((name, c_void_p) for name in ("panels", "scales", "offsets", "shifts", "bias")),
        *((name, c_int64) for name in ("bits", "has_half_scales", "ins", "steps", "group_steps", "outs")),
    )


class NativeQuantizedLinear(NativeMatrix):
    """The columns of `weight` are in the order of the inputs."""

    def __init__(self, library: Library, weight: QuantizedWeight, bias: Tensor | None = None) -> None:
        outs, ins = weight.numbers.shape
        functions = library.functions
        padded = ins + -ins % library.quantized_grain
        steps = padded // library.pair
        panels = memory.take((outs + -outs % library.quantized_panel) * padded * weight.bits // 8)
        numbers = weight.numbers.contiguous()
        functions.quantized_pack(panels.data_ptr(), numbers.data_ptr(), ins, outs, steps, weight.bits)
        scales, offsets, shifts = (
            self._by_panel(values, library.quantized_panel)
            for values in (weight.scales, weight.offsets, weight.shifts)
        )
        group = padded if weight.scales.shape[1] == 1 else weight.group_size
        bias = bias.float() if bias is not None else None
        self._tensors = panels, scales, offsets, shifts, bias  # keeps them alive: C has only their addresses
        addresses = map(address, self._tensors)
        has_half_scales = weight.scales.dtype == torch.float16
        sizes = ins, steps, group // library.pair, outs
        layout = _Quantized(*addresses, weight.bits, has_half_scales, *sizes)
        super().__init__(functions.quantized_linear, layout, outs)

    @staticmethod
    def can_multiply(library: Library, weight: QuantizedWeight) -> bool:
        """Whether groups end where the sums of some steps end, which the C code scales."""
        size, span = weight.group_size, library.quantized_span
        return weight.scales.shape[1] == 1 or (
            size % library.quantized_grain == 0 and (span % size == 0 or size % span == 0)
        )

    @staticmethod
    def _by_panel(values: Tensor | None, size: int) -> Tensor | None:
        """`[out, groups]` to `[panels, groups, size]`."""
        if values is None:
            return None
        outs, groups = values.shape
        padded = F.pad(values, (0, 0, 0, -outs % size))
        return padded.view(-1, size, groups).transpose(1, 2).contiguous()
