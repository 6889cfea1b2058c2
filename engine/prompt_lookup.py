"""Drafts for speculative decoding, looked up in the sequence's own text (Saxena, 2023).

Where the last few tokens stood before, what followed them then is a guess at what follows now: free to make,
and often right where an answer repeats its prompt. Whoever verifies it loses nothing but the computation.
"""

from collections.abc import Sequence


class PromptLookup:
    """One sequence's n-grams, indexed as it grows: a lookup costs the same in a long text as in a short."""

    def __init__(self, min_ngram: int, max_ngram: int) -> None:
        self._sizes = range(max_ngram, min_ngram - 1, -1)
        self._ends: dict[tuple[int, ...], int] = {}
        """Of each n-gram, the end of its last occurrence but for one at the very end of the text."""
        self._num_indexed = 0

    def propose(self, token_ids: Sequence[int], num_tokens: int) -> list[int]:
        """At most so many tokens that may come next, by the longest match; none if the text's end is new."""
        self._index(token_ids)
        for size in self._sizes:
            end = self._ends.get(tuple(token_ids[-size:])) if len(token_ids) > size else None
            if end is not None:
                return list(token_ids[end : end + num_tokens])
        return []

    def _index(self, token_ids: Sequence[int]) -> None:
        for end in range(self._num_indexed + 1, len(token_ids)):
            for size in self._sizes:
                if size <= end:
                    self._ends[tuple(token_ids[end - size : end])] = end
        self._num_indexed = max(self._num_indexed, len(token_ids) - 1)
