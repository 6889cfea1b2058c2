"""Knows which tokens of each sequence the draft model has computed. Pure accounting, no torch.

The draft model's cache has as many blocks as the model's, of the same size, and one block table serves both.
So whoever frees, shares or preempts a sequence's blocks does it for both. This module knows which of the
blocks hold the draft model's keys and values too, and of which text:

    tokens of a sequence    0 ........ num_settled_tokens ........ num_draft_tokens
                              its own                      guesses, until the next step

Nothing here can change an output. Keys and values that are missing are computed before the next guess.
"""

from collections.abc import Sequence as Seq
from itertools import islice

from engine.scheduling.sequence import CacheState, ScheduledSequence


class DraftCache:
    def __init__(self, num_blocks: int, block_size: int) -> None:
        self._block_size = block_size
        self._hashes: list[bytes | None] = [None] * num_blocks
        """The hash of the text whose keys and values the draft model has in this block; None: of no full and
        settled one."""

    def follow(self, scheduled: Seq[ScheduledSequence]) -> None:
        """Drop guesses that did not come true, and find tokens that were computed for other sequences. Call
        it in every step, for all sequences of the step, before the model runs."""
        for s in scheduled:
            self._settle(s.sequence.cache, s.start)
        for s in scheduled:
            if not s.sequence.cache.num_draft_tokens:
                self._find(s.sequence.cache, s.start)

    def note(self, cache: CacheState, end: int) -> None:
        """The draft model has computed the sequence's tokens, and guesses, up to `end`."""
        size = self._block_size
        for i in range(cache.num_draft_tokens // size, -(-end // size)):
            self._hashes[cache.block_table[i]] = None
        cache.num_draft_tokens = end

    def _settle(self, cache: CacheState, num_computed_tokens: int) -> None:
        # The model computes only the sequence's own tokens and guesses that came true, and the rest of a
        # draft, which does not count.
        settled = min(cache.num_draft_tokens, num_computed_tokens)
        for i in range(cache.num_settled_tokens // self._block_size, settled // self._block_size):
            self._hashes[cache.block_table[i]] = cache.block_hashes[i]
        cache.num_settled_tokens = cache.num_draft_tokens = settled

    def _find(self, cache: CacheState, num_computed_tokens: int) -> None:
        num_blocks = 0
        of_sequence = zip(cache.block_table, cache.block_hashes, strict=False)
        for block, block_hash in islice(of_sequence, num_computed_tokens // self._block_size):
            if self._hashes[block] != block_hash:
                break
            num_blocks += 1
        cache.num_settled_tokens = cache.num_draft_tokens = num_blocks * self._block_size
