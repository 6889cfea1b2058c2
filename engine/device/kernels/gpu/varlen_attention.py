"""A step's attention by torch's `varlen_attn` over pages. Experimental: not run on a GPU yet.

It needs FlashAttention 3: a Hopper GPU, the package `flash_attn_interface`, and a type of 16 bits. torch
changes `varlen_attn` between versions, so the engine tries it before use (`engine.device.kernels.probe`).
"""

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.device.attention import Attention, Scoring
from engine.device.batch import Batch
from engine.device.kv_cache import KVCache


@dataclass(frozen=True, slots=True)
class VarlenAttention:
    """Implements `KeptAttention` for layers that only scale scores. `other` computes all other layers."""

    kv_cache: KVCache
    batch: Batch
    other: Attention

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scoring: Scoring) -> Tensor:
        if scoring.softcap is not None or scoring.s_aux is not None or key.shape[2] != value.shape[2]:
            return self.other(layer, query, key, value, scoring)
        self.kv_cache.write(layer, self.batch.slots, key, value)
        return self.attend(layer, query, scoring)

    def attend(self, layer: int, query: Tensor, scoring: Scoring) -> Tensor:
        batch, n = self.batch, self.batch.num_singles
        out = torch.empty_like(query)
        if n:
            bounds = torch.arange(n + 1, device=query.device)
            lengths = batch.positions[:n] + 1
            out[:n] = self._attend(layer, query[:n], bounds, 1, lengths, batch.block_tables, scoring)
        if batch.chunks:
            longest = max(chunk.end - chunk.start for chunk in batch.chunks)
            bounds = batch.chunk_bounds - n
            lengths = batch.positions[batch.chunk_bounds[1:] - 1] + 1
            out[n:] = self._attend(layer, query[n:], bounds, longest, lengths, batch.chunk_tables, scoring)
        return out

    def _attend(
        self,
        layer: int,
        query: Tensor,
        bounds: Tensor,
        longest: int,
        lengths: Tensor,
        tables: Tensor,
        scoring: Scoring,
    ) -> Tensor:
        from torch.nn.attention.varlen import varlen_attn

        # varlen_attn wants pages of [block, slot, head, dim].
        keys, values = (pool[layer].transpose(1, 2) for pool in (self.kv_cache.keys, self.kv_cache.values))
        window = -1 if scoring.sliding_window is None else scoring.sliding_window - 1
        out = varlen_attn(
            query,
            keys,
            values,
            bounds.int(),
            None,
            longest,
            tables.shape[1] * self.kv_cache.block_size,
            scale=scoring.scaling,
            window_size=(window, 0),
            enable_gqa=query.shape[1] != keys.shape[2],
            seqused_k=lengths.int(),
            block_table=tables.int(),
        )
        assert isinstance(out, Tensor)
        return out


def use_flash_attention_3() -> Callable[[], None]:
    """Let torch use FlashAttention 3 in this process, if it is installed. The result undoes this. Raises
    `ValueError` if torch and FlashAttention 3 do not fit together."""
    if importlib.util.find_spec("flash_attn_interface") is None:
        return lambda: None
    try:
        attention = importlib.import_module("torch.nn.attention")
        attention.activate_flash_attention_impl("FA3")
    except (ImportError, AttributeError, RuntimeError) as error:
        raise ValueError(str(error)) from error
    undo: Callable[[], None] = attention.restore_flash_attention_impl
    return undo
