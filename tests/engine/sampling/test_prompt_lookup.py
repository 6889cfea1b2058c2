"""Drafts come from the sequence's own text."""

from hypothesis import given
from hypothesis import strategies as st

from engine.sampling.prompt_lookup import PromptLookup


def by_search(ids: list[int], min_ngram: int, max_ngram: int, num_tokens: int) -> list[int]:
    """The expected proposal, found by a search through the whole text."""
    for size in range(max_ngram, min_ngram - 1, -1):
        for end in range(len(ids) - 1, size - 1, -1):
            if size < len(ids) and ids[end - size : end] == ids[-size:]:
                return ids[end : end + num_tokens]
    return []


@given(
    st.lists(st.integers(0, 3), max_size=40),
    st.lists(st.integers(1, 6), max_size=20),
    st.integers(1, 3),
    st.integers(0, 2),
    st.integers(1, 5),
)
def test_the_latest_occurrence_of_the_longest_match_is_proposed(
    ids: list[int], growth: list[int], min_ngram: int, more: int, num_tokens: int
) -> None:
    lookup = PromptLookup(min_ngram, min_ngram + more)
    end = 0
    for step in [*growth, len(ids)]:
        end = min(end + step, len(ids))
        expected = by_search(ids[:end], min_ngram, min_ngram + more, num_tokens)
        assert lookup.propose(ids[:end], num_tokens) == expected


def test_a_repeated_text_is_proposed() -> None:
    assert PromptLookup(2, 4).propose([7, 8, 9, 10, 11, 7, 8], 3) == [9, 10, 11]


def test_nothing_is_proposed_for_a_text_without_repetition() -> None:
    assert PromptLookup(2, 4).propose([1, 2, 3, 4], 3) == []
