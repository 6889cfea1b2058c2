"""Speculative decoding: which tokens may come next, so that one forward can decide several.

Where the last few tokens of a sequence stood before, what followed them then is a guess at what follows now
(prompt lookup decoding, Saxena, 2023): free to make, and often right where an answer repeats its prompt.
Guesses change no output. The model computes them behind the sequence's last token; each next token is drawn
from its own logits as always, and only while what is drawn is what was guessed does the guess count.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine.core.sequence import Sequence


@dataclass(slots=True)
class Speculation:
    """Makes the drafts, and counts how they did. Names are vLLM's."""

    num_speculative_tokens: int = 0
    """Of one draft, at most; 0 for none at all."""
    prompt_lookup_min: int = 2
    """Tokens at the text's end that must have stood before."""
    prompt_lookup_max: int = 4
    """Tokens that are looked for first."""
    num_drafts: int = field(default=0, init=False)
    num_draft_tokens: int = field(default=0, init=False)
    num_accepted_tokens: int = field(default=0, init=False)

    def draft(self, seq: "Sequence", num_tokens: int) -> Seq[int]:
        """At most so many tokens that may come next; often none."""
        if num_tokens <= 0:
            return ()
        if seq.lookup is None:
            seq.lookup = PromptLookup(self.prompt_lookup_min, self.prompt_lookup_max)
        return seq.lookup.propose(seq.token_ids, min(num_tokens, self.num_speculative_tokens))


class PromptLookup:
    """One sequence's n-grams, indexed as it grows: a lookup costs the same in a long text as in a short."""

    def __init__(self, min_ngram: int, max_ngram: int) -> None:
        self._sizes = range(max_ngram, min_ngram - 1, -1)
        self._ends: dict[tuple[int, ...], int] = {}
        """Of each n-gram, the end of its last occurrence but for one at the very end of the text."""
        self._num_indexed = 0

    def propose(self, token_ids: Seq[int], num_tokens: int) -> list[int]:
        """At most so many tokens that may come next, by the longest match; none if the text's end is new."""
        self._index(token_ids)
        for size in self._sizes:
            end = self._ends.get(tuple(token_ids[-size:])) if len(token_ids) > size else None
            if end is not None:
                return list(token_ids[end : end + num_tokens])
        return []

    def _index(self, token_ids: Seq[int]) -> None:
        for end in range(self._num_indexed + 1, len(token_ids)):
            for size in self._sizes:
                if size <= end:
                    self._ends[tuple(token_ids[end - size : end])] = end
        self._num_indexed = max(self._num_indexed, len(token_ids) - 1)
