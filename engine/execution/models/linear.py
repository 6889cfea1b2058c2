"""Linear layers, their weights laid out once at load for the device that they run on."""

from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.config import Quantization
from engine.execution.kernels.cpu.native import Library
from engine.execution.kernels.cpu.native_linear import NativeLinear

_pack = torch.ops.mkldnn._reorder_linear_weight
_packed_linear = torch.ops.mkldnn._linear_pointwise


class Linear(Protocol):
    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """`[tokens, in]` to `[tokens, out]`, plus `residual` `[tokens, out]`."""


def make_linear(
    weight: Tensor,
    bias: Tensor | None,
    quantization: Quantization | None = None,
    library: Library | None = None,
) -> Linear:
    """Of a weight `[out, in]`, not kept if another layout is faster. `library`: kernels in C, if they run."""
    if quantization == "int8":
        rounded, scales = quantize_int8(weight)
        if library is not None and library.is_int8_linear_fast:
            return NativeLinear(library, rounded, bias, scales)
        return Int8Linear(rounded, scales, bias)
    if library is not None and library.is_linear_fast:
        return NativeLinear(library, weight, bias)
    if weight.device.type == "cpu" and can_pack(weight.dtype):
        return PackedLinear(weight, bias)
    return PlainLinear(weight, bias)


def can_pack(dtype: torch.dtype) -> bool:
    """Whether oneDNN is there, and multiplies this type by the processor's own instructions."""
    if not torch._C._has_mkldnn:
        return False
    return dtype == torch.float32 or (
        dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )


class PlainLinear:
    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight = weight
        self._bias = bias

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        out = F.linear(x, self._weight, self._bias)
        return out if residual is None else out.add_(residual)


class PackedLinear:
    """Weights in the blocked layout that oneDNN's matrix multiplication reads without reordering."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight = _pack(weight)
        self._bias = bias

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        out: Tensor
        if residual is None:
            out = _packed_linear.default(x, self._weight, self._bias, "none", [], "")
        else:
            out = _packed_linear.binary(x, residual, self._weight, self._bias, "add")
        return out


class Int8Linear:
    """Multiplies by weights of 8 bits in the activations' type."""

    def __init__(self, weight: Tensor, scales: Tensor, bias: Tensor | None) -> None:
        self._weight = weight
        self._scales = scales
        self._bias = bias

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        out = F.linear(x, self._weight.to(x.dtype)).mul_(self._scales)
        if self._bias is not None:
            out += self._bias
        return out if residual is None else out.add_(residual)


def quantize_int8(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Each row divided by its largest magnitude / 127 and rounded, int8; and those scales `[out]`, float32.

    Half of bfloat16's memory to read for each token. Activations stay as they are.
    """
    scales = weight.float().abs().amax(1).clamp_min_(torch.finfo(torch.float32).tiny) / 127
    return (weight.float() / scales[:, None]).round_().to(torch.int8), scales
