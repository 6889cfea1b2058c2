"""Paged causal attention for chunks of prompts, in Triton. Experimental: not run on a GPU yet.

One launch computes all chunks of a step. A chunk attends to its context and to itself. The rows of a program
are consecutive tokens, each with the query heads that share a key head.

More warps share a program's numbers among more registers. Where few warps suffice, they are the better
choice. The compiled kernel says whether they do.
"""

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from engine.device.attention import Scoring
from engine.device.kernels.gpu.triton_tile import MIN_ROWS, Dims, attend_to, normalize

ROWS = {2: 64, 4: 16}
"""Rows of a program, by the bytes of an element. More rows of float32 would not fit into registers."""
WIDE = 128
"""Wider heads have half as many rows."""
FEW_WARPS, MANY_WARPS = 4, 8
_num_warps: dict[object, int] = {}
"""By the kernel's type and constants, once it has been compiled with `FEW_WARPS`."""


def prefill(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    chunk_tables: Tensor,
    chunk_bounds: Tensor,
    positions: Tensor,
    max_tokens: int,
    scoring: Scoring,
    out: Tensor,
) -> None:
    """Attend with `query` `[tokens, heads, key_dim]` to a layer's `keys` and `values`. Writes to `out`.

    `out` is `[tokens, heads, value_dim]`; only the rows of chunks are written. `chunk_tables` `[chunks,
    blocks]`, `chunk_bounds` `[chunks + 1]` and `positions` `[tokens]` are a `Batch`'s. The longest chunk has
    `max_tokens`. All keys and values are in the cache already.
    """
    kv_heads, block_size = keys.shape[1:3]
    group = query.shape[1] // kv_heads
    dims, rows = Dims.of(keys, values), ROWS[keys.element_size()]
    if max(dims.padded_key, dims.padded_value) > WIDE:
        rows = max(MIN_ROWS, rows // 2)
    constants = {
        "SOFTCAP": scoring.softcap,
        "WINDOW": scoring.sliding_window,
        "BLOCK_SIZE": block_size,
        "KEY_DIM": dims.key,
        "VALUE_DIM": dims.value,
        "PADDED_KEY": dims.padded_key,
        "PADDED_VALUE": dims.padded_value,
        "GROUP": group,
        "ROWS": rows,
        "TILE": dims.num_keys(keys.element_size()),
    }
    kind = keys.device, keys.dtype, scoring.s_aux is None, *constants.values()
    kernel = _prefill[triton.cdiv(max_tokens * group, rows), kv_heads, chunk_tables.shape[0]](
        out,
        query,
        keys,
        values,
        chunk_tables,
        chunk_bounds,
        positions,
        scoring.s_aux,
        query.stride(0),
        query.stride(1),
        *keys.stride()[:3],
        *values.stride()[:3],
        chunk_tables.stride(0),
        dims.key**-0.5 if scoring.scaling is None else scoring.scaling,
        **constants,
        num_warps=_num_warps.get(kind, FEW_WARPS),
    )
    if kind not in _num_warps:
        _num_warps[kind] = MANY_WARPS if _spills(kernel) else FEW_WARPS


def _spills(kernel: Any) -> bool:
    """Whether a compiled kernel keeps numbers in memory that found no register. Triton's interpreter compiles
    no kernel."""
    return bool(getattr(kernel, "n_spills", 0))


# Properties that differ from step to step must not lead to a new compilation.
@triton.jit(
    do_not_specialize=["table_stride"],
    do_not_specialize_on_alignment=["chunk_tables", "chunk_bounds", "positions"],
)
def _prefill(
    out,
    query,
    keys,
    values,
    chunk_tables,
    chunk_bounds,
    positions,
    sinks,
    query_row_stride,
    query_head_stride,
    key_block_stride,
    key_head_stride,
    key_slot_stride,
    value_block_stride,
    value_head_stride,
    value_slot_stride,
    table_stride,
    scale,
    SOFTCAP: tl.constexpr,
    WINDOW: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    KEY_DIM: tl.constexpr,
    VALUE_DIM: tl.constexpr,
    PADDED_KEY: tl.constexpr,
    PADDED_VALUE: tl.constexpr,
    GROUP: tl.constexpr,
    ROWS: tl.constexpr,
    TILE: tl.constexpr,
):
    kv_head = tl.program_id(1)
    chunk = tl.program_id(2).to(tl.int64)
    num_heads = tl.num_programs(1) * GROUP
    start = tl.load(chunk_bounds + chunk)
    num_tokens = (tl.load(chunk_bounds + chunk + 1) - start).to(tl.int32)
    num_context = tl.load(positions + start).to(tl.int32)
    first_row = tl.program_id(0) * ROWS
    if first_row >= num_tokens * GROUP:
        return
    rows = first_row + tl.arange(0, ROWS)
    token = rows // GROUP
    head = kv_head * GROUP + rows % GROUP
    is_row = token < num_tokens
    key_dims, value_dims = tl.arange(0, PADDED_KEY), tl.arange(0, PADDED_VALUE)
    q = tl.load(
        query + ((start + token) * query_row_stride + head * query_head_stride)[:, None] + key_dims[None, :],
        mask=is_row[:, None] & (key_dims < KEY_DIM)[None, :],
        other=0.0,
    )
    last = tl.minimum((first_row + ROWS - 1) // GROUP, num_tokens - 1)
    begin = 0
    if WINDOW is not None:
        begin = tl.maximum(num_context + first_row // GROUP + 1 - WINDOW, 0)
    value_sum, weight_sum, largest = attend_to(
        q,
        num_context + tl.minimum(token, num_tokens - 1),
        begin,
        num_context + last + 1,
        chunk_tables + chunk * table_stride,
        keys + kv_head * key_head_stride,
        values + kv_head * value_head_stride,
        key_block_stride,
        key_slot_stride,
        value_block_stride,
        value_slot_stride,
        scale,
        SOFTCAP,
        WINDOW,
        BLOCK_SIZE,
        KEY_DIM,
        VALUE_DIM,
        PADDED_KEY,
        PADDED_VALUE,
        ROWS,
        TILE,
    )
    mean = normalize(value_sum, weight_sum, largest, sinks, head)
    tl.store(
        out + ((start + token) * num_heads + head)[:, None] * VALUE_DIM + value_dims[None, :],
        mean.to(out.dtype.element_ty),
        mask=is_row[:, None] & (value_dims < VALUE_DIM)[None, :],
    )
