"""Attention in C, for this processor and for others, against attention in float32 over a token's own keys."""

import copy
import dataclasses

import pytest
import torch
from torch import Tensor

from engine.device.batch import Batch
from engine.device.kernels.cpu.native_kernels import NativeKernels
from engine.device.kernels.cpu.native_library import Library
from engine.device.kernels.protocol import AttentionLayer, AttentionShape
from engine.device.kv_cache import LayerShape
from engine.device.layout import Layout
from tests.engine.device.attention_cases import DEVICE, TOLERANCE, Case, schedule


def attend(library: Library, case: Case) -> Tensor:
    """With a rotation by no angle, and no norms."""
    tokens, heads, dim = case.query.shape
    rope = torch.cat([torch.ones(512, dim // 2), torch.zeros(512, dim // 2)], dim=1)
    kernels = NativeKernels(library, AttentionShape(heads, case.key.shape[1], dim, 1e-6, rope))
    layer = AttentionLayer(0, case.scoring.sliding_window, None, None)
    qkv = torch.cat([case.query, case.key, case.value], dim=1).flatten(1)
    return kernels.step(case.batch, case.kv_cache).attend(layer, qkv).view(tokens, heads, dim)


@pytest.mark.parametrize("window", [None, 1, 33, 100])
@pytest.mark.parametrize(("dim", "heads", "block_size"), [(16, 4, 16), (64, 6, 4), (96, 2, 16), (128, 8, 64)])
def test_every_token_sees_its_keys(
    library: Library, dim: int, heads: int, block_size: int, window: int | None
) -> None:
    shape = LayerShape(2, dim, dim)
    case = Case(shape, heads=heads, block_size=block_size, dtype=library.dtype, sliding_window=window)
    assert (attend(library, case).float() - case.expected()).abs().max() < TOLERANCE[library.dtype]


@pytest.mark.parametrize("window", [None, 33])
def test_keys_that_no_token_has_written_do_not_matter(library: Library, window: int | None) -> None:
    def poisoned(value: float) -> Tensor:
        case = Case(LayerShape(2, 64, 64), dtype=library.dtype, spans=[(0, 70)], sliding_window=window)
        for pool in (case.kv_cache.keys[0], case.kv_cache.values[0]):
            pool.fill_(value)
        return attend(library, case)

    assert torch.equal(poisoned(0.0), poisoned(torch.nan))


@pytest.mark.parametrize("window", [None, 5, 33])
@pytest.mark.parametrize(("dim", "heads"), [(16, 4), (64, 14), (96, 2), (128, 6), (128, 8)])
def test_tokens_of_a_short_span_attend_as_each_alone(
    library: Library, dim: int, heads: int, window: int | None
) -> None:
    spans = [(30, 38), (61, 64), (0, 7)]
    case = Case(LayerShape(2, dim, dim), heads=heads, dtype=library.dtype, spans=spans, sliding_window=window)
    together = attend(library, case)

    def alone(token: int) -> Tensor:
        single = copy.copy(case)
        rows = slice(token, token + 1)
        batch = case.batch
        single.batch = dataclasses.replace(
            batch,
            positions=batch.positions[rows],
            slots=batch.slots[rows],
            token_ids=batch.token_ids[rows],
            block_tables=batch.block_tables[rows],
        )
        single.query, single.key, single.value = (t[rows] for t in (case.query, case.key, case.value))
        return attend(library, single)

    assert torch.equal(torch.cat([alone(i) for i in range(len(together))]), together)


def test_a_token_sees_nothing_of_the_tokens_after_it_in_a_span(library: Library) -> None:
    """Values that are not numbers would reach every sum that they enter, whatever their weight."""
    case = Case(LayerShape(2, 64, 64), dtype=library.dtype, spans=[(30, 35)])
    before = attend(library, case)
    case.value[3:] = torch.nan
    after = attend(library, case)
    assert torch.equal(after[:3], before[:3])
    assert after[3:].isnan().all()


@pytest.mark.parametrize("window", [None, 33])
def test_a_prompt_s_pieces_give_what_the_whole_gives(library: Library, window: int | None) -> None:
    whole = Case(LayerShape(2, 64, 64), dtype=library.dtype, spans=[(0, 150)], sliding_window=window)

    def piece(start: int, end: int) -> Tensor:
        case = copy.copy(whole)
        case.batch = Batch.of(Layout.of(schedule([(start, end)], case.kv_cache), 16), DEVICE)
        case.query, case.key, case.value = (
            tensor[start:end] for tensor in (whole.query, whole.key, whole.value)
        )
        return attend(library, case)

    pieces = torch.cat([piece(start, end) for start, end in ((0, 20), (20, 101), (101, 150))])
    assert torch.equal(pieces, attend(library, whole))
