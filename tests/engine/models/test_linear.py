"""Matrix multiplications by torch."""

import pytest
import torch
from torch import Tensor

from engine.models.linear import BUCKETS, BucketLinear


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_torch_multiplies_few_numbers_of_rows(dtype: torch.dtype) -> None:
    seen = set()

    class Spy:
        def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
            seen.add(x.shape[0])
            return x if residual is None else x + residual

    bucketed = BucketLinear(Spy())
    for rows in (*range(70), 511, 512, 513, 1100):
        x, residual = torch.randn(rows, 3).to(dtype), torch.randn(rows, 3).to(dtype)
        assert torch.equal(bucketed(x), x)
        assert torch.equal(bucketed(x, residual), x + residual)
    assert seen <= set(BUCKETS)
