"""Static buffers, buckets and padding, without a GPU: all but the capture itself.

A `RecordingPool` stands in for the capture: a replay runs none of the code that Python ran while it was made.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from engine.device.batch import Batch
from engine.device.layout import Layout
from engine.execution.cuda_graphs import buckets_for
from engine.execution.model_runner import ModelRunner
from engine.scheduling.sequence import ScheduledSequence, SequenceGroup, going_ahead
from tests.engine.conftest import completion
from tests.engine.device.recorded import RefuseToWait, host_is_refused
from tests.engine.device.steps import decoding, graphs_of, pools


@pytest.mark.parametrize(
    ("max_rows", "buckets"),
    [(1, [1]), (3, [1, 2, 4]), (8, [1, 2, 4, 8]), (9, [1, 2, 4, 8, 16]), (33, [1, 2, 4, 8, 16, 32, 48])],
)
def test_buckets_have_room_for_every_decode_step(max_rows: int, buckets: list[int]) -> None:
    assert buckets_for(max_rows) == buckets


def test_buckets_end_where_launching_no_longer_matters() -> None:
    assert buckets_for(10_000)[-1] == 512


@torch.inference_mode()
def test_padding_does_not_change_a_steps_logits(runner: ModelRunner) -> None:
    graphs = graphs_of(runner)
    for rows in (1, 3, 16, 2, 9, 5):  # rows that are not new hold the step before
        layout = decoding(runner, [1 + 29 * i % 300 for i in range(rows)])
        assert graphs.has_room(layout)
        expected = runner.model.forward(Batch.of(layout, runner.device), runner.kv_cache)
        found = graphs.run(layout)
        assert found.shape == expected.shape
        assert torch.allclose(found, expected, atol=1e-5)


@torch.inference_mode()
def test_padding_writes_only_to_the_scratch_block(runner: ModelRunner) -> None:
    graphs = graphs_of(runner)
    graphs.run(decoding(runner, [40, 7, 300, 19, 5, 111, 80, 64]))
    for pool in pools(runner):
        pool[-1] = 7.0
    layout = decoding(runner, [33, 90, 17, 18, 200])
    before = [pool.clone() for pool in pools(runner)]
    runner.model.forward(Batch.of(layout, runner.device), runner.kv_cache)
    unpadded = [pool.clone() for pool in pools(runner)]
    for pool, earlier in zip(pools(runner), before, strict=True):
        pool.copy_(earlier)
    graphs.run(layout)
    for pool, expected in zip(pools(runner), unpadded, strict=True):
        assert torch.allclose(pool[:-1], expected[:-1], atol=1e-6)
        assert not torch.equal(pool[-1], expected[-1])


@torch.inference_mode()
def test_draft_tokens_have_rows_of_their_own(runner: ModelRunner) -> None:
    layout = decoding(runner, [40, 7, 120], drafts=2)
    expected = runner.model.forward(Batch.of(layout, runner.device), runner.kv_cache)
    assert len(expected) == 9
    assert torch.allclose(graphs_of(runner).run(layout), expected, atol=1e-5)


@torch.inference_mode()
@pytest.mark.parametrize("has_graphs", [False, True])
def test_tokens_that_only_the_device_knows_take_the_place_of_those_given(
    has_graphs: bool, runner: ModelRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs = graphs_of(runner) if has_graphs else None
    monkeypatch.setattr(runner, "graphs", graphs)
    group = SequenceGroup(completion((5,)))
    sequences = [group.add((5, i), max_tokens=9, detokenizer=None) for i in (40, 7, 120)]  # type: ignore[arg-type]
    for block, seq in enumerate(sequences):
        seq.cache.block_table = [block]
    known, *drawn = sequences
    for end in (2, 20):  # single tokens only, or with a chunk, which no graph runs
        chunk = group.add(range(end), max_tokens=9, detokenizer=None)  # type: ignore[arg-type]
        chunk.cache.block_table = [3, 4]
        shares = [(known, 1, 2), *((seq, 1, 2) for seq in drawn), (chunk, 0, end)]
        expected, _ = runner.run([ScheduledSequence(*share) for share in shares])
        for seq, token_id in zip(drawn, (7, 120), strict=True):
            assert seq.token_ids.pop() == token_id
        # The draw had rows of sequences that have ended since, too.
        with going_ahead([known, drawn[1], known, drawn[0]]):
            known.drawn_row = None
            mixed = [ScheduledSequence(*share) for share in shares]
            found, _ = runner.run(mixed, torch.tensor([5, 120, 6, 7]))
            assert torch.allclose(found, expected, atol=1e-5)
            other, _ = runner.run(mixed, torch.tensor([5, 7, 6, 120]))
            assert not torch.allclose(other, expected, atol=1e-5)
        for seq, token_id in zip(drawn, (7, 120), strict=True):
            seq.token_ids.append(token_id)


@torch.inference_mode()
def test_a_steps_logits_outlive_the_next_step(runner: ModelRunner) -> None:
    graphs = graphs_of(runner)
    first = graphs.run(decoding(runner, [40, 7]))
    kept = first.clone()
    graphs.run(decoding(runner, [90, 300]))
    assert torch.equal(first, kept)


def test_steps_with_chunks_or_too_many_tokens_have_no_room(runner: ModelRunner) -> None:
    graphs = graphs_of(runner, max_rows=4)
    assert not graphs.has_room(decoding(runner, [5] * 5))
    chunk = SequenceGroup(completion(tuple(range(20))))
    seq = chunk.add(range(20), max_tokens=5, detokenizer=None)  # type: ignore[arg-type]
    seq.cache.block_table += [0, 1]
    assert not graphs.has_room(Layout.of([ScheduledSequence(seq, 0, 20)], 16))
    assert not graphs.has_room(decoding(runner, [runner.max_model_len + 1]))


def test_the_whole_engine_generates_the_same(
    tiny_core: Callable[..., Any], tiny_model: Callable[[str], Any], completion_request: Callable[..., Any]
) -> None:
    core = tiny_core(cpu_kernels="torch", num_speculative_tokens=3, max_num_seqs=8, max_num_batched_tokens=32)
    graphs = core.core.runner.graphs = graphs_of(core.core.runner, max_rows=32)
    sizes, run = [], graphs.run

    def counted(layout: Layout, token_ids: torch.Tensor | None) -> torch.Tensor:
        sizes.append(layout.num_singles)
        return run(layout, token_ids)

    graphs.run = counted  # type: ignore[assignment,method-assign]
    prompts = [
        torch.randint(4, 320, (n,), generator=torch.manual_seed(n)).tolist() for n in (3, 40, 17, 9, 25)
    ]
    prompts.append([5, 6, 7, 8] * 8)
    groups = []
    for prompt in prompts:
        groups.append(core.add(completion_request(tuple(prompt), max_tokens=20, ignore_eos=True)))
        core.step()
    core.run()
    for prompt, group in zip(prompts, groups, strict=True):
        assert core.answers(group)[0].ids == tiny_model("llama").generate(prompt, 20)
    assert len(set(sizes)) > 3, "steps of many sizes were replayed"


def test_without_cuda_nothing_is_captured(tiny_core: Callable[..., Any]) -> None:
    assert tiny_core().core.runner.graphs is None


@torch.no_grad()
def test_a_step_never_waits_for_the_device(runner: ModelRunner) -> None:
    """Nor do graphs, whose capture refuses to wait, and whose replays run nothing else."""
    layouts = [decoding(runner, [40, 7, 120], drafts=1), decoding(runner, [5])]
    graphs = graphs_of(runner)
    with_chunks = decoding(runner, [40, 7, 120], drafts=20)
    assert len(with_chunks.chunk_tables) == 3
    batches = [Batch.of(layout, runner.device) for layout in (*layouts, with_chunks)]
    with RefuseToWait(), host_is_refused():
        for batch in batches:
            runner.model.forward(batch, runner.kv_cache)
    with RefuseToWait():  # sending arrays to the device begins with `numpy`
        for layout in layouts:
            graphs.run(layout)
