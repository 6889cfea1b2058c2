"""Implements the kernels of `protocol` by torch's own operators. They run on every device."""

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.device.attention import PagedAttention, Scoring
from engine.device.batch import Batch
from engine.device.kernels.protocol import AttentionLayer, AttentionShape, LinearMaker, StepKernels
from engine.device.kv_cache import KVCache


class TorchKernels:
    """Implements `Kernels` on any device."""

    def __init__(self, shape: AttentionShape) -> None:
        self._shape = shape
        self.linears: Mapping[str, LinearMaker] = {}

    def step(self, batch: Batch, kv_cache: KVCache) -> "TorchStep":
        return TorchStep(self._shape, batch, PagedAttention(kv_cache, batch))


class TorchStep(StepKernels):
    """Implements `StepKernels`."""

    def __init__(self, shape: AttentionShape, batch: Batch, attention: PagedAttention) -> None:
        self._shape = shape
        self._attention = attention
        self._cos, self._sin = shape.rope_table[batch.positions].unsqueeze(1).chunk(2, dim=-1)

    def rms_norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, weight.shape, weight, self._shape.rms_norm_eps)

    def silu_and_mul(self, gate_up: Tensor) -> Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        return F.silu(gate).mul_(up)

    def attend(self, layer: AttentionLayer, qkv: Tensor) -> Tensor:
        shape = self._shape
        heads, kv_heads = shape.num_heads, shape.num_kv_heads
        qkv = qkv.view(qkv.shape[0], heads + 2 * kv_heads, shape.head_dim)
        query, key, value = torch.split(qkv, [heads, kv_heads, kv_heads], dim=1)
        if layer.q_norm is not None and layer.k_norm is not None:
            query, key = self.rms_norm(query, layer.q_norm), self.rms_norm(key, layer.k_norm)
        query, key = self._rotate(query), self._rotate(key)
        out = self._attention(layer.index, query, key, value, Scoring(sliding_window=layer.window))
        return out.flatten(1)

    def _rotate(self, x: Tensor) -> Tensor:
        # Llama's checkpoints pair element i of a head's first half with element i of its second half.
        first, second = x.float().chunk(2, dim=-1)
        turned = torch.cat(
            [first * self._cos - second * self._sin, second * self._cos + first * self._sin], dim=-1
        )
        return turned.to(x.dtype)
