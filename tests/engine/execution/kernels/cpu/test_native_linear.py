"""Matrix multiplication in C, compiled for this processor and for processors with fewer features."""

import platform
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engine.config import Quantization
from engine.execution.kernels.cpu import native_library
from engine.execution.kernels.cpu.native_library import Library
from engine.execution.kernels.cpu.native_linear import NativeLinear, fast_linear
from engine.execution.models.linear import make_linear, quantize_int8

IS_X86 = platform.machine() == "x86_64"
BUILDS = [("float32", ""), ("bfloat16", "")]
if IS_X86:
    BUILDS += [("float32", "-mno-avx512f"), ("bfloat16", "-mno-avx512f"), ("bfloat16", "-mno-avx512bf16")]
SIZES = [(1, 1), (37, 50), (64, 64), (129, 200), (513, 17)]
"""Numbers of inputs and outputs."""


def build(dtype: str, options: str = "", cache: Path | None = None) -> Library:
    with pytest.MonkeyPatch.context() as patch:
        if options:
            patch.setenv("CC", f"cc {options}")
        if cache is not None:
            patch.setenv("XDG_CACHE_HOME", str(cache))
        native_library.load.cache_clear()
        library = native_library.load(getattr(torch, dtype))
    native_library.load.cache_clear()
    assert library is not None
    return library


@pytest.fixture(scope="module", params=BUILDS, ids=" ".join)
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Library:
    dtype, options = request.param
    return build(dtype, options, tmp_path_factory.mktemp("cache") if options else None)


@dataclass
class Case:
    linear: NativeLinear
    weight: Tensor
    """The exact values that the product uses: rounded to 8 bits and scaled back, if `int8`."""
    bias: Tensor | None

    @classmethod
    def of(cls, library: Library, ins: int, outs: int, *, int8: bool, bias: bool = True) -> "Case":
        torch.manual_seed(ins)
        weight, scales = torch.randn(outs, ins).to(library.dtype), None
        added = torch.randn(outs).to(library.dtype) if bias else None
        if int8:
            weight, scales = quantize_int8(weight)
        exact = weight.double() if scales is None else weight.double() * scales.double()[:, None]
        return cls(NativeLinear(library, weight, added, scales), exact, added)


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize(("ins", "outs"), SIZES)
def test_the_product_is_rounded_once_for_any_number_of_rows(
    library: Library, ins: int, outs: int, int8: bool
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
def test_a_row_s_result_does_not_depend_on_the_other_rows(
    library: Library, ins: int, outs: int, int8: bool
) -> None:
    case = Case.of(library, ins, outs, int8=int8, bias=False)
    x = torch.randn(200, ins).to(library.dtype)
    alone = torch.cat([case.linear(row[None]) for row in x])
    for tokens in [*range(2, 41), 96, 97, 200]:
        assert torch.equal(case.linear(x[:tokens]), alone[:tokens])


def test_an_infinity_stays_in_its_row(library: Library) -> None:
    case = Case.of(library, 37, 50, int8=False)
    x = torch.randn(13, 37).to(library.dtype)
    expected = case.linear(x)
    x[7] = torch.inf
    found = case.linear(x)
    assert not found[7].isfinite().any()
    found[7] = expected[7]
    assert torch.equal(found, expected)


@pytest.mark.parametrize("int8", [False, True])
def test_the_number_of_threads_does_not_change_the_result(library: Library, int8: bool) -> None:
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
    ("dtype", "features", "is_fast", "is_int8_fast"),
    [
        ("float32", "-mavx2", True, True),
        ("bfloat16", "-mavx2", True, True),
        ("bfloat16", "-mavx2 -mamx-bf16", False, True),
        ("float32", "-mavx2 -mamx-bf16", True, True),
        ("float32", "", False, False),
        ("bfloat16", "", False, False),
    ],
)
def test_a_processor_s_features_say_whether_it_is_the_fastest(
    dtype: str,
    features: str,
    is_fast: bool,
    is_int8_fast: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The processor at hand may lack these features, so no compiled function is called.
    # Without the optimizer, which takes most of the time, the answer is the same.
    replaced = {"-O3": "-O0", "-march=native": "-march=x86-64"}
    flags = tuple(replaced.get(flag, flag) for flag in native_library.FLAGS)
    monkeypatch.setattr(native_library, "FLAGS", (*flags, *features.split()))
    library = build(dtype, cache=tmp_path)
    assert (library.is_linear_fast, library.is_int8_linear_fast) == (is_fast, is_int8_fast)


@pytest.mark.parametrize("is_fast", [False, True])
@pytest.mark.parametrize("quantization", [None, "int8"])
def test_it_is_used_where_it_is_the_fastest(
    quantization: Quantization | None, is_fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = build("bfloat16")
    monkeypatch.setattr(library, "is_int8_linear_fast" if quantization else "is_linear_fast", is_fast)
    weight = torch.randn(50, 37).to(library.dtype)
    made = make_linear(weight, None, quantization, partial(fast_linear, library))
    assert isinstance(made, NativeLinear) == is_fast
