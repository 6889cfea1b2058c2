"""A step's attention by kernels in Triton, for every kind of layer and every float type. Experimental."""

from dataclasses import dataclass

from torch import Tensor

from engine.execution.attention import Scoring
from engine.execution.batch import Batch
from engine.execution.kernels.gpu.triton_decode import decode
from engine.execution.kernels.gpu.triton_prefill import prefill
from engine.execution.kv_cache import KVCache


@dataclass(frozen=True, slots=True)
class TritonAttention:
    """Implements `KeptAttention`."""

    kv_cache: KVCache
    batch: Batch

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scoring: Scoring) -> Tensor:
        self.kv_cache.write(layer, self.batch.slots, key, value)
        return self.attend(layer, query, scoring)

    def attend(self, layer: int, query: Tensor, scoring: Scoring) -> Tensor:
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
