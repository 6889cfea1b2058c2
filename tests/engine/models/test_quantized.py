"""Rounding weights to 8 and 4 bits, and multiplying with them by torch or in C."""

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.device.kernels.cpu import native_library
from engine.device.kernels.cpu.native_quantized import NativeQuantizedLinear
from engine.device.kernels.quantized import QuantizedWeight
from engine.models.linear import make_linear
from engine.models.quantized import quantize_int4, quantize_int8
from tests.engine.device.kernels.cpu.builds import HERE, library_of


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
    own_linear = partial(NativeQuantizedLinear, library) if in_c else None
    found = make_linear(quantize_int8(weight), bias, own_linear)(x, residual).float()
    step = weight.float().abs().amax(1) / 127
    bound = 0.5 * step * x.float().abs().sum(1, keepdim=True) + (0 if dtype == torch.float32 else 0.05) + 1e-4
    assert ((found - exact).abs() <= bound * 1.02).all()


@settings(deadline=None)
@given(
    ins=st.integers(1, 300),
    group_size=st.sampled_from([32, 64, 128]),
    seed=st.integers(0, 10_000),
    middle=st.sampled_from([-100.0, -1.0, 0.0, 1.0, 100.0]),
)
def test_int4_errs_by_less_than_numbers_that_reach_evenly_from_least_to_greatest(
    ins: int, group_size: int, seed: int, middle: float
) -> None:
    weight = torch.randn(9, ins, generator=torch.manual_seed(seed)) + middle
    rounded = quantize_int4(weight, group_size)
    for first in range(0, ins, group_size):
        group = weight[:, first : first + group_size]
        found = rounded.dequantized()[:, first : first + group_size]
        low, high = torch.aminmax(group, dim=1, keepdim=True)
        step = (high - low) / 15
        even = ((group - low) / step.clamp_min(1e-9)).round() * step + low
        # float16 rounds a shift, and one that is far from zero by more.
        slack = 1e-3 * abs(middle) + 0.01 * step
        assert (
            (found - group).norm(dim=1) <= (even - group).norm(dim=1) + slack[:, 0] * group.shape[1] ** 0.5
        ).all()
    assert rounded.numbers.min() >= -8
    assert rounded.numbers.max() <= 7


@pytest.mark.parametrize("scale", [1e-3, 1.0])
def test_int4_finds_the_grid_of_weights_that_were_on_one(scale: float) -> None:
    """So a matrix that was unpacked from 4 bits is not rounded once more."""
    grid = torch.randint(0, 16, (50, 128)).float()
    grid[:, ::32], grid[:, 1::32] = 0, 15
    weight = (grid * scale - 5.3 * scale).bfloat16()
    error = quantize_int4(weight, 32).dequantized() - (grid * scale - 5.3 * scale)
    assert error.abs().max() <= 0.05 * scale


def test_int4_errs_by_an_eighth_less_than_even_numbers() -> None:
    weight = torch.randn(512, 512)
    groups = weight.view(512, -1, 32)
    low, high = torch.aminmax(groups, dim=2, keepdim=True)
    even = ((groups - low) / (high - low) * 15).round() * (high - low) / 15 + low
    before, after = (
        (x.reshape(512, 512) - weight).square().mean()
        for x in (even, quantize_int4(weight, 32).dequantized())
    )
    assert after <= before * 7 / 8


def test_int4_keeps_groups_of_one_value() -> None:
    weight = torch.randn(4, 70)
    weight[:, :32] = 0
    weight[:, 64:] = 3.75
    found = quantize_int4(weight, 32).dequantized()
    assert not found[:, :32].any()
    assert (found[:, 64:] == 3.75).all()


def test_rounding_leaves_torchs_threads_as_they_were() -> None:
    before = torch.get_num_threads()
    quantize_int4(torch.randn(50, 37), 32)
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("options", [None, *(options for dtype, options in HERE if dtype == "float32")])
@pytest.mark.parametrize("ins", [37, 128])
def test_columns_in_another_order_give_the_same_product(ins: int, options: str | None) -> None:
    """`options`: the compiler's, for the kernels in C. None: torch multiplies."""
    weight = replace(quantize_int4(torch.randn(200, ins), 32), order=torch.randperm(ins))
    x, residual = torch.randn(5, ins), torch.randn(5, 200)
    maker = None if options is None else partial(NativeQuantizedLinear, library_of("float32", options))
    linear = make_linear(weight, None, maker)
    assert torch.allclose(linear(x, residual), x @ weight.dequantized().T + residual, atol=1e-3)


@pytest.mark.parametrize("num_groups", [1, 3, 4])
@pytest.mark.parametrize("name", ["scales", "shifts"])
def test_a_weight_has_a_scale_and_an_offset_for_each_group_of_its_inputs(name: str, num_groups: int) -> None:
    weight = quantize_int4(torch.randn(50, 37), 32)
    values = getattr(weight, name)[:, :1].expand(50, num_groups)
    with pytest.raises(ValueError, match=rf"\[50, 37\].* of 32 .*{name} \[50, 2\].*\[50, {num_groups}\]"):
        replace(weight, **{name: values})


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"scales": torch.ones(37, 2).half()}, r"scales \[50, 2\], and not \[37, 2\]"),
        ({"scales": torch.ones(50).half()}, r"scales \[50, 2\], and not \[50\]"),
        ({"numbers": torch.ones(50, 65, dtype=torch.int8)}, r"scales \[50, 3\], and not \[50, 2\]"),
        ({"order": torch.arange(36)}, r"order \[37\], and not \[36\]"),
    ],
)
def test_a_weight_whose_shapes_do_not_fit_together_is_refused(fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        replace(quantize_int4(torch.randn(50, 37), 32), **fields)


def test_outputs_of_weights_with_and_without_shifts_are_not_joined() -> None:
    weight = quantize_int4(torch.randn(50, 37), 32)
    with pytest.raises(ValueError, match="shifts"):
        QuantizedWeight.cat([weight, replace(weight, shifts=None)])
