"""A sequence knows its place in its request, and goes back with all its states."""

from typing import Any

from engine.protocol import Usage
from engine.sampling.sampling_state import Logprobs
from engine.scheduling.sequence import CacheState, Sequence, SequenceGroup
from tests.engine.conftest import completion


class Rewound:
    """Stands in for a detokenizer. It remembers the token ids that it was rewound to."""

    def __init__(self, *args: Any) -> None:
        self.args = args

    def rewound(self, token_ids: list[int], num_output_tokens: int) -> "Rewound":
        return Rewound(list(token_ids), num_output_tokens)


def group_of(*prompts: tuple[int, ...], **fields: Any) -> SequenceGroup:
    request = completion(*prompts, **fields)
    group = SequenceGroup(request)
    for prompt in prompts:
        for i in range(request.sampling.num_candidates):
            group.add(prompt, max_tokens=9, detokenizer=Rewound(), seed=i)  # type: ignore[arg-type]
    return group


def test_candidates_are_numbered_prompt_by_prompt() -> None:
    group = group_of((5, 6), (7,), n=1, best_of=3)
    assert [seq.index for seq in group.sequences] == [0, 1, 2, 3, 4, 5]
    assert [seq.is_first for seq in group.sequences] == [True, False, False, True, False, False]
    assert group.sequences[3].followers == group.sequences[4:]
    assert group.sequences[4].followers == []
    assert group.has_choice
    assert not group_of((5,), n=3).has_choice


def test_the_sampler_sees_the_tokens_that_a_sequence_gets() -> None:
    (seq,) = group_of((5, 6)).sequences
    seq.token_ids += [7, 8]
    assert (seq.prompt_token_ids, seq.num_tokens, seq.num_output_tokens) == ([5, 6], 4, 2)
    assert [*seq.sampling.token_ids] == [5, 6, 7, 8]
    assert seq.sampling.num_output_tokens == 2
    assert seq.num_uncomputed_tokens == 4
    seq.cache.num_computed_tokens = 3
    assert seq.num_uncomputed_tokens == 1


def rewound(banned: tuple[int, ...] | None) -> Sequence:
    (seq,) = group_of((5, 6)).sequences
    seq.token_ids += [7, 8, 9]
    seq.finish_reason = "stop"
    seq.rewind(1, banned)
    return seq


def test_a_rewind_drops_later_tokens_and_bans_the_withdrawn_one() -> None:
    seq = rewound(None)
    assert (seq.token_ids, seq.finish_reason, seq.was_rewound) == ([5, 6, 7], None, True)
    assert seq.sampling.banned == {1: frozenset({8})}
    assert seq.detokenizer.args == ([5, 6, 7], 1)  # type: ignore[attr-defined]
    assert rewound((3, 4)).sampling.banned == {1: frozenset({3, 4})}


def test_prompt_logprobs_are_needed_until_all_but_the_first_are_known() -> None:
    (seq,) = group_of((5, 6, 7), logprobs=1, echo=True).sequences
    assert not seq.needs_prompt_logprobs
    seq.echo_texts = ("a", "b", "c")
    assert seq.needs_prompt_logprobs
    seq.prompt_logprobs += [Logprobs(-1.0, [])] * 2
    assert not seq.needs_prompt_logprobs


def test_usage_counts_all_sequences() -> None:
    group = group_of((5, 6), n=2)
    group.num_prompt_tokens, group.num_output_tokens, group.num_cached_tokens = 2, 7, 1
    assert group.usage == Usage(2, 7, 1)
    assert not group.is_finished
    for seq in group.sequences:
        seq.finish_reason = "length"
    assert group.is_finished


def test_the_array_of_blocks_follows_the_table() -> None:
    cache = CacheState()
    for size in (1, 5, 40, 100):
        cache.block_table += range(len(cache.block_table), size)
        assert cache.blocks().tolist() == list(range(size))
    del cache.block_table[3:]
    assert cache.blocks().tolist() == [0, 1, 2]
    cache.block_table[:] = [9, 8, 7, 6]  # others had the blocks meanwhile
    cache.keep(0)
    assert cache.blocks().tolist() == [9, 8, 7, 6]
