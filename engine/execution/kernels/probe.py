"""Tries an attention backend on small random data before the engine uses it."""

import logging
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from engine.execution.attention import Attention, AttentionBackend, PagedAttention, Scoring
from engine.execution.batch import Batch
from engine.execution.kv_cache import KVCache, LayerShape
from engine.execution.layout import Layout

logger = logging.getLogger("weir.engine")

TOLERANCE = {torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""The largest error that rounding explains, for means of numbers of about 1. Wrong kernels err by more."""


def why_not(
    backend: AttentionBackend,
    *,
    num_heads: int,
    shape: LayerShape,
    windows: Iterable[int | None],
    block_size: int,
    dtype: torch.dtype,
    device: torch.device,
) -> str | None:
    """Why the backend does not give the results of `PagedAttention` in float32. None: it does."""
    layout = _layout(block_size)
    exact, tried = (_cache(shape, layout, kind, device) for kind in (torch.float32, dtype))
    batch = Batch.of(layout, device)
    rng = torch.Generator().manual_seed(0)
    query, key, value = (
        torch.randn(len(layout.positions), heads, dim, generator=rng).to(device, dtype)
        for heads, dim in (
            (num_heads, shape.key_dim),
            (shape.num_kv_heads, shape.key_dim),
            (shape.num_kv_heads, shape.value_dim),
        )
    )
    try:
        for window in sorted(windows, key=str):
            scoring = Scoring(sliding_window=window)
            attention: Attention = backend(tried, batch)
            found = attention(0, query, key, value, scoring)
            expected = PagedAttention(exact, batch)(0, query.float(), key.float(), value.float(), scoring)
            error = _error(found, expected)
            if not error < TOLERANCE[dtype]:
                return f"it is wrong by {error:.1e}"
    except torch.AcceleratorError:
        raise  # the device can no longer be used
    except Exception as error:
        logger.debug("an attention backend failed its trial", exc_info=True)
        return f"{type(error).__name__}: {error}".splitlines()[0][:200]
    return None


def _error(found: Tensor, expected: Tensor) -> float:
    return float((found.float() - expected).abs().nan_to_num(torch.inf).max())


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
