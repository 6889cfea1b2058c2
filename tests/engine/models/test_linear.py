"""Matrix multiplications by torch."""

import pytest
import torch
from torch import Tensor

from engine.models.linear import BUCKETS, BucketLinear, WideLinear


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


@pytest.mark.parametrize("rows", [1, WideLinear.FEW, WideLinear.FEW + 1, 40])
def test_a_product_in_float32_is_rounded_to_the_rows_type(rows: int) -> None:
    torch.manual_seed(rows)
    weight, bias = (
        torch.randn(WideLinear.PART + 7, 60).bfloat16(),
        torch.randn(WideLinear.PART + 7).bfloat16(),
    )
    x, residual = torch.randn(rows, 60).bfloat16(), torch.randn(rows, WideLinear.PART + 7).bfloat16()
    exact = x.double() @ weight.double().T + bias.double()
    linear = WideLinear(weight, bias)
    assert linear(x).dtype == torch.bfloat16
    torch.testing.assert_close(linear(x).double(), exact, rtol=0.01, atol=0.05)
    torch.testing.assert_close(linear(x, residual).double(), exact + residual.double(), rtol=0.02, atol=0.1)
