"""Tries an attention backend on small random data before the engine uses it."""

import logging
from typing import NamedTuple

import numpy as np
import torch

from engine.device.attention import Attention, AttentionBackend, PagedAttention, Scoring
from engine.device.batch import Batch
from engine.device.cuda import raise_if_lost
from engine.device.kv_cache import KVCache, LayerShape
from engine.device.layout import Layout

logger = logging.getLogger("weir.engine")

TOLERANCE = {torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""The largest error that rounding explains, for means of numbers of about 1. Wrong kernels err by more."""


class AttentionNeeds(NamedTuple):
    """The properties of a model that an attention backend has to support."""

    num_heads: int
    shapes: frozenset[LayerShape]
    windows: frozenset[int | None]
    block_size: int
    dtype: torch.dtype
    device: torch.device


def try_backend(backend: AttentionBackend, needs: AttentionNeeds) -> None:
    """Raises `ValueError` if the backend does not give the results of `PagedAttention` in float32."""
    for shape in needs.shapes:
        if reason := _why_not(backend, needs, shape):
            raise ValueError(reason)


def _why_not(backend: AttentionBackend, needs: AttentionNeeds, shape: LayerShape) -> str | None:
    layout = _layout(needs.block_size)
    exact, tried = (_cache(shape, layout, kind, needs.device) for kind in (torch.float32, needs.dtype))
    batch = Batch.of(layout, needs.device)
    rng = torch.Generator().manual_seed(0)
    kv_heads = shape.num_kv_heads
    sizes = ((needs.num_heads, shape.key_dim), (kv_heads, shape.key_dim), (kv_heads, shape.value_dim))
    query, key, value = (
        torch.randn(len(layout.positions), *size, generator=rng).to(needs.device, needs.dtype)
        for size in sizes
    )
    try:
        for window in sorted(needs.windows, key=str):
            scoring = Scoring(sliding_window=window)
            attention: Attention = backend(tried, batch)
            found = attention(0, query, key, value, scoring)
            expected = PagedAttention(exact, batch)(0, query.float(), key.float(), value.float(), scoring)
            error = float((found.float() - expected).abs().nan_to_num(torch.inf).max())
            if not error < TOLERANCE[needs.dtype]:
                return f"it is wrong by {error:.1e}"
    except Exception as error:
        raise_if_lost(error)
        logger.debug("an attention backend failed its trial", exc_info=True)
        return f"{type(error).__name__}: {error}".splitlines()[0][:200]
    return None


def _cache(shape: LayerShape, layout: Layout, dtype: torch.dtype, device: torch.device) -> KVCache:
    """A cache of random numbers, the same for every type."""
    num_blocks = 1 + int(max(layout.block_tables.max(), layout.chunk_tables.max()))
    cache = KVCache(
        {0: shape}, num_blocks=num_blocks, block_size=layout.block_size, dtype=dtype, device=device
    )
    rng = torch.Generator().manual_seed(1)
    for pool in (cache.keys[0], cache.values[0]):
        pool.copy_(torch.randn(pool.shape, generator=rng).to(torch.bfloat16))
    return cache


def _layout(block_size: int) -> Layout:
    """Single tokens at several positions, and chunks of 20 tokens with and without context."""
    singles = np.array([0, 100, 3 * block_size - 1])
    starts = np.array([0, 2 * block_size + 3])
    positions = np.concatenate([singles, *(start + np.arange(20) for start in starts)])
    rows = np.arange(5)
    width = -(-(int(positions.max()) + 1) // block_size)
    tables = np.random.default_rng(2).permutation(len(rows) * width).reshape(len(rows), width)
    of = np.concatenate([rows[:3], rows[3:].repeat(20)])
    return Layout(
        block_size=block_size,
        token_ids=np.zeros_like(positions),
        positions=positions,
        slots=tables[of, positions // block_size] * block_size + positions % block_size,
        logit_rows=rows[:0],
        block_tables=tables[:3],
        chunk_bounds=np.array([3, 23, 43]),
        chunk_tables=tables[3:],
    )
