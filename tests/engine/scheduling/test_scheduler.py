"""Sequences go in, plans come out. No model runs; the test decides each next token."""

from collections import Counter
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import GenerationRequest, SamplingParams
from engine.protocol.options import EngineConfig
from engine.scheduling.block_hash import root_hash, unique_root
from engine.scheduling.block_manager import BlockManager
from engine.scheduling.scheduler import MAX_PARTIAL_PREFILLS, Scheduler
from engine.scheduling.sequence import PROMPT_LOGPROBS_CHUNK, ScheduledSequence, Sequence, SequenceGroup
from engine.scheduling.step_budget import StepBudget
from tests.engine.core.block_accounting import check_blocks

ids = count(1000)
"""Token ids that no earlier prompt has."""


def outputs(
    n: int,
    prompt: int | list[int],
    *,
    priority: int = 0,
    caller: str = "",
    root: bytes | None = None,
    **fields: Any,
) -> list[Sequence]:
    """The outputs of one request. A prompt given by its length has tokens of its own."""
    request = GenerationRequest(
        request_id="r",
        model="m",
        endpoint="completions",
        sampling=SamplingParams(n=n, logprobs=0),
        echo="echo_texts" in fields,
        priority=priority,
        caller=caller,
    )
    group = SequenceGroup(request, root_hash=root or root_hash(None))
    prompt = [next(ids) for _ in range(prompt)] if isinstance(prompt, int) else prompt
    for _ in range(n):
        group.add(prompt, detokenizer=None, **{"max_tokens": 100} | fields)  # type: ignore[arg-type]
    return group.sequences


def sequence(prompt: int | list[int], **fields: Any) -> Sequence:
    return outputs(1, prompt, **fields)[0]


def scheduler(
    num_blocks: int = 100,
    max_num_seqs: int = 8,
    max_num_batched_tokens: int = 100,
    step_budget: StepBudget | None = None,
    **options: Any,
) -> Scheduler:
    config = EngineConfig(
        block_size=4, max_num_seqs=max_num_seqs, max_num_batched_tokens=max_num_batched_tokens, **options
    )
    return Scheduler(config, num_blocks, step_budget)


def step(scheduler: Scheduler) -> dict[Sequence, tuple[int, int]]:
    """Plan a step, and update the scheduler as if the step was run."""
    plan = scheduler.schedule()
    for s in plan:
        is_sampled = s.is_sampled
        scheduler.update(s)
        if is_sampled:
            s.sequence.token_ids.append(7)
    tables = [q.cache.block_table for q in [*scheduler.running, *scheduler.waiting]]
    check_blocks(scheduler.block_manager, tables)
    return {s.sequence: (s.start, s.end) for s in plan}


def test_a_long_prompt_is_prefilled_in_chunks_beside_sequences_that_decode() -> None:
    s, a, b = scheduler(max_num_batched_tokens=10), sequence(4), sequence(25)
    s.add(a)
    s.add(b)
    assert step(s) == {a: (0, 4), b: (0, 6)}
    assert step(s) == {a: (4, 5), b: (6, 15)}
    assert step(s) == {a: (5, 6), b: (15, 24)}
    assert step(s) == {a: (6, 7), b: (24, 25)}
    assert step(s) == {a: (7, 8), b: (25, 26)}


def test_sequences_that_compute_a_single_token_come_first() -> None:
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


def test_the_last_sequence_to_arrive_is_preempted_and_keeps_its_tokens() -> None:
    s, a, b, c = scheduler(num_blocks=4), sequence(7), sequence(7), sequence(1)
    for seq in (a, b, c):
        s.add(seq)
    assert step(s) == {a: (0, 7), b: (0, 7)}, "no block is left for the third sequence"
    assert step(s) == {a: (7, 8), b: (7, 8)}
    assert step(s) == {a: (8, 9)}, "the first sequence needs a block, and the second gives up its own"
    assert list(s.waiting) == [b, c]
    assert (b.cache.num_computed_tokens, b.cache.block_table, b.num_output_tokens) == (0, [], 2)
    s.remove(a)
    assert step(s) == {b: (4, 9), c: (0, 1)}, (
        "prompt and output are computed again, except for one block that was kept"
    )
    assert b.group.num_cached_tokens == 0, "a block of its own is no hit"


def test_a_sequence_that_preempts_itself_waits() -> None:
    s, a, b = scheduler(num_blocks=3), sequence(8), sequence(4)
    s.add(a)
    s.add(b)
    assert step(s) == {a: (0, 8), b: (0, 4)}
    assert step(s) == {a: (8, 9)}
    assert list(s.waiting) == [b]


def test_remove_forgets_waiting_sequences_as_well() -> None:
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
def test_known_prompt_logprobs_are_not_computed_again(known: int, positions: range) -> None:
    seq = sequence(10, echo_texts=("x",) * 10)
    seq.prompt_logprobs += [None] * known
    assert ScheduledSequence(seq, 2, 6).prompt_logprob_positions == positions


def test_the_last_prompt_token_gives_no_prompt_logprob() -> None:
    assert ScheduledSequence(sequence(4, echo_texts=("x",) * 4), 0, 4).prompt_logprob_positions == range(3)


def test_prompt_logprobs_are_computed_in_smaller_chunks() -> None:
    s, a = scheduler(1000, max_num_batched_tokens=2000), sequence(1000, echo_texts=("x",) * 1000)
    s.add(a)
    assert step(s) == {a: (0, PROMPT_LOGPROBS_CHUNK)}


# Sharing blocks.


def test_a_prompt_begins_with_the_blocks_of_a_prompt_that_began_like_it() -> None:
    s, a, b = scheduler(), sequence([1, 2, 3, 4, 5, 6, 7, 8, 9]), sequence([1, 2, 3, 4, 5, 6, 7, 0, 0])
    s.add(a)
    step(s)
    s.add(b)
    assert step(s)[b] == (4, 9)
    assert b.cache.block_table[0] == a.cache.block_table[0]
    assert b.cache.block_table[1] != a.cache.block_table[1]
    assert (b.group.num_cached_tokens, s.num_cache_queries, s.num_cache_hits) == (4, 18, 4)


def test_freed_blocks_are_found_again() -> None:
    s, a, b = scheduler(), sequence([1, 2, 3, 4, 5]), sequence([1, 2, 3, 4, 6])
    s.add(a)
    step(s)
    s.remove(a)
    s.add(b)
    assert step(s) == {b: (4, 5)}


def test_at_least_one_token_of_a_known_prompt_is_computed() -> None:
    s, a, b = scheduler(), sequence([1] * 8), sequence([1] * 8)
    s.add(a)
    step(s)
    s.add(b)
    assert step(s)[b] == (4, 8)


def test_a_prompt_that_continues_an_output_finds_the_output_s_blocks() -> None:
    s, a = scheduler(), sequence([1, 2, 3])
    s.add(a)
    for _ in range(7):
        step(s)
    s.remove(a)
    assert a.token_ids == [1, 2, 3, 7, 7, 7, 7, 7, 7, 7]
    b = sequence([*a.token_ids, 5])
    s.add(b)
    assert step(s) == {b: (8, 11)}


def test_only_the_sequence_itself_finds_an_output_with_a_secret() -> None:  # contract 6.4
    """Otherwise a cache hit could confirm a guess at withheld text (contract 6.2)."""
    s, a = scheduler(), sequence([1, 2, 3, 4, 5])
    a.group.secret = b"s" * 32
    s.add(a)
    for _ in range(7):
        step(s)
    s._give_up(a)  # as if preempted
    s._reuse_blocks(a)
    assert a.cache.num_computed_tokens == 8
    s.remove(a)
    b = sequence([*a.token_ids, 5])
    s.add(b)
    assert step(s) == {b: (4, 13)}


def test_different_salts_never_share_blocks() -> None:
    s = scheduler()
    for salt, start in ((None, 0), ("a", 0), ("b", 0), ("a", 4), (None, 4), ("None", 0)):
        seq = sequence([1, 2, 3, 4, 5], root=root_hash(salt))
        s.add(seq)
        assert step(s) == {seq: (start, 5)}
        s.remove(seq)


def test_prompt_tokens_whose_logprobs_are_wanted_are_computed() -> None:
    s = scheduler()
    for _ in range(2):
        seq = sequence([1] * 9, echo_texts=("x",) * 9)
        s.add(seq)
        assert step(s) == {seq: (0, 9)}
        s.remove(seq)


@pytest.mark.parametrize("root", [root_hash(None), unique_root()], ids=["caching", "not caching"])
def test_the_outputs_of_a_prompt_wait_for_the_first_one_and_share_its_blocks(root: bytes) -> None:
    s, (a, b, c) = scheduler(max_num_batched_tokens=6), outputs(3, 10, root=root)
    for seq in (a, b, c):
        s.add(seq)
    assert step(s) == {a: (0, 6)}
    assert step(s) == {a: (6, 10)}
    assert step(s) == {a: (10, 11), b: (8, 10), c: (8, 10)}
    assert a.cache.block_table[:2] == b.cache.block_table[:2] == c.cache.block_table[:2]
    assert len({a.cache.block_table[2], b.cache.block_table[2], c.cache.block_table[2]}) == 3
    assert s.block_manager.num_used == 5
    assert (a.group.num_cached_tokens, s.num_cache_queries) == (0, 10)


def test_the_outputs_of_a_prompt_share_its_logprobs() -> None:
    s, (a, b) = scheduler(), outputs(2, 9, echo_texts=("x",) * 9)
    s.add(a)
    s.add(b)
    (planned,) = s.schedule()
    a.prompt_logprobs += [None] * len(planned.prompt_logprob_positions)
    s.update(planned)
    a.token_ids.append(7)
    assert step(s) == {a: (9, 10), b: (8, 9)}
    assert len(b.prompt_logprobs) == 8


def test_the_other_outputs_of_a_prompt_are_let_in_once() -> None:
    s, (a, b) = scheduler(max_num_batched_tokens=9), outputs(2, 9)
    s.add(a)
    s.add(b)
    step(s)
    step(s)
    s.remove(b)
    s._preempt(a)
    s.block_manager = BlockManager(100, 4)
    assert step(s) == {a: (0, 9)}, "its prompt is computed again, and nothing else"
    assert (s.running, list(s.waiting)) == ([a], [])


def test_no_output_waits_if_no_block_could_be_shared() -> None:
    s, (a, b) = scheduler(), outputs(2, 4)
    s.add(a)
    s.add(b)
    assert step(s) == {a: (0, 4), b: (0, 4)}


def test_outputs_that_were_never_let_in_are_forgotten_with_their_request() -> None:
    s, group = scheduler(), outputs(3, 10)
    for seq in group:
        s.add(seq)
    for seq in group:
        s.remove(seq)
    assert step(s) == {}


# Order.


def test_lower_priority_numbers_go_first_and_then_earlier_arrivals() -> None:
    s = scheduler(max_num_seqs=1)
    seqs = [sequence(2, priority=p) for p in (1, 0, 0, -5)]
    for seq in seqs:
        s.add(seq)
    order = []
    for _ in seqs:
        (seq,) = step(s)
        order.append(seqs.index(seq))
        s.remove(seq)
    assert order == [3, 1, 2, 0]


def test_the_lowest_priority_is_preempted_even_if_it_came_first() -> None:
    s, low, high = scheduler(num_blocks=4), sequence(7, priority=1), sequence(7)
    s.add(low)
    s.add(high)
    step(s)
    step(s)
    assert list(step(s)) == [high]
    assert list(s.waiting) == [low]


def test_a_request_of_many_outputs_leaves_every_other_place_to_later_requests() -> None:
    s, many = scheduler(max_num_seqs=2), outputs(20, 2)
    others = [sequence(2) for _ in range(4)]
    for seq in [*many, *others]:
        s.add(seq)
    order = []
    while len(order) < 10:
        for seq in step(s):
            order.append("many" if seq in many else "other")
            s.remove(seq)
    assert order == ["many"] + ["many", "other"] * 4 + ["many"]


def test_no_output_is_overtaken_for_ever() -> None:
    s, (first, second) = scheduler(max_num_seqs=1), outputs(2, 2)
    s.add(first)
    s.add(second)
    served = []
    for _ in range(4):
        s.add(sequence(2))
        (seq,) = step(s)
        served.append(seq)
        s.remove(seq)
    assert served.index(second) == 1


# Callers.


def running(s: Scheduler) -> str:
    """The callers of the running sequences, sorted."""
    return "".join(sorted(seq.caller for seq in s.running))


def test_a_caller_of_one_output_does_not_wait_for_another_caller_s_thousand() -> None:
    s, many, one = scheduler(1000), outputs(1000, 2, caller="a"), sequence(2, caller="b")
    for seq in many:
        s.add(seq)
    step(s)
    assert running(s) == "aaaaaaaa", "nobody else waits"
    s.add(one)
    assert step(s)[one] == (0, 2), "one of the thousand gives way"
    assert running(s) == "aaaaaaab"
    assert many[7].num_output_tokens == 1, "and keeps its token"
    s.remove(one)
    assert many[7] in step(s)


def test_callers_come_to_share_the_places_equally() -> None:
    s = scheduler(1000, max_num_seqs=6)
    for caller in "abc":
        for seq in outputs(20, 2, caller=caller):
            s.add(seq)
        for _ in range(6):
            step(s)
    assert running(s) == "aabbcc"
    num_preempted = s.num_preempted
    for _ in range(6):
        step(s)
    assert s.num_preempted == num_preempted, "equal shares stay as they are"
    s.remove(next(seq for seq in s.running if seq.caller == "b"))
    step(s)
    assert running(s) == "aabbcc", "a place goes to the caller with the fewest"


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 9), st.integers(0, 2)), max_size=12),
    st.integers(1, 6),
)
def test_whoever_arrives_the_places_come_to_be_shared_equally(
    arrivals: list[tuple[str, int, int]], max_num_seqs: int
) -> None:  # contract 8.5
    """An arrival: a caller, its outputs, and steps before the next arrival. No output ends."""
    s = scheduler(10_000, max_num_seqs=max_num_seqs)
    for caller, n, num_steps in arrivals:
        for seq in outputs(n, 2, caller=caller):
            s.add(seq)
        for _ in range(num_steps):
            step(s)
    for _ in range(2 * max_num_seqs):
        step(s)
    num_preempted, places = s.num_preempted, Counter(running(s))
    waiting = {seq.caller for seq in s.waiting}
    assert all(most <= places[caller] + 1 for caller in waiting for most in places.values())
    assert not waiting or len(s.running) == max_num_seqs
    step(s)
    assert s.num_preempted == num_preempted, "equal shares stay as they are"


def test_one_sequence_gives_way_in_a_step() -> None:
    s = scheduler(1000)
    for caller in "ab":
        for seq in outputs(20, 2, caller=caller):
            s.add(seq)
        step(s)
    shares = [running(s)]
    for _ in range(4):
        step(s)
        shares.append(running(s))
    assert shares == ["aaaaaaab", "aaaaaabb", "aaaaabbb", "aaaabbbb", "aaaabbbb"]


def test_callers_with_as_many_places_take_turns() -> None:
    s = scheduler(1000, max_num_seqs=1)
    for caller, n in (("a", 4), ("b", 2), ("c", 1)):
        for seq in outputs(n, 2, caller=caller):
            s.add(seq)
    order = ""
    while s.waiting:
        (seq,) = step(s)
        order += seq.caller
        s.remove(seq)
    assert order == "abcabaa"


def test_a_caller_s_limit_leaves_places_free() -> None:
    s = scheduler(1000, max_num_seqs_per_caller=3)
    for seq in outputs(20, 2, caller="a"):
        s.add(seq)
    step(s)
    assert running(s) == "aaa"
    for seq in outputs(20, 2, caller="b"):
        s.add(seq)
    step(s)
    assert (running(s), s.num_preempted) == ("aaabbb", 0)


def test_priority_goes_first_and_callers_share_among_equals() -> None:
    s = scheduler(1000, max_num_seqs=4)
    for seq in outputs(20, 2, caller="a"):
        s.add(seq)
    step(s)
    later, sooner = sequence(2, caller="b", priority=1), sequence(2, caller="b", priority=-1)
    s.add(later)
    assert later not in step(s), "nobody gives way to a sequence that is less urgent"
    s.add(sooner)
    assert sooner in step(s)
    assert running(s) == "aaab"


def test_a_caller_with_all_blocks_gives_way_to_one_that_finds_none() -> None:
    s = scheduler(num_blocks=9)
    for _ in range(3):
        s.add(sequence(9, caller="a"))
    step(s)
    assert (running(s), s.block_manager.num_used) == ("aaa", 9)
    s.add(one := sequence(9, caller="b"))
    assert one not in step(s)
    assert one in step(s)
    assert running(s) == "aab"


def test_the_caller_with_the_most_sequences_is_preempted_for_a_running_one() -> None:
    s, one = scheduler(num_blocks=6), sequence(7, caller="b")
    many = [sequence(7, caller="a") for _ in range(2)]
    for seq in (*many, one):
        s.add(seq)
    for _ in range(3):
        step(s)
    assert list(s.waiting) == [many[1]], "and not the one that came last"


def test_a_newcomer_s_long_prompt_begins_beside_another_caller_s() -> None:
    s = scheduler(1000, max_num_seqs=20, max_num_batched_tokens=64)
    for _ in range(10):
        s.add(sequence(200, caller="a"))
    step(s)
    s.add(one := sequence(200, caller="b"))
    step(s)
    start, end = step(s)[one]
    assert end - start >= 64 // 4, "it goes before all but the first of the other caller's"


# Shares of a step.


class Budget(StepBudget):
    """A budget of a size that the test sets."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.asked: list[tuple[int, int]] = []

    def plan(self, num_decodes: int, num_prompts: int, num_context: int = 0) -> int:
        self.asked.append((num_decodes, num_prompts))
        return self.size

    def num_tokens(self, units: float, num_context: int) -> int:
        return int(units)

    def units(self, num_tokens: int, num_context: int) -> float:
        return num_tokens


def test_prompts_beside_decoding_sequences_get_what_the_budget_allows() -> None:
    budget = Budget(5)
    s, a, b = scheduler(step_budget=budget), sequence(4), sequence(50)
    s.add(a)
    assert step(s) == {a: (0, 4)}
    assert step(s) == {a: (4, 5)}
    s.add(b)
    s.add(sequence(50))
    assert step(s)[a] == (5, 6)
    assert budget.asked == [(1, 0), (1, 2)]
    assert b.cache.num_computed_tokens + s.running[-1].cache.num_computed_tokens == 5
    budget.size = 0
    assert step(s) == {a: (6, 7)}
    s.remove(a)
    assert step(s)[b][1] == 50, "no sequence decodes, so no prompt waits"


def test_requests_that_come_together_begin_together() -> None:
    s = scheduler(step_budget=Budget(5))
    first, *others = (sequence(20) for _ in range(4))
    s.add(first)
    step(s)
    for seq in others:  # they came while the first one was computed
        s.add(seq)
    assert step(s) == {first: (20, 21)} | dict.fromkeys(others, (0, 20))


def test_prompts_that_came_later_do_not_delay_a_sequence_that_decodes() -> None:
    s, first, later = scheduler(step_budget=Budget(5)), sequence(20), sequence(20)
    s.add(first)
    step(s)
    step(s)
    s.add(later)
    assert step(s) == {first: (21, 22), later: (0, 5)}


def test_a_long_prompt_of_a_burst_does_not_delay_the_others() -> None:
    s, first, long = scheduler(step_budget=Budget(5)), sequence(20), sequence(300)
    s.add(first)
    s.add(long)
    while not first.num_output_tokens:
        step(s)
    assert step(s)[first] == (20, 21)
    assert step(s)[long] == (long.cache.num_computed_tokens - 5, long.cache.num_computed_tokens)


def test_a_prompt_that_waits_for_a_place_comes_when_it_has_one() -> None:
    s = scheduler(max_num_seqs=2, step_budget=Budget(5))
    first, second, third = (sequence(20) for _ in range(3))
    for seq in (first, second, third):
        s.add(seq)
    step(s)
    s.remove(first)
    assert step(s) == {second: (20, 21), third: (0, 5)}


def test_a_caller_s_prompt_that_waits_for_its_other_outputs_comes_after_them() -> None:
    s = scheduler(max_num_seqs_per_caller=1, step_budget=Budget(5))
    first, second = sequence(20, caller="a"), sequence(20, caller="a")
    other = sequence(20, caller="b")
    for seq in (first, second, other):
        s.add(seq)
    step(s)
    s.remove(first)
    assert step(s) == {other: (20, 21), second: (0, 5)}


def test_sequences_that_decode_come_first_even_if_they_arrived_last() -> None:
    s, long, short = scheduler(max_num_batched_tokens=8), sequence(100), sequence(2)
    s.add(long)
    s.add(short)
    step(s)
    assert short.num_output_tokens == 1
    for _ in range(5):
        assert step(s)[short] == (short.num_tokens - 2, short.num_tokens - 1)


def test_a_long_prompt_leaves_half_of_the_step_to_shorter_ones_behind_it() -> None:
    s, long = scheduler(max_num_batched_tokens=40), sequence(1000)
    shorts = [sequence(30) for _ in range(3)]
    for seq in (long, *shorts):
        s.add(seq)
    chunks = []
    while not all(seq.num_output_tokens for seq in shorts):
        start, end = step(s)[long]
        chunks.append(end - start)
    assert len(chunks) <= 6
    assert min(chunks) >= 18


def test_few_long_prompts_are_in_progress_at_a_time() -> None:
    s = scheduler(1000, max_num_seqs=20, max_num_batched_tokens=64)
    for _ in range(10):
        s.add(sequence(200))
    for _ in range(2):
        step(s)
        assert len(s.running) == MAX_PARTIAL_PREFILLS


def test_a_sequence_that_preempts_itself_may_leave_nothing_to_run_in_this_step() -> None:
    budget = Budget(100)
    s, a, b = scheduler(num_blocks=5, step_budget=budget), sequence(16), sequence(3)
    s.add(b)
    step(s)
    b.rank = (1, 0, 0)
    s.add(a)
    step(s)
    budget.size = 0
    a.token_ids += [1, 2]
    assert (step(s), list(s.waiting)) == ({}, [b])
    assert step(s) == {a: (16, 19)}
