"""Paged attention for single tokens, in Triton. Experimental: not run on a GPU yet.

A program computes the query heads that share a key head, so that it reads keys and values once for all of
them. If rows and heads are too few to fill the GPU, several programs share a row's keys, and a second kernel
combines their results (Flash-Decoding; Dao et al., 2023).
"""

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor

from engine.device.attention import Scoring
from engine.device.kernels.gpu.triton_tile import MIN_ROWS, Dims, attend_to, normalize

MAX_SPLITS = 64


def decode(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    block_tables: Tensor,
    positions: Tensor,
    scoring: Scoring,
    out: Tensor,
    num_splits: int | None = None,
) -> None:
    """Attend with `query` `[rows, heads, key_dim]` to a layer's `keys` and `values`. Writes to `out`.

    `out` is `[rows, heads, value_dim]`. `block_tables` `[rows, blocks]` and `positions` `[rows]` are a
    `Batch`'s. Each row sees the keys up to its position, which are in the cache already. `num_splits`:
    programs that share a row's keys, a power of two. None: as many as fill the GPU.
    """
    rows, heads, _ = query.shape
    kv_heads, block_size = keys.shape[1:3]
    dims = Dims.of(keys, values)
    tile = dims.num_keys(keys.element_size())
    if num_splits is None:
        num_splits = splits_for(rows * kv_heads, keys.device)
    value_sums, weight_sums, largest = out, out, out
    if num_splits > 1:
        value_sums = out.new_empty(rows, heads, num_splits, dims.value, dtype=torch.float32)
        weight_sums, largest = out.new_empty(2, rows, heads, num_splits, dtype=torch.float32)
    common = {"VALUE_DIM": dims.value, "PADDED_VALUE": dims.padded_value, "NUM_SPLITS": num_splits}
    _decode[rows, kv_heads, num_splits](
        out,
        value_sums,
        weight_sums,
        largest,
        query,
        keys,
        values,
        block_tables,
        positions,
        scoring.s_aux,
        query.stride(0),
        query.stride(1),
        *keys.stride()[:3],
        *values.stride()[:3],
        block_tables.stride(0),
        dims.key**-0.5 if scoring.scaling is None else scoring.scaling,
        SOFTCAP=scoring.softcap,
        WINDOW=scoring.sliding_window,
        BLOCK_SIZE=block_size,
        KEY_DIM=dims.key,
        PADDED_KEY=dims.padded_key,
        GROUP=heads // kv_heads,
        ROWS=max(MIN_ROWS, triton.next_power_of_2(heads // kv_heads)),
        TILE=tile,
        **common,
    )
    if num_splits > 1:
        _reduce[rows, heads](out, value_sums, weight_sums, largest, scoring.s_aux, **common)


def splits_for(num_programs: int, device: torch.device) -> int:
    """The programs that share a row's keys: a power of two that gives each multiprocessor two programs.

    It does not depend on the length of texts, because each number needs a kernel to be compiled. Programs
    without keys end at once.
    """
    wanted = 2 * _num_multiprocessors(device) // num_programs
    return 1 << (max(1, min(wanted, MAX_SPLITS)).bit_length() - 1)


@functools.cache
def _num_multiprocessors(device: torch.device) -> int:
    if device.type != "cuda":
        return 1
    return torch.cuda.get_device_properties(device).multi_processor_count


# Properties that differ from step to step must not lead to a new compilation.
@triton.jit(do_not_specialize=["table_stride"], do_not_specialize_on_alignment=["block_tables", "positions"])
def _decode(
    out,
    value_sums,
    weight_sums,
    largest_scores,
    query,
    keys,
    values,
    block_tables,
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
    NUM_SPLITS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    kv_head = tl.program_id(1)
    split = tl.program_id(2)
    num_heads = tl.num_programs(1) * GROUP
    in_group = tl.arange(0, ROWS)
    head = kv_head * GROUP + in_group
    key_dims, value_dims = tl.arange(0, PADDED_KEY), tl.arange(0, PADDED_VALUE)
    q = tl.load(
        query + row * query_row_stride + head[:, None] * query_head_stride + key_dims[None, :],
        mask=(in_group < GROUP)[:, None] & (key_dims < KEY_DIM)[None, :],
        other=0.0,
    )
    position = tl.load(positions + row).to(tl.int32)
    first = 0
    if WINDOW is not None:
        first = tl.maximum(position + 1 - WINDOW, 0)
    share = tl.cdiv(tl.cdiv(position + 1 - first, NUM_SPLITS), TILE) * TILE
    begin = first + split * share
    end = tl.minimum(begin + share, position + 1)
    value_sum, weight_sum, largest = attend_to(
        q,
        tl.full([ROWS], 0, tl.int32) + position,
        begin,
        end,
        block_tables + row * table_stride,
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
    at = (row * num_heads + head) * NUM_SPLITS + split
    is_head = in_group < GROUP
    is_value = is_head[:, None] & (value_dims < VALUE_DIM)[None, :]
    if NUM_SPLITS == 1:
        mean = normalize(value_sum, weight_sum, largest, sinks, tl.minimum(head, num_heads - 1))
        tl.store(
            out + at[:, None] * VALUE_DIM + value_dims[None, :], mean.to(out.dtype.element_ty), mask=is_value
        )
    else:
        tl.store(value_sums + at[:, None] * VALUE_DIM + value_dims[None, :], value_sum, mask=is_value)
        tl.store(weight_sums + at, weight_sum, mask=is_head)
        tl.store(largest_scores + at, largest, mask=is_head)


@triton.jit
def _reduce(
    out,
    value_sums,
    weight_sums,
    largest_scores,
    sinks,
    VALUE_DIM: tl.constexpr,
    PADDED_VALUE: tl.constexpr,
    NUM_SPLITS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    at = row * tl.num_programs(1) + head
    splits, value_dims = at * NUM_SPLITS + tl.arange(0, NUM_SPLITS), tl.arange(0, PADDED_VALUE)
    largest_each = tl.load(largest_scores + splits)
    largest = tl.max(largest_each, 0)
    shrink = tl.exp2(largest_each - largest)
    value_each = tl.load(
        value_sums + splits[:, None] * VALUE_DIM + value_dims[None, :],
        mask=(value_dims < VALUE_DIM)[None, :],
        other=0.0,
    )
    weight_sum = tl.sum(tl.load(weight_sums + splits) * shrink, 0)
    value_sum = tl.sum(value_each * shrink[:, None], 0)
    first = tl.arange(0, 1)
    mean = normalize(value_sum[None, :], weight_sum + first, largest + first, sinks, head + first)
    tl.store(
        out + at * VALUE_DIM + value_dims[None, :],
        mean.to(out.dtype.element_ty),
        mask=(value_dims < VALUE_DIM)[None, :],
    )
