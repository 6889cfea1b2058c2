"""The attention kernels in Triton, against attention in float32 over each token's own keys.

Without a GPU, Triton's interpreter runs them: see `tests/conftest.py`.
"""

from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from engine.device.kernels.gpu.triton_decode import decode, splits_for
from engine.device.kernels.gpu.triton_kernels import TritonAttention
from engine.device.kv_cache import LayerShape
from tests.engine.device.attention_cases import DEVICE, TOLERANCE, Case
from tests.helpers import slow


def check(case: Case) -> None:
    found, expected = case.attend(TritonAttention).float(), case.expected()
    error = (found - expected).abs().max().item()
    assert error < TOLERANCE[case.query.dtype], error


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_every_kind_of_token_sees_what_it_should(dtype: torch.dtype) -> None:
    check(Case(dtype=dtype))


@pytest.mark.parametrize("block_size", [slow(1), 3, slow(64), slow(256)])  # the others have 16
def test_blocks_may_have_any_size(block_size: int) -> None:
    check(Case(block_size=block_size))


@pytest.mark.parametrize(("kv_heads", "heads"), [(1, 1), (1, 7), (2, 6), (3, 3), (1, 20)])
def test_any_number_of_query_heads_may_share_a_key_head(kv_heads: int, heads: int) -> None:
    check(Case(LayerShape(kv_heads, 16, 16), heads=heads, spans=[(40, 41), (3, 50)]))


@pytest.mark.parametrize(
    ("key_dim", "value_dim"), [(12, 12), (64, 64), (80, 80), (24, 12), (128, 128), (256, 256)]
)
def test_heads_may_have_any_size(key_dim: int, value_dim: int) -> None:
    check(Case(LayerShape(2, key_dim, value_dim), spans=[(40, 41), (100, 101), (3, 50)]))


@pytest.mark.parametrize(
    "scoring",
    [
        {"sliding_window": 1},
        slow({"sliding_window": 10}),
        slow({"sliding_window": 100}),
        slow({"scaling": 0.5}),
        slow({"softcap": 2.0}),
        {"s_aux": torch.tensor([0.5, -1.0, 9.0, 0.0], device=DEVICE)},
        {
            "scaling": 0.3,
            "softcap": 5.0,
            "sliding_window": 33,
            "s_aux": torch.tensor([0.5, -1.0, 9.0, 0.0], device=DEVICE),
        },
    ],
)
def test_scores_are_weighed_as_the_layer_says(scoring: dict[str, Any]) -> None:
    check(Case(**scoring))


@pytest.mark.parametrize(
    ("num_splits", "window"),
    [(1, None), (2, 50), (8, None), slow(64, 50), slow(1, 50), slow(2, None), slow(8, 50), slow(64, None)],
)
def test_keys_split_over_programs_add_up(num_splits: int, window: int | None) -> None:
    sinks = torch.tensor([0.5, -1.0, 9.0, 0.0], device=DEVICE)
    case = Case(spans=[(end - 1, end) for end in (1, 65, 500)], sliding_window=window, s_aux=sinks)
    case.kv_cache.write(0, case.batch.slots, case.key, case.value)
    out = torch.full_like(case.query, float("nan"))
    layer = case.kv_cache.keys[0], case.kv_cache.values[0]
    decode(case.query, *layer, case.batch.block_tables, case.batch.positions, case.scoring, out, num_splits)
    assert torch.allclose(out, case.expected(), atol=2e-5)


def test_large_scores_do_not_overflow() -> None:
    case = Case(scaling=30.0, s_aux=torch.full((4,), 500.0, device=DEVICE))
    assert torch.allclose(case.attend(TritonAttention), case.expected(), atol=1e-3)


def test_what_lies_beyond_a_text_takes_no_part() -> None:
    """Not even as 0 * nan: blocks are taken over with whatever they hold."""
    case = Case()
    first = case.attend(TritonAttention)
    written = torch.zeros(case.kv_cache.keys[0].shape[0] * case.kv_cache.block_size, dtype=torch.bool)
    ends = [(t, int(p) + 1) for t, p in zip(case.batch.block_tables, case.batch.positions, strict=False)]
    ends += [(c.block_table[0], c.num_context + c.end - c.start) for c in case.batch.chunks]
    for table, end in ends:
        slots = table[:, None] * case.kv_cache.block_size + torch.arange(
            case.kv_cache.block_size, device=DEVICE
        )
        written[slots.flatten()[:end].cpu()] = True
    for pool in (case.kv_cache.keys[0], case.kv_cache.values[0]):
        blocks, offsets = (
            (~written).nonzero().flatten().div(16, rounding_mode="floor"),
            (~written).nonzero().flatten() % 16,
        )
        pool.transpose(1, 2)[blocks.to(DEVICE), offsets.to(DEVICE)] = float("nan")
    assert torch.equal(case.attend(TritonAttention), first)


@pytest.mark.parametrize(("programs", "splits"), [(1, 64), (8, 32), (64, 4), (264, 1), (1000, 1)])
def test_keys_are_split_as_far_as_the_gpu_has_room(
    programs: int, splits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.device.kernels.gpu.triton_decode._num_multiprocessors", lambda device: 132)
    assert splits_for(programs, DEVICE) == splits
