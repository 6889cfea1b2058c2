"""Guesses a sequence's next tokens from its own text (prompt lookup decoding, Saxena, 2023).

If the last few tokens came before, the tokens that followed them then are the guess. It is free to make, and
often right where an answer repeats its prompt.
"""

from collections.abc import Sequence


class PromptLookup:
    """The n-grams of one sequence, indexed as it grows: a lookup costs the same at any length."""

    def __init__(self, min_ngram: int, max_ngram: int) -> None:
        self._sizes = range(max_ngram, min_ngram - 1, -1)
        self._ends: dict[tuple[int, ...], int] = {}
        """The place at which each n-gram ended last, not counting one at the very end of the text."""
        self._num_indexed = 0

    def propose(self, token_ids: Sequence[int], num_tokens: int) -> list[int]:
        """At most `num_tokens` tokens that may come next, found by the longest n-gram. Empty if the end of
        the text is new."""
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
