"""Matrices of whole numbers with scales. Their makers and the kernels both import this module."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class QuantizedWeight:
    """Stands for the matrix `(numbers + offsets) * scales + shifts`. A group of inputs shares all three."""

    bits: Literal[4, 8]
    numbers: Tensor
    """`[out, in]`, int8: from -8 to 7 if there are 4 bits, else from -127 to 127."""
    scales: Tensor
    """`[out, groups]`: float16 or float32."""
    offsets: Tensor | None
    """`[out, groups]`, int8. None: they are zero."""
    group_size: int
    """Inputs of a group. The last group may have fewer."""
    shifts: Tensor | None = None
    """`[out, groups]`, float16. None: they are zero."""
    order: Tensor | None = None
    """The input that each column of `numbers` belongs to, `[in]`. None: column i is input i."""

    def __post_init__(self) -> None:
        """Raises `ValueError` for shapes that do not fit together. C computes its strides from `numbers`."""
        outs, ins = self.numbers.shape
        of_groups = outs, -(-ins // self.group_size)
        for name, shape in (
            ("scales", of_groups),
            ("offsets", of_groups),
            ("shifts", of_groups),
            ("order", (ins,)),
        ):
            tensor: Tensor | None = getattr(self, name)
            if tensor is not None and tensor.shape != shape:
                raise ValueError(
                    f"numbers {[outs, ins]} in groups of {self.group_size} inputs need {name} {[*shape]},"
                    f" and not {[*tensor.shape]}"
                )

    @classmethod
    def cat(cls, parts: Sequence["QuantizedWeight"]) -> "QuantizedWeight":
        """The outputs of all parts, which have the same inputs, groups and order."""
        offsets = [part.offsets for part in parts if part.offsets is not None]
        shifts = [part.shifts for part in parts if part.shifts is not None]
        return replace(
            parts[0],
            numbers=torch.cat([part.numbers for part in parts]),
            scales=torch.cat([part.scales for part in parts]),
            offsets=torch.cat(offsets) if offsets else None,
            shifts=torch.cat(shifts) if shifts else None,
        )

    @property
    def device(self) -> torch.device:
        return self.numbers.device

    def dequantized(self) -> Tensor:
        """The matrix in float32, `[out, in]`, columns in the order of the inputs."""
        ins = self.numbers.shape[1]
        numbers = self.numbers.float()
        if self.offsets is not None:
            numbers += per_input(self.offsets, self.group_size, ins)
        matrix = numbers.mul_(per_input(self.scales.float(), self.group_size, ins))
        if self.shifts is not None:
            matrix += per_input(self.shifts.float(), self.group_size, ins)
        if self.order is None:
            return matrix
        return torch.empty_like(matrix).index_copy_(1, self.order, matrix)


Weight = Tensor | QuantizedWeight
"""A matrix `[out, in]`."""


def per_input(values: Tensor, group_size: int, num_inputs: int) -> Tensor:
    """Each group's value for each of its inputs: `[out, groups]` to `[out, in]`."""
    return values.repeat_interleave(group_size, 1)[:, :num_inputs]
