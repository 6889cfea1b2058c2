"""Rounds weights to 8 or 4 bits, and multiplies with such weights by torch's operators."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.device.kernels.protocol import Linear
from engine.device.kernels.quantized import QuantizedWeight

PART = 2**22
"""Weights that are rounded at a time: their copies in float32 take little memory."""


def quantize_int8(weight: Tensor) -> QuantizedWeight:
    """Each row is divided by its scale, which is its largest magnitude / 127, and rounded."""
    return QuantizedWeight.cat([_rounded_to_int8(part) for part in _parts(weight)])


def quantize_int4(weight: Tensor, group_size: int) -> QuantizedWeight:
    """The 16 numbers of a group of inputs reach evenly from its least value to its greatest. One number is
    zero exactly."""
    return QuantizedWeight.cat([_rounded_to_int4(part, group_size) for part in _parts(weight)])


def _parts(weight: Tensor) -> tuple[Tensor, ...]:
    return torch.split(weight, max(1, PART // weight.shape[1]))


def _rounded_to_int8(weight: Tensor) -> QuantizedWeight:
    scales = weight.float().abs().amax(1, keepdim=True).clamp_min_(torch.finfo(torch.float32).tiny) / 127
    numbers = (weight.float() / scales).round_().to(torch.int8)
    return QuantizedWeight(8, numbers, scales, None, weight.shape[1])


def _rounded_to_int4(weight: Tensor, group_size: int) -> QuantizedWeight:
    outs, ins = weight.shape
    groups = F.pad(weight.float(), (0, -ins % group_size)).view(outs, -1, group_size)
    low, high = groups.amin(2).clamp_max_(0), groups.amax(2).clamp_min_(0)
    half = torch.finfo(torch.float16)
    scales = ((high - low) / 15).clamp_(half.smallest_normal, half.max).half()
    zeros = (-low / scales).round_().clamp_(0, 15)
    numbers = (groups / scales[:, :, None] + zeros[:, :, None]).round_().clamp_(0, 15) - 8
    return QuantizedWeight(
        bits=4,
        numbers=numbers.view(outs, -1)[:, :ins].to(torch.int8),
        scales=scales,
        offsets=(8 - zeros).to(torch.int8),
        group_size=group_size,
    )


class RowScaledLinear:
    """Keeps weights of 8 bits with one scale for each output. It widens them to the activations' type at each
    call, and scales the outputs."""

    def __init__(self, weight: QuantizedWeight, bias: Tensor | None) -> None:
        self._numbers = weight.numbers
        self._scales = weight.scales[:, 0]
        self._bias = bias

    @staticmethod
    def can_multiply(weight: QuantizedWeight) -> bool:
        is_scaled_only = weight.offsets is None and weight.shifts is None
        return weight.bits == 8 and weight.scales.shape[1] == 1 and is_scaled_only

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        out = F.linear(x, self._numbers.to(x.dtype)).mul_(self._scales)
        if self._bias is not None:
            out += self._bias
        return out if residual is None else out.add_(residual)


class WidenedLinear:
    """Keeps weights of 8 bits, or of 4 bits with two in a byte. It computes the matrix at each call."""

    def __init__(self, weight: QuantizedWeight, bias: Tensor | None) -> None:
        self._ins = weight.numbers.shape[1]
        self._stored = _paired(weight.numbers) if weight.bits == 4 else weight.numbers
        self._with = partial(
            QuantizedWeight,
            bits=weight.bits,
            scales=weight.scales,
            offsets=weight.offsets,
            group_size=weight.group_size,
            shifts=weight.shifts,
        )
        self._is_paired = weight.bits == 4
        self._bias = bias

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        numbers = _unpaired(self._stored, self._ins) if self._is_paired else self._stored
        out = F.linear(x, self._with(numbers=numbers).dequantized().to(x.dtype), self._bias)
        return out if residual is None else out.add_(residual)


def _paired(numbers: Tensor) -> Tensor:
    """Two numbers of 4 bits in a byte: `[out, in]`, int8, to `[out, ceil(in / 2)]`, uint8."""
    nibbles = F.pad(numbers, (0, numbers.shape[1] % 2)).to(torch.uint8) & 15
    return nibbles[:, ::2] | nibbles[:, 1::2] << 4


def _unpaired(pairs: Tensor, ins: int) -> Tensor:
    low, high = pairs << 4, pairs  # the number is in the upper 4 bits
    return torch.stack([low, high], 2).view(torch.int8).flatten(1)[:, :ins] >> 4


class OrderedLinear:
    """Gives `linear` its inputs in the order in which the weight's columns are."""

    def __init__(self, linear: Linear, order: Tensor) -> None:
        self._linear = linear
        self._order = order

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        return self._linear(x[:, self._order], residual)
