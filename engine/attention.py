"""Attention over the paged cache, called by the models' own code.

transformers lets a model's attention layers call a function of ours by name (`AttentionInterface`), with
queries, keys and values after rotary embedding. All of a step's tokens come as one flat row,
`[1, heads, tokens, dim]`; which token belongs to which sequence only the `Batch` knows. The extra keyword
argument `attend` reaches us through the model's `**kwargs`: a `PagedAttention` in a step, a probe at load.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface

from engine.kv_cache import KVCache

IMPLEMENTATION = "weir_paged"
"""The name models are loaded with, as `attn_implementation`. It has no mask function, so none is made."""


@dataclass(frozen=True, slots=True)
class PrefillChunk:
    """Several consecutive tokens of one sequence."""

    start: int
    """Of its tokens in the flat row; likewise `end`."""
    end: int
    num_context: int
    """Tokens of the sequence before these."""
    block_table: Tensor
    """`[1, blocks]`, enough for context and chunk."""


@dataclass(frozen=True, slots=True)
class Batch:
    """How a step's flat row of tokens divides into sequences: first those of a single token, then chunks."""

    slots: Tensor
    """Where each token's keys and values are kept, `[tokens]`."""
    num_decodes: int
    """Sequences of a single token."""
    block_tables: Tensor
    """Theirs, `[num_decodes, blocks]`, padded with any block."""
    positions: Tensor
    """Theirs, `[num_decodes]`."""
    chunks: tuple[PrefillChunk, ...]
    masks: dict[object, Tensor] = field(default_factory=dict)
    """Made by the first layer that needs one, used by the rest."""

    def decode_mask(self, num_keys: int, window: int | None) -> Tensor:
        """Which keys each single token may see, `[num_decodes, 1, 1, num_keys]`."""
        if window not in self.masks:
            self.masks[window] = _may_see(self.positions[:, None], num_keys, window)[:, None]
        return self.masks[window]

    def chunk_mask(self, chunk: PrefillChunk, window: int | None) -> Tensor | None:
        """Which keys each of the chunk's tokens may see, `[tokens, keys]`; None: itself and all before it."""
        num_keys = chunk.num_context + chunk.end - chunk.start
        if not chunk.num_context and (window is None or num_keys <= window):
            return None
        key = (chunk.start, window)
        if key not in self.masks:
            positions = torch.arange(chunk.num_context, num_keys, device=self.slots.device)
            self.masks[key] = _may_see(positions, num_keys, window)
        return self.masks[key]


class PagedAttention:
    """One step's attention, for every layer in turn."""

    def __init__(self, kv_cache: KVCache, batch: Batch) -> None:
        self._kv_cache = kv_cache
        self._batch = batch

    def __call__(
        self,
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        scaling: float | None = None,
        sliding_window: int | None = None,
        softcap: float | None = None,
        s_aux: Tensor | None = None,
    ) -> Tensor:
        """Keep the keys and values, and attend.

        Queries `[1, heads, tokens, dim]` give `[1, tokens, heads, value_dim]`. `sliding_window` counts the
        token itself; `softcap` bounds the scores (Gemma 2); `s_aux` `[heads]` are attention sinks (gpt-oss).
        """
        batch, layer = self._batch, layer_index(module)
        keys, values = key[0].transpose(0, 1), value[0].transpose(0, 1)
        self._kv_cache.write(layer, batch.slots, keys, values)
        out = query.new_empty(1, query.shape[2], query.shape[1], value.shape[3])

        if n := batch.num_decodes:
            k, v = self._kv_cache.gather(layer, batch.block_tables)
            seen = batch.decode_mask(k.shape[1], sliding_window)
            q = query[0, :, :n].transpose(0, 1).unsqueeze(2)
            out[0, :n] = _attend(q, k, v, seen, scaling, softcap, s_aux)[:, :, 0]

        for chunk in batch.chunks:
            tokens = slice(chunk.start, chunk.end)
            if chunk.num_context:
                num_keys = chunk.num_context + chunk.end - chunk.start
                k, v = (t[:, :num_keys] for t in self._kv_cache.gather(layer, chunk.block_table))
            else:
                k, v = keys[None, tokens], values[None, tokens]
            mask = batch.chunk_mask(chunk, sliding_window)
            attended = _attend(query[:, :, tokens], k, v, mask, scaling, softcap, s_aux)
            out[:, tokens] = attended.transpose(1, 2)
        return out


def layer_index(module: nn.Module) -> int:
    index = getattr(module, "layer_idx", None)
    if not isinstance(index, int):
        raise TypeError(f"{type(module).__name__} does not tell its layer_idx")
    return index


def _may_see(positions: Tensor, num_keys: int, window: int | None) -> Tensor:
    keys, positions = torch.arange(num_keys, device=positions.device), positions.unsqueeze(-1)
    seen = keys <= positions
    return seen if window is None else seen & (keys > positions - window)


def _attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scaling: float | None,
    softcap: float | None,
    sinks: Tensor | None,
) -> Tensor:
    # query [rows, heads, queries, dim]; key and value [rows, keys, kv_heads, dim]; gives what query is like.
    # A mask of None is the causal one.
    key, value = key.transpose(1, 2), value.transpose(1, 2)
    rows, heads, queries, _ = query.shape
    kv_heads = key.shape[1]
    plain = softcap is None and sinks is None
    if plain and queries == 1 and heads != kv_heads:
        # The query heads that share a key head stand as that head's queries: nothing is copied.
        query = query.reshape(rows, kv_heads, heads // kv_heads, -1)
        packed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scaling)
        return packed.reshape(rows, heads, 1, -1)
    if heads != kv_heads:
        key, value = (t.repeat_interleave(heads // kv_heads, dim=1) for t in (key, value))
    if plain:
        is_causal = mask is None
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=is_causal, scale=scaling
        )

    scores = query @ key.transpose(2, 3) * (query.shape[3] ** -0.5 if scaling is None else scaling)
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    if mask is None:
        mask = _may_see(torch.arange(queries, device=query.device), queries, None)
    scores = scores.float().masked_fill(~mask, float("-inf"))
    if sinks is not None:
        column = sinks.float().view(1, heads, 1, 1).expand(rows, heads, queries, 1)
        weights = torch.cat([scores, column], dim=-1).softmax(-1)[..., :-1]
    else:
        weights = scores.softmax(-1)
    return weights.to(value.dtype) @ value


HONOURED = ("scaling", "sliding_window", "softcap", "s_aux")
REFUSED = ("position_bias", "head_mask", "block_mask")
"""What would change the result, were it passed; any other argument is information."""


def _attention_forward(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    attend: Callable[..., Tensor] | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    if attend is None:
        raise NotImplementedError(f"{type(module).__name__} is not given the model's extra arguments")
    if attention_mask is not None or any(kwargs.get(name) is not None for name in REFUSED):
        raise NotImplementedError(f"{type(module).__name__} asks for more than causal attention")
    if not kwargs.get("is_causal", getattr(module, "is_causal", True)):
        raise NotImplementedError(f"{type(module).__name__} is not causal")
    return attend(module, query, key, value, **{k: kwargs[k] for k in HONOURED if k in kwargs}), None


AttentionInterface.register(IMPLEMENTATION, _attention_forward)
