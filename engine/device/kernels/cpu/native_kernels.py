"""Implements the kernels of `protocol` by C functions: passes them addresses and shapes."""

import ctypes
from collections.abc import Mapping
from ctypes import c_float, c_int64, c_void_p
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from engine.device.batch import Batch
from engine.device.kernels.cpu.native_library import QUICK, Library, address
from engine.device.kernels.cpu.native_linear import NativeLinear
from engine.device.kernels.cpu.native_matrix import Matrix, NativeMatrix, out_of_memory
from engine.device.kernels.cpu.native_quantized import NativeQuantizedLinear
from engine.device.kernels.protocol import (
    AttentionLayer,
    AttentionShape,
    DecoderLayer,
    Linear,
    LinearMaker,
    StepKernels,
)
from engine.device.kernels.quantized import QuantizedWeight, Weight
from engine.device.kv_cache import KVCache

MAX_DIM, MAX_GROUP = 256, 16
"""attention.c has room for heads of `MAX_DIM` elements, and for `MAX_GROUP` query heads to a key head."""


class _Shape(ctypes.Structure):
    _fields_ = (
        *((name, c_int64) for name in ("num_heads", "num_kv_heads", "head_dim", "block_size")),
        ("eps", c_float),
        ("rope", c_void_p),
    )


class _Layer(ctypes.Structure):
    _fields_ = (*((name, c_void_p) for name in ("q_norm", "k_norm", "keys", "values")), ("window", c_int64))


class _DecoderLayer(ctypes.Structure):
    _fields_ = (
        *((name, c_void_p) for name in ("attention", "input_norm", "post_attention_norm")),
        *((name, Matrix) for name in ("qkv", "o", "gate_up", "down")),
    )


class _Chunk(ctypes.Structure):
    _fields_ = (("start", c_int64), ("end", c_int64), ("block_table", c_void_p))


@cache
def _chunk_array(length: int) -> type[ctypes.Array[_Chunk]]:
    """ctypes makes a new type when the last array of a length has gone."""
    return _Chunk * length


class _Step(ctypes.Structure):
    _fields_ = (
        *((name, c_int64) for name in ("num_tokens", "num_singles", "num_chunks", "table_width")),
        *((name, c_void_p) for name in ("positions", "slots", "block_tables", "chunks")),
    )


class WholeLayer(NamedTuple):
    """A decoder layer for one call of C."""

    layer: _DecoderLayer
    scratch: int
    """The elements of scratch memory that one token needs."""


class NativeKernels:
    """Implements `Kernels` on a CPU."""

    def __init__(self, library: Library, shape: AttentionShape) -> None:
        self.linears: Mapping[str, LinearMaker] = native_linears(library)
        self.functions_for = library.functions_for
        self.shape = shape
        self.run_layer: Any = library.functions.run_layer
        self._layer_scratch: Any = library.functions.layer_scratch
        self._kv_cache: KVCache | None = None
        """The cache that the layers and `c_shape` are made for."""
        self.c_shape: _Shape
        """`step` makes it."""
        self._attention_layers: dict[int, _Layer] = {}
        self._layers: dict[DecoderLayer, WholeLayer | None] = {}
        self._scratch = torch.empty(0)

    @staticmethod
    def can_run(shape: AttentionShape) -> bool:
        return shape.head_dim <= MAX_DIM and shape.num_heads <= MAX_GROUP * shape.num_kv_heads

    def step(self, batch: Batch, kv_cache: KVCache) -> "NativeStep":
        if kv_cache is not self._kv_cache:
            self._attention_layers, self._layers = {}, {}
            self._kv_cache = kv_cache
            shape = self.shape
            self.c_shape = _Shape(
                shape.num_heads,
                shape.num_kv_heads,
                shape.head_dim,
                kv_cache.block_size,
                shape.rms_norm_eps,
                shape.rope_table.data_ptr(),
            )
        return NativeStep(self, batch, kv_cache)

    def attention_layer(self, layer: AttentionLayer, kv_cache: KVCache) -> _Layer:
        """The layer as C reads it, made once for a cache."""
        known = self._attention_layers.get(layer.index)
        if known is None:
            known = self._attention_layers[layer.index] = _Layer(
                address(layer.q_norm),
                address(layer.k_norm),
                kv_cache.keys[layer.index].data_ptr(),
                kv_cache.values[layer.index].data_ptr(),
                layer.window or 0,
            )
        return known

    def layer(self, layer: DecoderLayer, kv_cache: KVCache) -> WholeLayer | None:
        """The layer as C reads it, made once for a cache. None: C does not multiply all its matrices."""
        if layer not in self._layers:
            self._layers[layer] = self._whole(layer, kv_cache)
        return self._layers[layer]

    def _whole(self, layer: DecoderLayer, kv_cache: KVCache) -> WholeLayer | None:
        linears = layer.qkv, layer.o, layer.gate_up, layer.down
        matrices = [linear.matrix for linear in linears if isinstance(linear, NativeMatrix)]
        if len(matrices) < len(linears):
            return None
        whole = _DecoderLayer(
            ctypes.addressof(self.attention_layer(layer.attention, kv_cache)),
            layer.input_norm.data_ptr(),
            layer.post_attention_norm.data_ptr(),
            *matrices,
        )
        scratch = self._layer_scratch(ctypes.byref(self.c_shape), ctypes.byref(whole))
        return WholeLayer(whole, scratch)

    def scratch(self, num_elements: int, x: Tensor) -> Tensor:
        """Memory for the layers of one step, of the type of `x`. It is kept for later steps: new memory for
        each step, every time of another size, leaves gaps, and the process grows."""
        if self._scratch.shape[0] < num_elements:
            self._scratch = x.new_empty(0)  # first of all, the old memory is free
            self._scratch = x.new_empty(1 << (num_elements - 1).bit_length())
        return self._scratch


def native_linears(library: Library) -> Mapping[str, LinearMaker]:
    """The ways to multiply a matrix in C on this processor, by name, the likely fastest first."""
    makers: dict[str, LinearMaker] = {}
    if library.has_tiles:
        makers["C, AMX"] = partial(_tiled_linear, library)
    return {**makers, "C": partial(_native_linear, library)}


def _tiled_linear(library: Library, weight: Weight, bias: Tensor | None, /) -> Linear | None:
    return NativeLinear(library, weight, bias, by_tiles=True) if isinstance(weight, Tensor) else None


def _native_linear(library: Library, weight: Weight, bias: Tensor | None, /) -> Linear | None:
    if isinstance(weight, QuantizedWeight):
        can_multiply = NativeQuantizedLinear.can_multiply(library, weight)
        return NativeQuantizedLinear(library, weight, bias) if can_multiply else None
    return NativeLinear(library, weight, bias)


class NativeStep(StepKernels):
    """Implements `StepKernels`."""

    def __init__(self, kernels: NativeKernels, batch: Batch, kv_cache: KVCache) -> None:
        shape = kernels.shape
        self._kernels = kernels
        self._functions_for = kernels.functions_for
        self._kv_cache = kv_cache
        self._shape = ctypes.byref(kernels.c_shape)
        self._chunks = _chunk_array(len(batch.chunks))(
            *(_Chunk(c.start, c.end, c.block_table.data_ptr()) for c in batch.chunks)
        )
        self._step = _Step(
            batch.token_ids.shape[0],
            batch.num_singles,
            len(batch.chunks),
            batch.block_tables.shape[1],
            batch.positions.data_ptr(),
            batch.slots.data_ptr(),
            batch.block_tables.data_ptr(),
            ctypes.addressof(self._chunks),
        )
        # An upper bound. It does not know the chunks, which read more.
        read = batch.block_tables.numel() * kv_cache.block_size * 2 * shape.num_kv_heads * shape.head_dim
        self._attend: Any = kernels.functions_for(QUICK + 1 if batch.chunks else read).attend

    def run(self, layer: DecoderLayer, x: Tensor, rows: Tensor | None = None) -> Tensor:
        whole = self._kernels.layer(layer, self._kv_cache)
        if whole is None:
            return super().run(layer, x, rows)
        num_rows = (x if rows is None else rows).shape[0]
        scratch = self._kernels.scratch(max(x.shape[0], num_rows) * whole.scratch, x)
        out = x.new_empty(num_rows, x.shape[1])
        if not self._kernels.run_layer(
            ctypes.byref(whole.layer),
            self._shape,
            ctypes.byref(self._step),
            out.data_ptr(),
            x.data_ptr(),
            address(rows),
            num_rows,
            scratch.data_ptr(),
        ):
            raise out_of_memory()
        return out

    def rms_norm(self, x: Tensor, weight: Tensor) -> Tensor:
        out = torch.empty_like(x)
        rows, dim = x.shape
        eps = self._kernels.shape.rms_norm_eps
        rms_norm = self._functions_for(rows * dim).rms_norm
        rms_norm(out.data_ptr(), x.data_ptr(), weight.data_ptr(), rows, dim, eps)
        return out

    def silu_and_mul(self, gate_up: Tensor) -> Tensor:
        rows, dim = gate_up.shape[0], gate_up.shape[1] // 2
        out = gate_up.new_empty(rows, dim)
        silu_and_mul = self._functions_for(rows * dim).silu_and_mul
        silu_and_mul(out.data_ptr(), gate_up.data_ptr(), rows, dim)
        return out

    def attend(self, layer: AttentionLayer, qkv: Tensor) -> Tensor:
        shape = self._kernels.shape
        out = qkv.new_empty(qkv.shape[0], shape.num_heads * shape.head_dim)
        self._attend(
            self._shape,
            ctypes.byref(self._kernels.attention_layer(layer, self._kv_cache)),
            ctypes.byref(self._step),
            qkv.data_ptr(),
            out.data_ptr(),
        )
        return out
