"""The kernels in Triton, for GPUs."""

from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import Tensor

from engine.execution.attention import KeptAttention, KeptAttentionBackend, Scoring
from engine.execution.batch import Batch
from engine.execution.kernels import AttentionShape
from engine.execution.kernels.gpu.triton_pointwise import rotate_and_keep, silu_and_mul
from engine.execution.kv_cache import KVCache

if TYPE_CHECKING:
    from engine.execution.kernels.cpu.native import Library
    from engine.execution.models.decoder import Layer


class TritonKernels:
    """Implements `Kernels` on a GPU, with whatever attends to what is kept."""

    def __init__(self, shape: AttentionShape, attention: KeptAttentionBackend) -> None:
        self._shape = shape
        self._attention = attention
        self.library: Library | None = None

    def step(self, batch: Batch, kv_cache: KVCache) -> "TritonStep":
        return TritonStep(self._shape, batch, kv_cache, self._attention(kv_cache, batch))


class TritonStep:
    """Implements `StepKernels`."""

    def __init__(
        self, shape: AttentionShape, batch: Batch, kv_cache: KVCache, attention: KeptAttention
    ) -> None:
        self._shape = shape
        self._batch = batch
        self._kv_cache = kv_cache
        self._attention = attention

    def rms_norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, weight.shape, weight, self._shape.rms_norm_eps)

    def silu_and_mul(self, gate_up: Tensor) -> Tensor:
        return silu_and_mul(gate_up)

    def attend(self, layer: "Layer", qkv: Tensor) -> Tensor:
        query = rotate_and_keep(
            qkv,
            self._shape,
            layer.q_norm,
            layer.k_norm,
            self._batch.positions,
            self._batch.slots,
            self._kv_cache.keys[layer.index],
            self._kv_cache.values[layer.index],
        )
        return self._attention.attend(layer.index, query, Scoring(sliding_window=layer.window)).flatten(1)
