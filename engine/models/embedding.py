"""The first part of a decoder: the row of each token."""

from collections.abc import Callable

import torch
from torch import Tensor

from engine.device.kernels.quantized import Weight

Embedding = Callable[[Tensor], Tensor]
"""`[tokens]` to `[tokens, hidden]`."""


def make_embedding(weight: Weight, dtype: torch.dtype) -> Embedding:
    """`weight` is `[vocab, hidden]`. Of whole numbers, the rows that a step needs are widened to `dtype`."""
    if isinstance(weight, Tensor):
        return weight.__getitem__
    return lambda ids: weight.rows(ids).dequantized().to(dtype)
