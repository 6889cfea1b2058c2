"""A small model that guesses the next tokens of all decoding sequences, one run for each token of a draft.

The first run also computes what the draft model has not seen yet: the prompt tokens that the step is about to
compute, the tokens drawn since the last draft, and tokens that it missed while it was not asked. These runs
are as bounded as the steps: a sequence catches up by at most `CATCH_UP` tokens more than it computes.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from engine.core.drafting.draft_cache import DraftCache
from engine.device.layout import Span, TokenSpan
from engine.device.transfers import HostCopy
from engine.execution.model_runner import ModelRunner
from engine.protocol.options import EngineConfig
from engine.scheduling.sequence import ScheduledSequence, Sequence

CATCH_UP = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftSpan(TokenSpan):
    """Tokens of the sequence that the draft model computes, or one guess. With a sample, it guesses the next
    token."""

    sequence: Sequence

    @classmethod
    def of(
        cls, seq: Sequence, start: int, token_ids: Seq[int], num_samples: int, *, drawn_row: int | None = None
    ) -> "DraftSpan":
        table = seq.cache.block_table
        return cls(start, token_ids, table, num_samples, drawn_row=drawn_row, sequence=seq)


class Runner(Protocol):
    """The part of a `ModelRunner` that a draft model needs."""

    @property
    def max_model_len(self) -> int: ...
    def run(self, scheduled: Seq[Span], drawn: Tensor | None = None) -> tuple[Tensor, Tensor]: ...


class DraftModel:
    def __init__(
        self, runner: Runner, cache: DraftCache, *, vocab_size: int, max_num_batched_tokens: int
    ) -> None:
        """`vocab_size`: the width of the logits of the model that is guessed for."""
        self._runner = runner
        self._cache = cache
        self._vocab_size = vocab_size
        self._max_num_batched_tokens = max_num_batched_tokens

    @classmethod
    def of(cls, runner: ModelRunner, config: EngineConfig) -> "DraftModel | None":
        """The draft model that was loaded beside the model, if any."""
        if config.speculative_model is None or runner.draft is None:
            return None
        return cls(
            runner.draft,
            DraftCache(runner.kv_cache.num_blocks, config.block_size),
            vocab_size=runner.vocab_size,
            max_num_batched_tokens=config.max_num_batched_tokens,
        )

    def draft(
        self, scheduled: Seq[ScheduledSequence], wanted: Mapping[Sequence, int]
    ) -> dict[Sequence, tuple[int, ...]]:
        """The most likely next tokens, `wanted` of them. A sequence that has to catch up gets none.

        `scheduled` is the whole step. Blocks must be reserved for the `wanted` tokens.
        """
        self._cache.follow(scheduled)
        # By run: the sequences, and a guess for each. The guesses stay on the device for the next run.
        guessed: list[list[Sequence]] = []
        guesses: list[Tensor] = []
        spans = self._catch_up(scheduled, wanted)
        while spans:
            guesses.append(self._run(spans, guesses[-1] if guesses else None))
            guessed.append([s.sequence for s in spans if s.num_samples])
            spans = [
                DraftSpan.of(seq, seq.cache.num_draft_tokens, (0,), 1, drawn_row=row)
                for row, seq in enumerate(guessed[-1])
                if len(guessed) < wanted[seq]
            ]
        drafts: dict[Sequence, tuple[int, ...]] = {}
        if guesses:
            for sequences, read in zip(guessed, HostCopy(guesses).tensors(), strict=True):
                for seq, guess in zip(sequences, read.tolist(), strict=True):
                    drafts[seq] = (*drafts.get(seq, ()), guess)
        return drafts

    def _run(self, spans: Seq[DraftSpan], drawn: Tensor | None) -> Tensor:
        """A guess for each sequence that wants one, on the device. `drawn`: those of the last run."""
        logits, _ = self._runner.run(spans, drawn)
        for s in spans:
            self._cache.note(s.sequence.cache, s.start + s.num_tokens)
        return logits[:, : self._vocab_size].argmax(-1)

    def _catch_up(self, scheduled: Seq[ScheduledSequence], wanted: Mapping[Sequence, int]) -> list[DraftSpan]:
        spans = []
        num_left = self._max_num_batched_tokens
        for s in scheduled:
            if s.sequence in wanted or self._will_want(s):
                span = self._span(s, num_left, wanted.get(s.sequence, 0))
                num_left -= span.num_tokens
                spans += [span] if span.num_tokens else []
        return spans

    def _will_want(self, s: ScheduledSequence) -> bool:
        """Whether it computes a part of a prompt whose output has room for a draft."""
        return not s.is_decode and s.sequence.max_tokens - s.sequence.num_output_tokens > 2

    def _span(self, s: ScheduledSequence, num_left: int, num_wanted: int) -> DraftSpan:
        seq, start = s.sequence, s.sequence.cache.num_draft_tokens
        if s.end + num_wanted > self._runner.max_model_len:
            return DraftSpan.of(seq, start, (), 0)
        end = min(s.end, start + min(num_left, s.num_tokens + CATCH_UP))
        is_guessing = end == s.end and num_wanted > 0
        return DraftSpan.of(seq, start, seq.token_ids[start:end], int(is_guessing))
