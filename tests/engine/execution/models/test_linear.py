"""Matrix multiplications with weights of 8 bits."""

from functools import partial

import pytest
import torch
from torch import Tensor

from engine.execution.kernels.cpu import native_library
from engine.execution.kernels.cpu.native_linear import NativeLinear
from engine.execution.models.linear import BUCKETS, BucketLinear, make_linear


@pytest.mark.parametrize("in_c", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("tokens", [1, 2, 3, 4, 5, 16, 17, 40])
def test_int8_weights_are_within_their_rounding(dtype: torch.dtype, tokens: int, in_c: bool) -> None:
    torch.manual_seed(tokens)
    weight, x = torch.randn(50, 37).to(dtype), torch.randn(tokens, 37).to(dtype)
    bias, residual = torch.randn(50).to(dtype), torch.randn(tokens, 50).to(dtype)
    exact = make_linear(weight.float(), bias.float())(x.float(), residual.float())
    library = native_library.load(dtype)
    assert library is not None
    maker = partial(NativeLinear, library) if in_c else None
    found = make_linear(weight, bias, "int8", maker)(x, residual).float()
    step = weight.float().abs().amax(1) / 127
    bound = 0.5 * step * x.float().abs().sum(1, keepdim=True) + (0 if dtype == torch.float32 else 0.05) + 1e-4
    assert ((found - exact).abs() <= bound * 1.02).all()


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
