"""Adds drafts to a planned step, for the sequences that decode, while tokens and blocks are left.

A draft preempts nobody. Prompt lookup comes first: it costs nothing. If it finds nothing, the draft model
guesses, for all sequences at once.
"""

from collections.abc import Iterable
from dataclasses import replace

from engine.core.drafting.draft_model import DraftModel
from engine.sampling.speculation import Speculation
from engine.scheduling.block_manager import BlockManager
from engine.scheduling.sequence import ScheduledSequence, Sequence


class Drafter:
    def __init__(
        self,
        speculation: Speculation,
        block_manager: BlockManager,
        *,
        max_num_batched_tokens: int,
        model: DraftModel | None = None,
    ) -> None:
        """No `model`: drafts are only looked up."""
        self._speculation = speculation
        self._block_manager = block_manager
        self._max_num_batched_tokens = max_num_batched_tokens
        self._model = model

    def add_drafts(self, scheduled: Iterable[ScheduledSequence]) -> list[ScheduledSequence]:
        """The same step, with drafts. Their blocks are reserved."""
        scheduled = list(scheduled)
        drafts = self._look_up(scheduled)
        if self._model is not None:
            wanted = self._wanted(scheduled, drafts)
            guessed = self._model.draft(scheduled, wanted)
            for seq, draft in guessed.items():
                self._speculation.expect(seq.sampling, len(draft))
            drafts |= guessed
        self._speculation.num_drafts += len(drafts)
        self._speculation.num_draft_tokens += sum(map(len, drafts.values()))
        return [replace(s, draft=drafts[s.sequence]) if s.sequence in drafts else s for s in scheduled]

    def _look_up(self, scheduled: list[ScheduledSequence]) -> dict[Sequence, tuple[int, ...]]:
        drafts: dict[Sequence, tuple[int, ...]] = {}
        num_left = self._num_left(scheduled)
        for s in scheduled:
            if num := self._most(s, num_left):
                draft = tuple(self._speculation.look_up(s.sequence.sampling, num))
                if draft and self._reserve(s, len(draft)):
                    drafts[s.sequence] = draft
                    num_left -= len(draft)
        return drafts

    def _wanted(
        self, scheduled: list[ScheduledSequence], drafts: dict[Sequence, tuple[int, ...]]
    ) -> dict[Sequence, int]:
        """The number of tokens that the draft model guesses, for each sequence that gets some."""
        wanted: dict[Sequence, int] = {}
        num_left = self._num_left(scheduled) - sum(map(len, drafts.values()))
        for s in scheduled:
            is_open = self._speculation.asks_model(s.sequence.sampling) and s.sequence not in drafts
            num = self._most(s, num_left) if is_open else 0
            if num and self._reserve(s, num):
                wanted[s.sequence] = num
                num_left -= num
        return wanted

    def _num_left(self, scheduled: list[ScheduledSequence]) -> int:
        return self._max_num_batched_tokens - sum(s.num_tokens for s in scheduled)

    def _most(self, s: ScheduledSequence, num_left: int) -> int:
        """The most tokens of a draft for this sequence."""
        if not (s.is_decode and s.is_sampled):
            return 0
        # The last token that the sequence may have is never computed.
        num_needed = s.sequence.max_tokens - s.sequence.num_output_tokens - 1
        return max(0, min(num_left, num_needed, self._speculation.num_speculative_tokens))

    def _reserve(self, s: ScheduledSequence, num_tokens: int) -> bool:
        return self._block_manager.allocate(s.sequence.cache.block_table, s.end + num_tokens)
