"""Multiplying by a matrix in C: as it is compiled for this processor, and for lesser ones."""

import platform
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine.execution.kernels.cpu import native
from engine.execution.kernels.cpu.native_linear import NativeLinear
from engine.execution.models.linear import make_linear, quantize_int8

IS_X86 = platform.machine() == "x86_64"
BUILDS = [("float32", ""), ("bfloat16", "")]
if IS_X86:
    BUILDS += [("float32", "-mno-avx512f"), ("bfloat16", "-mno-avx512f"), ("bfloat16", "-mno-avx512bf16")]
SIZES = [(1, 1), (37, 50), (64, 64), (129, 200), (513, 17)]
"""Inputs and outputs."""


def build(dtype: str, options: str, cache: Path) -> native.Library:
    with pytest.MonkeyPatch.context() as patch:
        if options:
            patch.setenv("CC", f"cc {options}")
            patch.setenv("XDG_CACHE_HOME", str(cache))
        native.load.cache_clear()
        library = native.load(getattr(torch, dtype))
    native.load.cache_clear()
    assert library is not None
    return library


@pytest.fixture(scope="module", params=BUILDS, ids=" ".join)
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> native.Library:
    return build(*request.param, tmp_path_factory.mktemp("cache"))


@dataclass
class Case:
    linear: NativeLinear
    weight: Tensor
    """As exactly as it is multiplied by."""
    bias: Tensor | None

    @classmethod
    def of(cls, library: native.Library, ins: int, outs: int, *, int8: bool, bias: bool = True) -> "Case":
        torch.manual_seed(ins)
        weight, scales = torch.randn(outs, ins).to(library.dtype), None
        added = torch.randn(outs).to(library.dtype) if bias else None
        if int8:
            weight, scales = quantize_int8(weight)
        exact = weight.double() if scales is None else weight.double() * scales.double()[:, None]
        return cls(NativeLinear(library, weight, added, scales), exact, added)


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize(("ins", "outs"), SIZES)
def test_any_number_of_rows_gives_the_product_rounded_once(
    library: native.Library, ins: int, outs: int, int8: bool
) -> None:
    case = Case.of(library, ins, outs, int8=int8)
    half_a_unit = torch.finfo(library.dtype).eps / 2
    for tokens in [*range(1, 41), 96, 97, 200]:
        x = torch.randn(tokens, ins).to(library.dtype)
        residual = torch.randn(tokens, outs).to(library.dtype)
        assert case.bias is not None
        exact = x.double() @ case.weight.T + case.bias.double() + residual.double()
        sizes = x.double().abs() @ case.weight.abs().T + 10
        bound = half_a_unit * exact.abs() * 1.01 + 1e-6 * sizes
        assert ((case.linear(x, residual).double() - exact).abs() <= bound).all()


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize(("ins", "outs"), SIZES)
def test_what_a_row_gives_does_not_depend_on_the_rows_beside_it(
    library: native.Library, ins: int, outs: int, int8: bool
) -> None:
    case = Case.of(library, ins, outs, int8=int8, bias=False)
    x = torch.randn(200, ins).to(library.dtype)
    alone = torch.cat([case.linear(row[None]) for row in x])
    for tokens in [*range(2, 41), 96, 97, 200]:
        assert torch.equal(case.linear(x[:tokens]), alone[:tokens])


def test_what_is_no_number_stays_in_its_row(library: native.Library) -> None:
    case = Case.of(library, 37, 50, int8=False)
    x = torch.randn(13, 37).to(library.dtype)
    expected = case.linear(x)
    x[7] = torch.inf
    found = case.linear(x)
    assert not found[7].isfinite().any()
    found[7] = expected[7]
    assert torch.equal(found, expected)


@pytest.mark.parametrize("int8", [False, True])
def test_threads_give_what_one_gives(library: native.Library, int8: bool) -> None:
    case = Case.of(library, 512, 640, int8=int8)
    x = torch.randn(200, 512).to(library.dtype)
    before = torch.get_num_threads()
    try:
        for tokens in (1, 5, 32, 200):
            found = []
            for num_threads in (1, 2, 5):
                torch.set_num_threads(num_threads)
                found.append(case.linear(x[:tokens]))
            assert torch.equal(found[0], found[1])
            assert torch.equal(found[0], found[2])
    finally:
        torch.set_num_threads(before)


@pytest.mark.skipif(not IS_X86, reason="names x86's instructions")
@pytest.mark.parametrize(
    ("dtype", "options", "is_used", "is_used_for_int8"),
    [
        ("float32", "-mavx2", True, True),
        ("bfloat16", "-mavx2", True, True),
        ("bfloat16", "-mavx2 -mamx-bf16", False, True),
        ("float32", "-mavx2 -mamx-bf16", True, True),
        ("float32", "-mno-avx2", False, False),
        ("bfloat16", "-mno-avx2", False, False),
    ],
)
def test_it_is_used_on_processors_that_it_is_fastest_on(
    dtype: str,
    options: str,
    is_used: bool,
    is_used_for_int8: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # What is asked of it here does not depend on the optimizer, which takes most of the time.
    flags = tuple("-O0" if flag == "-O3" else flag for flag in native.FLAGS)
    monkeypatch.setattr(native, "FLAGS", flags)
    library = build(dtype, options, tmp_path)
    weight = torch.randn(50, 37).to(library.dtype)
    assert isinstance(make_linear(weight, None, None, library), NativeLinear) == is_used
    assert isinstance(make_linear(weight, None, "int8", library), NativeLinear) == is_used_for_int8
