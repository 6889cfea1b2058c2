"""Which sequences compute how many tokens in the next step. Pure Python; it knows neither model nor text.

There is no prefill phase and no decode phase, as in vLLM v1: a sequence has `num_tokens`, of which
`num_computed_tokens` are in the cache, and a step lets some sequences catch up by some tokens, within a
budget. Chunked prefill is a sequence that catches up over several steps; decoding is one that is a single
token behind; preemption sets `num_computed_tokens` back to 0.

First come, first served: whoever runs arrived before whoever waits, and `running` is in order of arrival. So
the last to arrive is the first to be preempted, and it goes to the front of those that wait.
"""

from collections import deque
from dataclasses import dataclass

from engine.block_manager import BlockManager
from engine.sequence import Sequence

PROMPT_LOGPROBS_CHUNK = 256
"""Prompt tokens computed in one step for a sequence that wants their logprobs: each needs a row of logits as
wide as the vocabulary, where others need one row in all."""


@dataclass(frozen=True, slots=True)
class ScheduledSequence:
    """A sequence's share of one step: it computes the tokens at positions `start` to `end`."""

    sequence: Sequence
    start: int
    end: int

    @property
    def is_sampled(self) -> bool:
        """Whether the step gives the sequence its next token."""
        seq = self.sequence
        return self.end == seq.num_tokens and seq.num_output_tokens < seq.max_tokens

    @property
    def prompt_logprob_positions(self) -> range:
        """Positions whose logits foretell prompt tokens with logprobs asked for, and not yet known."""
        seq = self.sequence
        if not seq.needs_prompt_logprobs:
            return range(0)
        return range(max(self.start, len(seq.prompt_logprobs)), min(self.end, seq.num_prompt_tokens - 1))


class Scheduler:
    """Owns who waits and who runs; `schedule` reserves blocks, `remove` gives them back."""

    def __init__(
        self, block_manager: BlockManager, *, max_num_seqs: int, max_num_batched_tokens: int
    ) -> None:
        self.block_manager = block_manager
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self._max_num_seqs = max_num_seqs
        self._max_num_batched_tokens = max_num_batched_tokens

    def add(self, seq: Sequence) -> None:
        self.waiting.append(seq)

    def remove(self, seq: Sequence) -> None:
        """Forget a finished or aborted sequence, and free its blocks. Unknown ones are ignored."""
        for queue in (self.running, self.waiting):
            if seq in queue:
                queue.remove(seq)
        self.block_manager.free(seq.block_table)

    def schedule(self) -> list[ScheduledSequence]:
        """Plan one step and reserve its blocks. Those that compute a single token come first."""
        budget = self._max_num_batched_tokens
        scheduled: list[ScheduledSequence] = []
        any_preempted = False

        # Whoever is preempted stands behind the one that needs its blocks, and is not scheduled yet.
        while budget and len(scheduled) < len(self.running):
            seq = self.running[len(scheduled)]
            end = self._chunk_end(seq, budget)
            while not self.block_manager.allocate(seq.block_table, end):
                any_preempted = True
                if self._preempt_last() is seq:
                    break
            else:
                scheduled.append(ScheduledSequence(seq, seq.num_computed_tokens, end))
                budget -= end - seq.num_computed_tokens

        while budget and self.waiting and len(self.running) < self._max_num_seqs and not any_preempted:
            seq = self.waiting[0]
            end = self._chunk_end(seq, budget)
            if not self.block_manager.allocate(seq.block_table, end):
                break
            self.running.append(self.waiting.popleft())
            scheduled.append(ScheduledSequence(seq, 0, end))
            budget -= end

        return sorted(scheduled, key=lambda s: s.end - s.start > 1)

    def _chunk_end(self, seq: Sequence, budget: int) -> int:
        limit = min(budget, PROMPT_LOGPROBS_CHUNK) if seq.needs_prompt_logprobs else budget
        return seq.num_computed_tokens + min(seq.num_uncomputed_tokens, limit)

    def _preempt_last(self) -> Sequence:
        seq = self.running.pop()
        self.block_manager.free(seq.block_table)
        seq.num_computed_tokens = 0
        self.waiting.appendleft(seq)
        return seq
