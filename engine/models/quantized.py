"""Rounds weights to 8 or 4 bits, and multiplies with such weights by torch's operators."""

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.device.kernels.protocol import Linear
from engine.device.kernels.quantized import QuantizedWeight

PART = 2**22
"""Weights that are rounded to 8 bits at a time: their copies in float32 take little memory."""
SEARCHED = 2**17
"""Weights that are rounded to 4 bits at a time: the search passes over them many times, and finds them in the
cache."""
STEPS = range(13, 19)
"""Steps into which the search divides a group's range. There are 15: more cut off the ends of the range."""
HALF = torch.finfo(torch.float16)


def quantize_int8(weight: Tensor) -> QuantizedWeight:
    """Each row is divided by its scale, which is its largest magnitude / 127, and rounded."""
    return QuantizedWeight.cat([_rounded_to_int8(part) for part in _parts(weight, PART)])


def quantize_int4(weight: Tensor, group_size: int) -> QuantizedWeight:
    """Each group of inputs has the scale and the shift that make the sum of its squared errors small.

    Some scales are tried. For the numbers that each gives, the best scale and shift are those of linear
    regression. llama.cpp searches so for its type Q4_1 (`make_qkx2_quants` in `ggml-quants.c`).
    """
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)  # an operator on a part is over before another thread is awake
    try:
        return QuantizedWeight.cat([_rounded_to_int4(part, group_size) for part in _parts(weight, SEARCHED)])
    finally:
        torch.set_num_threads(num_threads)


def _parts(weight: Tensor, size: int) -> tuple[Tensor, ...]:
    return torch.split(weight, max(1, size // weight.shape[1]))


def _rounded_to_int8(weight: Tensor) -> QuantizedWeight:
    scales = weight.float().abs().amax(1, keepdim=True).clamp_min_(torch.finfo(torch.float32).tiny) / 127
    numbers = (weight.float() / scales).round_().to(torch.int8)
    return QuantizedWeight(8, numbers, scales, None, weight.shape[1])


def _rounded_to_int4(weight: Tensor, group_size: int) -> QuantizedWeight:
    ins = weight.shape[1]
    last = ins % group_size
    parts = [(weight[:, : ins - last], group_size), (weight[:, ins - last :], last)]
    found = [_rounded_in_groups(part, size) for part, size in parts if part.shape[1]]
    numbers, scales, shifts = (torch.cat(tensors, 1) for tensors in zip(*found, strict=True))
    return QuantizedWeight(4, numbers, scales, None, group_size, shifts=shifts)


def _rounded_in_groups(weight: Tensor, group_size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Numbers, scales and shifts. `group_size` divides the number of inputs."""
    outs = weight.shape[0]
    groups = weight.float().reshape(-1, group_size).t().contiguous()
    scales, shifts = (values.half() for values in _best_grids(groups))
    per_unit = scales.float().reciprocal_()
    numbers = torch.addcmul(-shifts.float() * per_unit, groups, per_unit).round_().clamp_(-8, 7)
    return numbers.to(torch.int8).t().reshape(outs, -1), scales.view(outs, -1), shifts.view(outs, -1)


def _best_grids(groups: Tensor) -> tuple[Tensor, Tensor]:
    """The scale and the shift of each group's numbers from -8 to 7. `groups`: `[inputs, groups]`, float32."""
    centres = groups.mean(0)
    x = groups - centres
    low, high = torch.aminmax(x, dim=0)
    per_range, middle = (high - low).clamp_min_(HALF.tiny).reciprocal_(), (low + high) / 2
    explained, scales, means = (torch.zeros_like(centres) for _ in range(3))
    numbers, products = (
        torch.empty_like(x),
        torch.empty_like(x),
    )  # new memory takes longer than the arithmetic

    def consider(per_unit: Tensor, zeros: Tensor) -> None:
        """Round, fit a line to the numbers, and keep it where it explains more of the weights than before."""
        torch.addcmul(zeros, x, per_unit, out=numbers).round_().clamp_(0, 15)
        mean, covariance = numbers.mean(0), torch.mul(x, numbers, out=products).sum(0)
        variance = (numbers.square_().mean(0) - mean.square()).mul_(len(x)).clamp_min_(HALF.tiny)
        found = covariance.square() / variance
        is_better = found > explained
        for kept, new in ((explained, found), (scales, covariance / variance), (means, mean)):
            torch.where(is_better, new, kept, out=kept)

    for num_steps in STEPS:
        per_unit = num_steps * per_range
        consider(per_unit, 7.5 - middle * per_unit)
    consider(scales.clamp_min(HALF.tiny).reciprocal_(), means)
    return scales.clamp(HALF.smallest_normal, HALF.max), centres + (8 - means) * scales


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
