"""A whole layer in one call in C computes what its operators compute, bit for bit."""

import pytest
import torch
from torch import Tensor

from engine.device.kernels.cpu.native_kernels import NativeKernels
from engine.device.kernels.cpu.native_library import Library
from engine.device.kernels.cpu.native_linear import NativeLinear
from engine.device.kernels.cpu.native_quantized import NativeQuantizedLinear
from engine.device.kernels.protocol import AttentionLayer, AttentionShape, DecoderLayer, Linear, StepKernels
from engine.device.kv_cache import LayerShape
from engine.models.linear import torch_linear
from engine.models.quantized import quantize_int8
from tests.engine.device.attention_cases import Case

HIDDEN, HEADS, KV_HEADS, DIM, INTERMEDIATE = 64, 4, 2, 32, 128
SHAPE = LayerShape(KV_HEADS, DIM, DIM)
KINDS = ["plain", "tiles", "int8"]


def linear(library: Library, kind: str, ins: int, outs: int) -> Linear:
    weight, bias = torch.randn(outs, ins).to(library.dtype) / ins**0.5, torch.randn(outs).to(library.dtype)
    if kind == "int8":
        return NativeQuantizedLinear(library, quantize_int8(weight), bias)
    if kind == "torch":
        return torch_linear(weight, bias)
    return NativeLinear(library, weight, bias, by_tiles=kind == "tiles")


def make_layer(library: Library, kind: str, down: str | None = None) -> DecoderLayer:
    torch.manual_seed(5)

    def norm(dim: int) -> Tensor:
        return (1 + torch.randn(dim) / 4).to(library.dtype)

    return DecoderLayer(
        attention=AttentionLayer(0, None, norm(DIM), norm(DIM)),
        input_norm=norm(HIDDEN),
        qkv=linear(library, kind, HIDDEN, (HEADS + 2 * KV_HEADS) * DIM),
        o=linear(library, kind, HEADS * DIM, HIDDEN),
        post_attention_norm=norm(HIDDEN),
        gate_up=linear(library, kind, HIDDEN, 2 * INTERMEDIATE),
        down=linear(library, down or kind, INTERMEDIATE, HIDDEN),
    )


class Ways:
    """The layer in one call, and by operators, each over a cache of its own."""

    def __init__(self, library: Library, layer: DecoderLayer, rows: list[int] | None = None) -> None:
        angles = torch.arange(256.0)[:, None] / 100 ** (torch.arange(DIM // 2) / DIM)
        rope = torch.cat([angles.cos(), angles.sin()], dim=1)
        kernels = NativeKernels(library, AttentionShape(HEADS, KV_HEADS, DIM, 1e-6, rope))
        self.cases = [Case(SHAPE, heads=HEADS, dtype=library.dtype) for _ in range(2)]
        x = torch.randn(self.cases[0].batch.positions.shape[0], HIDDEN).to(library.dtype)
        before = x.clone()
        chosen = None if rows is None else torch.tensor(rows, dtype=torch.int64)
        one, other = self.cases
        self.whole = kernels.step(one.batch, one.kv_cache).run(layer, x, chosen)
        self.is_one_call = kernels.layer(layer, one.kv_cache) is not None
        self.by_operators = StepKernels.run(kernels.step(other.batch, other.kv_cache), layer, x, chosen)
        assert torch.equal(x, before)


@pytest.mark.parametrize("rows", [None, [0, 3, 4, 100, 196], [196, 1], []], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_it_computes_what_the_operators_compute(library: Library, kind: str, rows: list[int] | None) -> None:
    if kind == "tiles" and not library.has_tiles:
        pytest.skip("the processor has no AMX")
    ways = Ways(library, make_layer(library, kind), rows)
    assert torch.equal(ways.whole, ways.by_operators)
    caches = [case.kv_cache for case in ways.cases]
    assert torch.equal(caches[0].keys[0], caches[1].keys[0])
    assert torch.equal(caches[0].values[0], caches[1].values[0])
    assert ways.is_one_call


def test_a_matrix_that_torch_multiplies_is_multiplied_by_torch(library: Library) -> None:
    layer = make_layer(library, "plain", down="torch")
    ways = Ways(library, layer)
    assert not ways.is_one_call
    assert torch.equal(ways.whole, ways.by_operators)
