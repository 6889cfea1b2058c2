"""Matrix multiplication in C with weights of 8 and 4 bits, compiled for this processor and for others."""

import platform
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from engine.device.kernels.cpu import native_library
from engine.device.kernels.cpu.native_kernels import native_linears
from engine.device.kernels.cpu.native_library import Library
from engine.device.kernels.cpu.native_quantized import NativeQuantizedLinear
from engine.device.kernels.quantized import QuantizedWeight
from engine.device.trials import TrialRecord
from engine.models.linear import torch_linear
from engine.models.linear_trial import LinearTrial
from engine.models.quantized import quantize_int4, quantize_int8
from tests.engine.device.kernels.cpu.builds import build_of, library_of
from tests.helpers import examples


def in_groups(weight: Tensor, bits: Literal[4, 8], *, is_shifted: bool) -> QuantizedWeight:
    """Groups of 32, as Q8_0 and Q4_1 have them, and AWQ with zero points."""
    four = quantize_int4(weight, 32)
    groups = four.scales.shape[1]
    shifts = torch.randn(weight.shape[0], groups).half() if is_shifted else None
    scale = four.scales / (16 if bits == 8 else 1)
    low, high = (-8, 8) if bits == 4 else (-127, 128)
    numbers = torch.randint(low, high, weight.shape, dtype=torch.int8)
    offsets = torch.randint(-7, 9, scale.shape, dtype=torch.int8) if bits == 4 else None
    return QuantizedWeight(bits, numbers, scale, offsets, 32, shifts=shifts)


FORMATS: dict[str, Callable[[torch.Tensor], QuantizedWeight]] = {
    "int8": quantize_int8,
    "int4, groups of 32": partial(quantize_int4, group_size=32),
    "int4, groups of 64": partial(quantize_int4, group_size=64),
    "int4, groups of 128": partial(quantize_int4, group_size=128),
    "int4, groups of 512": partial(quantize_int4, group_size=512),
    "int4, one group": lambda weight: quantize_int4(weight, weight.shape[1]),
    "int8, groups of 32": partial(in_groups, bits=8, is_shifted=False),
    "int8, groups of 32, shifted": partial(in_groups, bits=8, is_shifted=True),
    "int4, groups of 32, offset": partial(in_groups, bits=4, is_shifted=False),
    "int4, groups of 32, offset and shifted": partial(in_groups, bits=4, is_shifted=True),
    "int4, even": lambda weight: replace(quantize_int4(weight, 32), shifts=None),
}
SIZES = [(1, 1), (37, 50), (129, 200), (1100, 70)]
"""Numbers of inputs and outputs."""


@pytest.fixture(scope="module")
def fastest() -> Library:
    return library_of("bfloat16")


def made(kind: str, ins: int, outs: int) -> QuantizedWeight:
    torch.manual_seed(ins)
    return FORMATS[kind](torch.randn(outs, ins) + torch.randn(outs, 1))


def is_close(found: Tensor, exact: Tensor, sizes: Tensor) -> bool:
    """Whether `found` is `exact`, rounded once; `sizes` are the sums of the terms' magnitudes."""
    half_a_unit = torch.finfo(found.dtype).eps / 2
    return bool(((found.double() - exact).abs() <= half_a_unit * exact.abs() * 1.01 + 2e-6 * sizes).all())


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(("ins", "outs"), SIZES)
def test_the_product_with_the_exact_weights_is_rounded_once(
    library: Library, ins: int, outs: int, kind: str
) -> None:
    weight, bias = made(kind, ins, outs), torch.randn(outs).to(library.dtype)
    linear, exact = NativeQuantizedLinear(library, weight, bias), weight.dequantized().double()
    for tokens in [1, 2, 6, 7, 16, 17, 40]:
        x = torch.randn(tokens, ins).to(library.dtype)
        residual = torch.randn(tokens, outs).to(library.dtype)
        sizes = x.double().abs() @ (exact.abs() + 16 * weight.scales.double().amax(1, True)).T + 10
        if weight.shifts is not None:
            sizes += x.double().abs().sum(1, True) * weight.shifts.double().abs().amax(1)
        assert is_close(linear(x, residual), x.double() @ exact.T + bias.double() + residual.double(), sizes)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(("ins", "outs"), SIZES)
def test_a_row_s_result_does_not_depend_on_the_other_rows(
    library: Library, ins: int, outs: int, kind: str
) -> None:
    linear = NativeQuantizedLinear(library, made(kind, ins, outs))
    x = torch.randn(40, ins).to(library.dtype)
    alone = torch.cat([linear(row[None]) for row in x])
    for tokens in [*range(2, 20), 40]:
        assert torch.equal(linear(x[:tokens]), alone[:tokens])


@pytest.mark.parametrize("kind", ["int8", "int4, groups of 32"])
def test_more_rows_than_pass_a_panel_at_once_give_the_same_results(fastest: Library, kind: str) -> None:
    linear = NativeQuantizedLinear(fastest, made(kind, 1100, 70))
    x = torch.randn(1100, 1100).to(fastest.dtype)
    parts = (x[:16], x[16:80], x[80:145], x[145:])
    assert torch.equal(linear(x), torch.cat([linear(part) for part in parts]))


@examples(240)
@given(
    ins=st.integers(1, 700),
    outs=st.integers(1, 130),
    tokens=st.integers(0, 40),
    group_size=st.sampled_from([32, 64, 128, 256, 512, 1024]),
    seed=st.integers(0, 1000),
)
def test_any_shape_gives_the_product(
    fastest: Library, ins: int, outs: int, tokens: int, group_size: int, seed: int
) -> None:
    torch.manual_seed(seed)
    weight = quantize_int4(torch.randn(outs, ins) * torch.rand(outs, 1), group_size)
    x, exact = torch.randn(tokens, ins).to(fastest.dtype), weight.dequantized().double()
    sizes = x.double().abs() @ (exact.abs() + 16 * weight.scales.double().amax(1, True)).T
    assert is_close(NativeQuantizedLinear(fastest, weight)(x), x.double() @ exact.T, sizes)


@pytest.mark.parametrize("kind", ["int8", "int4, groups of 32"])
def test_an_infinity_stays_in_its_row(library: Library, kind: str) -> None:
    linear = NativeQuantizedLinear(library, made(kind, 37, 50))
    x = torch.randn(13, 37).to(library.dtype)
    expected = linear(x)
    x[7] = torch.inf
    found = linear(x)
    assert not found[7].isfinite().any()
    found[7] = expected[7]
    assert torch.equal(found, expected)


@pytest.mark.parametrize("kind", ["int8", "int4, groups of 32", "int4, groups of 128"])
def test_the_number_of_threads_does_not_change_the_result(library: Library, kind: str) -> None:
    linear = NativeQuantizedLinear(library, made(kind, 512, 640))
    x = torch.randn(600, 512).to(library.dtype)
    before = torch.get_num_threads()
    try:
        for tokens in (1, 5, 32, 600):
            found = []
            for num_threads in (1, 2, 5):
                torch.set_num_threads(num_threads)
                found.append(linear(x[:tokens]))
            assert torch.equal(found[0], found[1])
            assert torch.equal(found[0], found[2])
    finally:
        torch.set_num_threads(before)


def test_torch_multiplies_if_groups_end_elsewhere(fastest: Library) -> None:
    weight = quantize_int4(torch.randn(50, 96), 48)
    makers = {**native_linears(fastest), "torch": torch_linear}
    linear = LinearTrial(makers, torch.float32, TrialRecord(None))(weight, None)
    x = torch.randn(3, 96)
    assert torch.allclose(linear(x), x @ weight.dequantized().T, atol=1e-4)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names x86's instructions")
def test_it_compiles_without_any_vector_instructions(monkeypatch: pytest.MonkeyPatch) -> None:
    replaced = {"-O3": "-O0", "-march=native": "-march=x86-64"}
    monkeypatch.setattr(native_library, "FLAGS", tuple(replaced.get(f, f) for f in native_library.FLAGS))
    library = build_of("bfloat16")
    weight = made("int4, groups of 32", 64, 64)
    x = torch.randn(3, 64).bfloat16()
    assert is_close(
        NativeQuantizedLinear(library, weight)(x),
        x.double() @ weight.dequantized().double().T,
        torch.tensor(1000.0),
    )


@pytest.mark.parametrize("kind", FORMATS)
def test_torch_gives_the_same_product(kind: str) -> None:
    weight, x = made(kind, 129, 50), torch.randn(3, 129)
    assert torch.allclose(torch_linear(weight, None)(x), x @ weight.dequantized().T, atol=1e-3)
