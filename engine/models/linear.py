"""Matrix multiplications. Weights are laid out once, at load, for the device that they run on."""

import bisect
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.device.kernels.protocol import Linear, LinearMaker
from engine.device.kernels.quantized import QuantizedWeight, Weight
from engine.models.quantized import OrderedLinear, RowScaledLinear, WidenedLinear

_pack = torch.ops.mkldnn._reorder_linear_weight
_packed_linear = torch.ops.mkldnn._linear_pointwise


BUCKETS = (0, 1, 2, 4, 8, 16, 24, 32, 48, *range(64, 513, 64))
"""Numbers of rows that torch multiplies on a CPU. oneDNN compiles and keeps code for each number of rows."""


def make_linear(weight: Weight, bias: Tensor | None, maker: LinearMaker | None = None) -> Linear:
    """A `Linear` for a weight `[out, in]`, which it may copy to another layout. None: by torch."""
    if isinstance(weight, QuantizedWeight) and weight.order is not None:
        return OrderedLinear(make_linear(replace(weight, order=None), bias, maker), weight.order)
    linear = (maker or torch_linear)(weight, bias)
    assert linear is not None
    return linear


def torch_linear(weight: Weight, bias: Tensor | None, /) -> Linear:
    """By torch's operators: a `LinearMaker` for every device."""
    linear: Linear
    if isinstance(weight, QuantizedWeight):
        kind = RowScaledLinear if RowScaledLinear.can_multiply(weight) else WidenedLinear
        linear = kind(weight, bias)
    elif weight.device.type == "cpu" and can_pack(weight.dtype):
        linear = PackedLinear(weight, bias)
    elif weight.device.type == "cpu" and weight.dtype == torch.bfloat16:
        linear = WideLinear(weight, bias)
    else:
        linear = PlainLinear(weight, bias)
    return BucketLinear(linear) if weight.device.type == "cpu" else linear


def can_pack(dtype: torch.dtype) -> bool:
    """Whether torch has oneDNN, and oneDNN multiplies this type by instructions of this processor."""
    if not torch._C._has_mkldnn:
        return False
    return dtype == torch.float32 or (
        dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )


class BucketLinear:
    """Pads rows to the next of `BUCKETS`, so that oneDNN compiles little, and keeps little memory."""

    def __init__(self, linear: Linear) -> None:
        self._linear = linear

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        rows, most = x.shape[0], BUCKETS[-1]
        if rows in BUCKETS:
            return self._linear(x, residual)
        if rows > most:
            parts = (slice(i, i + most) for i in range(0, rows, most))
            return torch.cat([self(x[p], residual[p] if residual is not None else None) for p in parts])
        padding = (0, 0, 0, BUCKETS[bisect.bisect_left(BUCKETS, rows)] - rows)
        padded = F.pad(residual, padding) if residual is not None else None
        return self._linear(F.pad(x, padding), padded)[:rows]


class PlainLinear:
    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight = weight
        self._bias = bias

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        out = F.linear(x, self._weight, self._bias)
        return out if residual is None else out.add_(residual)


class WideLinear:
    """Multiplies more than a few rows in float32, a part of the weights at a time. torch multiplies them in
    bfloat16 without vector instructions if the processor has none for it."""

    FEW = 4
    """Widening takes longer than the product of so many rows."""
    PART = 512
    """Outputs whose weights are widened together: they stay in the cache."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self._weight = weight
        self._bias = bias
        self._plain = PlainLinear(weight, bias)

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        if x.shape[0] <= self.FEW:
            return self._plain(x, residual)
        wide = x.float()
        out = torch.cat([F.linear(wide, part.float()) for part in self._weight.split(self.PART)], 1)
        for added in (self._bias, residual):
            if added is not None:
                out += added
        return out.to(x.dtype)


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
