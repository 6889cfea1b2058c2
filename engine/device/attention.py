"""Attention over the paged cache by torch's own operators, on every device and for every kind of layer.

All tokens of a step come as one flat row. The `Batch` knows which token belongs to which sequence.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.device.batch import Batch, may_see
from engine.device.kv_cache import KVCache


@dataclass(frozen=True, slots=True)
class Scoring:
    """How a layer turns queries and keys into weights."""

    scaling: float | None = None
    """Factor of the scores. None: `dim ** -0.5`."""
    sliding_window: int | None = None
    """Tokens that a token sees, itself included. None: all before it."""
    softcap: float | None = None
    """Limit of the scores (Gemma 2)."""
    s_aux: Tensor | None = None
    """Attention sinks, `[heads]` (gpt-oss)."""


class Attention(Protocol):
    """One step's attention, called for every layer in turn."""

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scoring: Scoring) -> Tensor:
        """Store keys and values in the cache, and attend. `query` is `[tokens, heads, dim]`; `key` and
        `value` are `[tokens, kv_heads, dim]`. The result is `[tokens, heads, value_dim]`."""


AttentionBackend = Callable[[KVCache, Batch], Attention]


@dataclass(frozen=True, slots=True)
class PagedAttention:
    """Implements `Attention`: gathers keys and values from their blocks, and calls torch's attention."""

    kv_cache: KVCache
    batch: Batch

    def __call__(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scoring: Scoring) -> Tensor:
        self.kv_cache.write(layer, self.batch.slots, key, value)
        out = query.new_empty(*query.shape[:2], value.shape[2])
        if n := self.batch.num_singles:
            k, v = self.kv_cache.gather(layer, self.batch.block_tables)
            seen = self.batch.single_mask(k.shape[2], scoring.sliding_window)
            out[:n] = _attend(query[:n, None], k, v, seen, scoring)[:, 0]
        for chunk in self.batch.chunks:
            tokens = slice(chunk.start, chunk.end)
            if chunk.num_context:
                num_keys = chunk.num_context + chunk.end - chunk.start
                k, v = (t[:, :, :num_keys] for t in self.kv_cache.gather(layer, chunk.block_table))
            else:
                k, v = key[None, tokens].transpose(1, 2), value[None, tokens].transpose(1, 2)
            mask = self.batch.chunk_mask(chunk, scoring.sliding_window)
            out[tokens] = _attend(query[None, tokens], k, v, mask, scoring)[0]
        return out


def _attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, scoring: Scoring) -> Tensor:
    # query and result [rows, queries, heads, dim]; key and value [rows, kv_heads, keys, dim].
    # mask None: causal.
    scaling, softcap, sinks = scoring.scaling, scoring.softcap, scoring.s_aux
    query = query.transpose(1, 2)
    rows, heads, queries, _ = query.shape
    kv_heads = key.shape[1]
    plain = softcap is None and sinks is None
    if plain and queries == 1 and heads != kv_heads:
        # The query heads that share a key head become queries of this head, so that no key is copied.
        query = query.reshape(rows, kv_heads, heads // kv_heads, -1)
        packed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scaling)
        return packed.reshape(rows, 1, heads, -1)
    if heads != kv_heads:
        key, value = (t.repeat_interleave(heads // kv_heads, dim=1) for t in (key, value))
    if plain:
        out = F.scaled_dot_product_attention(query, key, value, mask, is_causal=mask is None, scale=scaling)
        return out.transpose(1, 2)

    scores = query @ key.transpose(2, 3) * (query.shape[3] ** -0.5 if scaling is None else scaling)
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if mask is None:
        mask = may_see(torch.arange(queries, device=query.device), queries, None)
    scores = scores.float().masked_fill(~mask, float("-inf"))
    if sinks is not None:
        column = sinks.float().view(1, heads, 1, 1).expand(rows, heads, queries, 1)
        weights = torch.cat([scores, column], dim=-1).softmax(-1)[..., :-1]
    else:
        weights = scores.softmax(-1)
    return (weights.to(value.dtype) @ value).transpose(1, 2)
