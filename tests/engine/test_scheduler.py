"""Scripts: sequences in, plans out. No model runs; a sequence's next token appears by decree."""

from typing import Any

import pytest

from engine.block_manager import BlockManager
from engine.protocol import GenerationRequest, SamplingParams
from engine.scheduler import PROMPT_LOGPROBS_CHUNK, ScheduledSequence, Scheduler
from engine.sequence import Sequence, SequenceGroup


def sequence(num_prompt_tokens: int, **fields: Any) -> Sequence:
    request = GenerationRequest(
        request_id="r", model="m", endpoint="completions", sampling=SamplingParams(logprobs=0)
    )
    return Sequence(
        group=SequenceGroup(request),
        index=0,
        token_ids=list(range(num_prompt_tokens)),
        num_prompt_tokens=num_prompt_tokens,
        seed=None,
        eos_token_ids=frozenset(),
        detokenizer=None,  # type: ignore[arg-type]
        **{"max_tokens": 100} | fields,
    )


def scheduler(num_blocks: int = 100, max_num_seqs: int = 8, max_num_batched_tokens: int = 100) -> Scheduler:
    return Scheduler(
        BlockManager(num_blocks, block_size=4),
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
    )


def step(scheduler: Scheduler) -> dict[Sequence, tuple[int, int]]:
    """Plan a step and pretend that it was run."""
    plan = scheduler.schedule()
    for s in plan:
        is_sampled = s.is_sampled
        s.sequence.num_computed_tokens = s.end
        if is_sampled:
            s.sequence.token_ids.append(7)
    scheduler.block_manager.check(q.block_table for q in [*scheduler.running, *scheduler.waiting])
    return {s.sequence: (s.start, s.end) for s in plan}


def test_a_long_prompt_is_prefilled_in_chunks_beside_those_that_decode() -> None:
    s, a, b = scheduler(max_num_batched_tokens=10), sequence(4), sequence(25)
    s.add(a)
    s.add(b)
    assert step(s) == {a: (0, 4), b: (0, 6)}
    assert step(s) == {a: (4, 5), b: (6, 15)}
    assert step(s) == {a: (5, 6), b: (15, 24)}
    assert step(s) == {a: (6, 7), b: (24, 25)}
    assert step(s) == {a: (7, 8), b: (25, 26)}


def test_sequences_of_a_single_token_come_first() -> None:
    s, a, b = scheduler(max_num_batched_tokens=10), sequence(15), sequence(1)
    s.add(a)
    step(s)
    s.add(b)
    assert list(step(s)) == [b, a]


def test_no_more_than_max_num_seqs_run() -> None:
    s, sequences = scheduler(max_num_seqs=2), [sequence(4) for _ in range(3)]
    for seq in sequences:
        s.add(seq)
    assert list(step(s)) == sequences[:2]
    s.remove(sequences[0])
    assert list(step(s)) == [sequences[1], sequences[2]] or list(step(s)) == [sequences[2], sequences[1]]


def test_the_last_to_arrive_is_preempted_and_goes_to_the_front_with_its_tokens() -> None:
    s, a, b, c = scheduler(num_blocks=4), sequence(7), sequence(7), sequence(1)
    for seq in (a, b, c):
        s.add(seq)
    assert step(s) == {a: (0, 7), b: (0, 7)}, "no block is left for the third"
    assert step(s) == {a: (7, 8), b: (7, 8)}
    assert step(s) == {a: (8, 9)}, "the first needs a block; the second gives up its own"
    assert list(s.waiting) == [b, c]
    assert (b.num_computed_tokens, b.block_table, b.num_output_tokens) == (0, [], 2)
    s.remove(a)
    assert step(s) == {b: (0, 9), c: (0, 1)}, "recomputed, with what it had generated"


def test_a_sequence_that_preempts_itself_waits() -> None:
    s, a, b = scheduler(num_blocks=3), sequence(8), sequence(4)
    s.add(a)
    s.add(b)
    assert step(s) == {a: (0, 8), b: (0, 4)}
    assert step(s) == {a: (8, 9)}
    assert list(s.waiting) == [b]


def test_remove_forgets_those_that_wait_as_well() -> None:
    s, a = scheduler(), sequence(4)
    s.add(a)
    s.remove(a)
    s.remove(a)
    assert step(s) == {}


def test_without_tokens_to_generate_nothing_is_sampled() -> None:
    assert not ScheduledSequence(sequence(4, max_tokens=0), 0, 4).is_sampled
    assert ScheduledSequence(sequence(4), 0, 4).is_sampled
    assert not ScheduledSequence(sequence(4), 0, 3).is_sampled


@pytest.mark.parametrize(("known", "positions"), [(0, range(2, 6)), (4, range(4, 6)), (9, range(0))])
def test_prompt_logprobs_that_are_known_are_not_computed_again(known: int, positions: range) -> None:
    seq = sequence(10, echo_texts=("x",) * 10, prompt_logprobs=[None] * known)
    assert ScheduledSequence(seq, 2, 6).prompt_logprob_positions == positions


def test_the_last_prompt_token_foretells_no_prompt_token() -> None:
    assert ScheduledSequence(sequence(4, echo_texts=("x",) * 4), 0, 4).prompt_logprob_positions == range(3)


def test_prompt_logprobs_are_computed_in_smaller_chunks() -> None:
    s, a = scheduler(1000, max_num_batched_tokens=2000), sequence(1000, echo_texts=("x",) * 1000)
    s.add(a)
    assert step(s) == {a: (0, PROMPT_LOGPROBS_CHUNK)}
