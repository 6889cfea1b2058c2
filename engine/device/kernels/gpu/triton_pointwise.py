"""The kernels between a layer's matrices and its attention, in Triton. Experimental: not run on a GPU yet."""

import triton
import triton.language as tl
from torch import Tensor

from engine.device.kernels.protocol import AttentionShape

CHUNK = 1024


def rotate_and_keep(
    qkv: Tensor,
    shape: AttentionShape,
    q_norm: Tensor | None,
    k_norm: Tensor | None,
    positions: Tensor,
    slots: Tensor,
    keys: Tensor,
    values: Tensor,
) -> Tensor:
    """Norm and rotate queries and keys, and store keys and values at `slots` of a layer's cache. `qkv` is
    `[tokens, (heads + 2 kv_heads) * head_dim]`. Returns the queries `[tokens, heads, head_dim]`."""
    query = qkv.new_empty(qkv.shape[0], shape.num_heads, shape.head_dim)
    half = shape.head_dim // 2
    _rotate_and_keep[qkv.shape[0], shape.num_heads + 2 * shape.num_kv_heads](
        query,
        keys,
        values,
        qkv,
        q_norm,
        k_norm,
        shape.rope_table,
        positions,
        slots,
        qkv.stride(0),
        *keys.stride()[:3],
        *values.stride()[:3],
        shape.rms_norm_eps,
        NUM_HEADS=shape.num_heads,
        NUM_KV_HEADS=shape.num_kv_heads,
        BLOCK_SIZE=keys.shape[2],
        HALF=half,
        PADDED_HALF=triton.next_power_of_2(half),
        num_warps=1,
    )
    return query


def silu_and_mul(gate_up: Tensor) -> Tensor:
    """`silu(gate) * up`: `[rows, 2 dim]` to `[rows, dim]`."""
    rows, dim = gate_up.shape[0], gate_up.shape[1] // 2
    out = gate_up.new_empty(rows, dim)
    _silu_and_mul[rows, triton.cdiv(dim, CHUNK)](out, gate_up, dim, CHUNK=CHUNK)
    return out


# Properties that differ from step to step must not lead to a new compilation.
@triton.jit(do_not_specialize_on_alignment=["positions", "slots"])
def _rotate_and_keep(
    query,
    keys,
    values,
    qkv,
    q_norm,
    k_norm,
    rope_table,
    positions,
    slots,
    qkv_stride,
    key_block_stride,
    key_head_stride,
    key_slot_stride,
    value_block_stride,
    value_head_stride,
    value_slot_stride,
    eps,
    NUM_HEADS: tl.constexpr,
    NUM_KV_HEADS: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
    HALF: tl.constexpr,
    PADDED_HALF: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    dims = tl.arange(0, PADDED_HALF)
    is_dim = dims < HALF
    source = qkv + token * qkv_stride + head * (2 * HALF) + dims
    first = tl.load(source, mask=is_dim, other=0.0)
    second = tl.load(source + HALF, mask=is_dim, other=0.0)
    slot = tl.load(slots + token)
    block, offset = slot // BLOCK_SIZE, slot % BLOCK_SIZE
    if head >= NUM_HEADS + NUM_KV_HEADS:
        kv_head = head - NUM_HEADS - NUM_KV_HEADS
        place = values + block * value_block_stride + kv_head * value_head_stride + offset * value_slot_stride
        tl.store(place + dims, first, mask=is_dim)
        tl.store(place + HALF + dims, second, mask=is_dim)
    else:
        x, y = first.to(tl.float32), second.to(tl.float32)
        if q_norm is not None:
            weight = q_norm
            if head >= NUM_HEADS:
                weight = k_norm
            scale = tl.rsqrt((tl.sum(x * x, 0) + tl.sum(y * y, 0)) / (2 * HALF) + eps)
            x *= scale * tl.load(weight + dims, mask=is_dim, other=0.0).to(tl.float32)
            y *= scale * tl.load(weight + HALF + dims, mask=is_dim, other=0.0).to(tl.float32)
            # torch rounds between the two operators, too.
            x, y = x.to(first.dtype).to(tl.float32), y.to(first.dtype).to(tl.float32)
        # Llama's checkpoints pair element i of a head's first half with element i of its second half.
        angles = rope_table + tl.load(positions + token) * (2 * HALF) + dims
        cos = tl.load(angles, mask=is_dim, other=0.0)
        sin = tl.load(angles + HALF, mask=is_dim, other=0.0)
        turned_x, turned_y = x * cos - y * sin, y * cos + x * sin
        if head < NUM_HEADS:
            place = query + (token * NUM_HEADS + head) * (2 * HALF)
        else:
            kv_head = head - NUM_HEADS
            place = keys + block * key_block_stride + kv_head * key_head_stride + offset * key_slot_stride
        tl.store(place + dims, turned_x.to(first.dtype), mask=is_dim)
        tl.store(place + HALF + dims, turned_y.to(first.dtype), mask=is_dim)


@triton.jit
def _silu_and_mul(out, gate_up, dim, CHUNK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * CHUNK + tl.arange(0, CHUNK)
    source = gate_up + row * 2 * dim + at
    gate = tl.load(source, mask=at < dim, other=0.0).to(tl.float32)
    up = tl.load(source + dim, mask=at < dim, other=0.0).to(tl.float32)
    tl.store(out + row * dim + at, (gate * tl.sigmoid(gate) * up).to(out.dtype.element_ty), mask=at < dim)
