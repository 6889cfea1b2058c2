"""Matrix multiplications. Weights are laid out once, at load, for the device that they run on."""

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.config import Quantization
from engine.execution.kernels.protocol import Linear, LinearMaker, no_linear

_pack = torch.ops.mkldnn._reorder_linear_weight
_packed_linear = torch.ops.mkldnn._linear_pointwise


def make_linear(
    weight: Tensor,
    bias: Tensor | None,
    quantization: Quantization | None = None,
    own_linear: LinearMaker = no_linear,
) -> Linear:
    """The fastest `Linear` on this device for a weight `[out, in]`, which it may copy to another layout.
    `own_linear` is the device's `Kernels.linear`."""
    if quantization == "int8":
        rounded, scales = quantize_int8(weight)
        return own_linear(rounded, bias, scales) or Int8Linear(rounded, scales, bias)
    if own := own_linear(weight, bias):
        return own
    if weight.device.type == "cpu" and can_pack(weight.dtype):
        return PackedLinear(weight, bias)
    return PlainLinear(weight, bias)


def can_pack(dtype: torch.dtype) -> bool:
    """Whether torch has oneDNN, and oneDNN multiplies this type by instructions of this processor."""
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
    """Keeps weights in the blocked layout that oneDNN's matrix multiplication reads without reordering."""

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
    """Keeps weights of 8 bits, and widens them to the activations' type at each call."""

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
    """The weight as int8, and its scales `[out]`, float32.

    Each row is divided by its scale, which is its largest magnitude / 127, and rounded. Reading the weights
    takes half the time of bfloat16. Activations are not quantized.
    """
    scales = weight.float().abs().amax(1).clamp_min_(torch.finfo(torch.float32).tiny) / 127
    return (weight.float() / scales[:, None]).round_().to(torch.int8), scales
