"""The order of a step's tokens in the flat row, and their indices."""

from engine.device.layout import MAX_SPAN, Layout
from engine.scheduling.sequence import ScheduledSequence, SequenceGroup, going_ahead
from tests.engine.conftest import completion


def scheduled(start: int, end: int, blocks: list[int], draft: tuple[int, ...] = ()) -> ScheduledSequence:
    ids = list(range(100, 100 + end))
    seq = SequenceGroup(completion(tuple(ids))).add(ids, max_tokens=5, detokenizer=None)  # type: ignore[arg-type]
    seq.cache.block_table += blocks
    return ScheduledSequence(seq, start, end, draft)


def test_single_tokens_come_before_chunks() -> None:
    chunk = scheduled(0, MAX_SPAN + 1, [7, 8, 9])
    single = scheduled(5, 6, [3, 4])
    layout = Layout.of([chunk, single], block_size=4)
    assert layout.token_ids.tolist() == [105, *range(100, 101 + MAX_SPAN)]
    assert layout.positions.tolist() == [5, *range(MAX_SPAN + 1)]
    assert layout.slots.tolist()[:6] == [4 * 4 + 1, 28, 29, 30, 31, 32]
    assert layout.block_tables.tolist() == [[3, 4]]
    assert layout.chunk_tables.tolist() == [[7, 8, 9]]
    assert layout.chunk_bounds.tolist() == [1, 2 + MAX_SPAN]
    assert layout.logit_rows.tolist() == [MAX_SPAN + 1, 0], "in the order of the schedule"


def test_a_draft_attends_token_by_token_and_each_token_has_logits() -> None:
    layout = Layout.of([scheduled(2, 3, [5, 6, 4], draft=(7, 8))], block_size=2)
    assert layout.token_ids.tolist() == [102, 7, 8]
    assert layout.positions.tolist() == [2, 3, 4]
    assert layout.num_singles == 3
    assert layout.logit_rows.tolist() == [0, 1, 2]


def test_tokens_that_only_the_device_knows_come_first() -> None:
    known, drawn, other = scheduled(5, 6, [3, 4]), scheduled(2, 3, [5]), scheduled(1, 2, [6])
    with going_ahead([other.sequence, known.sequence, drawn.sequence]):
        known.sequence.drawn_row = None
        spans = [ScheduledSequence(drawn.sequence, 3, 4), known, ScheduledSequence(other.sequence, 2, 3)]
        layout = Layout.of([*spans, scheduled(0, 9, [7, 8, 9])], block_size=4)
    assert layout.drawn_rows.tolist() == [2, 0]
    assert layout.positions.tolist() == [3, 2, 5, *range(9)]
    assert layout.token_ids.tolist()[2:] == [105, *range(100, 109)]
    assert layout.block_tables.tolist() == [[5, 0], [6, 0], [3, 4]]
    assert layout.logit_rows.tolist() == [0, 2, 1, 11], "in the order of the schedule"
