"""Implements attention and the kernels of `protocol` in Triton. Experimental: not run on a GPU yet."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from engine.device.attention import Scoring
from engine.device.batch import Batch
from engine.device.kernels.gpu.triton_decode import decode
from engine.device.kernels.gpu.triton_pointwise import rotate_and_keep, silu_and_mul
from engine.device.kernels.gpu.triton_prefill import prefill
from engine.device.kernels.protocol import AttentionLayer, AttentionShape, LinearMaker, StepKernels
from engine.device.kv_cache import KVCache


@dataclass(frozen=True, slots=True)
class TritonAttention:
    """Implements `Attention` for every kind of layer and every float type."""

    kv_cache: KVCache
    batch: Batch

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scoring: Scoring) -> Tensor:
        self.kv_cache.write(layer, self.batch.slots, key, value)
        return self.attend(layer, query, scoring)

    def attend(self, layer: int, query: Tensor, scoring: Scoring) -> Tensor:
        """Attend. The step's keys and values are in the cache already."""
        batch, keys, values = self.batch, self.kv_cache.keys[layer], self.kv_cache.values[layer]
        if query.stride(2) != 1:
            query = query.contiguous()
        out = query.new_empty(*query.shape[:2], values.shape[3])
        if n := batch.num_singles:
            decode(query[:n], keys, values, batch.block_tables, batch.positions, scoring, out[:n])
        if batch.chunks:
            longest = max(chunk.end - chunk.start for chunk in batch.chunks)
            tables, bounds = batch.chunk_tables, batch.chunk_bounds
            prefill(query, keys, values, tables, bounds, batch.positions, longest, scoring, out)
        return out


class TritonKernels:
    """Implements `Kernels` on a GPU."""

    def __init__(self, shape: AttentionShape) -> None:
        self._shape = shape
        self.linears: Mapping[str, LinearMaker] = {}

    def step(self, batch: Batch, kv_cache: KVCache) -> "TritonStep":
        return TritonStep(self._shape, batch, kv_cache)


class TritonStep(StepKernels):
    """Implements `StepKernels`."""

    def __init__(self, shape: AttentionShape, batch: Batch, kv_cache: KVCache) -> None:
        self._shape = shape
        self._batch = batch
        self._kv_cache = kv_cache
        self._attention = TritonAttention(kv_cache, batch)

    def rms_norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, weight.shape, weight, self._shape.rms_norm_eps)

    def silu_and_mul(self, gate_up: Tensor) -> Tensor:
        return silu_and_mul(gate_up)

    def attend(self, layer: AttentionLayer, qkv: Tensor) -> Tensor:
        batch, i = self._batch, layer.index
        keys, values = self._kv_cache.keys[i], self._kv_cache.values[i]
        query = rotate_and_keep(
            qkv, self._shape, layer.q_norm, layer.k_norm, batch.positions, batch.slots, keys, values
        )
        return self._attention.attend(i, query, Scoring(sliding_window=layer.window)).flatten(1)
