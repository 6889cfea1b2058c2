"""Matrix multiplication in C, compiled for this processor and for processors with fewer features."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from engine.device.kernels.cpu.native_kernels import native_linears
from engine.device.kernels.cpu.native_library import Library
from engine.device.kernels.cpu.native_linear import Memory, NativeLinear
from engine.device.kernels.protocol import Linear

SIZES = [(1, 1), (37, 50), (64, 64), (129, 200), (513, 17)]
"""Numbers of inputs and outputs."""


KINDS = ["vectors", "tiles"]
"""Without AMX, and with AMX."""


@dataclass
class Case:
    linear: Linear
    weight: Tensor
    bias: Tensor | None

    @classmethod
    def of(cls, library: Library, ins: int, outs: int, kind: str, *, bias: bool = True) -> "Case":
        if kind == "tiles" and not library.has_tiles:
            pytest.skip("the processor has no AMX")
        torch.manual_seed(ins)
        weight = torch.randn(outs, ins).to(library.dtype)
        added = torch.randn(outs).to(library.dtype) if bias else None
        linear = NativeLinear(library, weight, added, by_tiles=kind == "tiles")
        return cls(linear, weight.double(), added)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("ins", "outs"), SIZES)
def test_the_product_is_rounded_once_for_any_number_of_rows(
    library: Library, ins: int, outs: int, kind: str
) -> None:
    case = Case.of(library, ins, outs, kind)
    half_a_unit = torch.finfo(library.dtype).eps / 2
    for tokens in [*range(1, 41), 96, 97, 200]:
        x = torch.randn(tokens, ins).to(library.dtype)
        residual = torch.randn(tokens, outs).to(library.dtype)
        assert case.bias is not None
        exact = x.double() @ case.weight.T + case.bias.double() + residual.double()
        sizes = x.double().abs() @ case.weight.abs().T + 10
        bound = half_a_unit * exact.abs() * 1.01 + 1e-6 * sizes
        assert ((case.linear(x, residual).double() - exact).abs() <= bound).all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("ins", "outs"), SIZES)
def test_a_row_s_result_does_not_depend_on_the_other_rows(
    library: Library, ins: int, outs: int, kind: str
) -> None:
    case = Case.of(library, ins, outs, kind, bias=False)
    x = torch.randn(200, ins).to(library.dtype)
    alone = torch.cat([case.linear(row[None]) for row in x])
    for tokens in [*range(2, 41), 96, 97, 200]:
        assert torch.equal(case.linear(x[:tokens]), alone[:tokens])


@pytest.mark.parametrize("kind", KINDS)
def test_an_infinity_stays_in_its_row(library: Library, kind: str) -> None:
    case = Case.of(library, 37, 50, kind)
    x = torch.randn(13, 37).to(library.dtype)
    expected = case.linear(x)
    x[7] = torch.inf
    found = case.linear(x)
    assert not found[7].isfinite().any()
    found[7] = expected[7]
    assert torch.equal(found, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_the_number_of_threads_does_not_change_the_result(library: Library, kind: str) -> None:
    case = Case.of(library, 512, 640, kind)
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


def test_every_way_to_multiply_in_c_is_named(library: Library) -> None:
    makers = native_linears(library)
    assert list(makers) == (["C, AMX", "C"] if library.has_tiles else ["C"])
    for make in makers.values():
        linear = make(torch.ones(3, 2, dtype=library.dtype), None)
        assert linear is not None
        assert linear(torch.ones(1, 2, dtype=library.dtype)).tolist() == [[2, 2, 2]]


def test_memory_taken_apart_shares_no_piece() -> None:
    memory = Memory()
    before = memory.take(64)
    with memory.apart():
        apart = memory.take(64)
    after = memory.take(64)
    pieces = [tensor.untyped_storage().data_ptr() for tensor in (before, apart, after)]
    assert pieces[0] == pieces[2] != pieces[1]
