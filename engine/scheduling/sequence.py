"""One output in the making, and the request that it belongs to.

A `Sequence` says who it is: its request, its index, its token ids. How the cache holds it and how it is
sampled are states of their own. Derived numbers are properties, so that they always agree.
Pure Python: the scheduler, which moves sequences about, needs no torch.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from engine.protocol import Delta, FinishReason, GenerationRequest, Scores, Token, Usage
from engine.sampling.logits_processors import TokenIds
from engine.sampling.sampling_state import Logprobs, SamplingState
from engine.scheduling.block_hash import extend_hashes, root_hash
from engine.turns.bursts import NEVER

if TYPE_CHECKING:
    from engine.sampling.logit_bias import LogitBias
    from engine.text.detokenizer import Detokenizer


PROMPT_LOGPROBS_CHUNK = 256
"""Most prompt tokens computed in one step for a sequence that wants their logprobs. Each of them needs a row
of logits as wide as the vocabulary; other sequences need one row in all."""


class DueTokens(NamedTuple):
    """Tokens of an output, in order, and what ended it."""

    tokens: tuple[Token, ...]
    stop_reason: str | int | None
    """The stop string or the stop token's id that ended the output. None: something else did, or nothing."""


_NO_POSITIONS = range(0)
Rank = tuple[int, int, int]
"""Priority, turn, arrival. The least goes first; the greatest is preempted first."""


@dataclass(eq=False, slots=True)
class CacheState:
    """The part of one sequence that the cache holds, and its blocks. The `Scheduler` fills it; the model
    reads it."""

    num_computed_tokens: int = 0
    """Leading tokens of the sequence whose keys and values are in the cache, or will be when the next step
    begins. Preemption sets it back to 0."""
    block_table: list[int] = field(default_factory=list)
    """The blocks that hold the computed tokens, in order."""
    block_hashes: list[bytes] = field(default_factory=list)
    """Hashes of the sequence's first full blocks (`engine.scheduling.block_hash`), as far as they were
    needed."""
    num_draft_tokens: int = 0
    """Leading tokens that the draft model has computed, with its guesses. The `DraftCache` fills it, and
    `num_settled_tokens`."""
    num_settled_tokens: int = 0
    """The leading tokens among these that are known to be the sequence's own."""
    has_run: bool = False
    """Whether the sequence ever had blocks."""
    _blocks: array[int] = field(default_factory=lambda: array("q"))

    def blocks(self) -> array[int]:
        """The `block_table` as an array. It is kept, so that a step converts no more in a long text. `keep`
        must have been called for all changes but new blocks at the end."""
        number, known = len(self.block_table), len(self._blocks)
        if known < number:
            self._blocks.extend(self.block_table[known:])
        elif known > number:
            del self._blocks[number:]
        return self._blocks

    def keep(self, num_tokens: int) -> None:
        """Note that the blocks hold no more than the first `num_tokens`. Other blocks may have taken the
        places of the rest."""
        del self._blocks[:]
        self.num_computed_tokens = min(self.num_computed_tokens, num_tokens)
        self.num_draft_tokens = min(self.num_draft_tokens, num_tokens)
        self.num_settled_tokens = min(self.num_settled_tokens, num_tokens)


@dataclass(eq=False, slots=True)
class Sequence:
    """One output: its prompt and the tokens after it. Once added, only the engine's thread has it."""

    group: SequenceGroup
    index: int
    """Its number among the request's candidates: the i-th of prompt p is `p * num_candidates + i`. If every
    candidate is given, this is `GenerationRequest`'s number of the output."""
    token_ids: list[int]
    """The prompt's tokens and the generated ones."""
    num_prompt_tokens: int
    max_tokens: int
    """`SamplingParams.max_tokens`, or the room that the model's context leaves."""
    detokenizer: Detokenizer
    sampling: SamplingState
    cache: CacheState = field(default_factory=CacheState)
    rank: Rank = (0, 0, 0)
    """Given by the `Scheduler`, like `place`."""
    place: int = 0
    """Running sequences of the same caller that go before it."""
    arrival_step: int = NEVER
    """The number of the step in which there was a place for it. Given by `Bursts`, like `prefilled_step`."""
    prefilled_step: int = NEVER
    """The number of the step that computed the last token of its prompt."""
    echo_texts: tuple[str, ...] | None = None
    """The text that each prompt token completes. None: the request has no echo, or it was sent already."""
    prompt_logprobs: list[Logprobs] = field(default_factory=list)
    """Logprobs of the prompt's second token, third token and so on, as far as the prompt is computed."""
    cumulative_logprob: float = 0.0
    """Sum over the tokens drawn whose logprobs were computed."""
    kept: list[Delta] = field(default_factory=list)
    """A candidate's deltas, until its request chooses its outputs."""
    has_begun: bool = False
    """Whether the first delta was made."""
    finish_reason: FinishReason | None = None
    """The reason why it gets no more tokens."""
    scores: list[Scores] = field(default_factory=list)
    """The probes' scores of its first tokens, as far as they are known. Filled by `StepScores`."""
    due: DueTokens | None = None
    """Decided tokens that wait for their scores."""
    num_decided_tokens: int = 0
    """Output tokens that were decided so far."""
    drawn_row: int | None = None
    """The row of the last draw that has its next token, while a step is planned before this token is read.
    Set by `going_ahead`."""
    queued_at: float = 0.0
    """The time at which it was added, in seconds. The `EngineMetrics` fill the three times."""
    scheduled_at: float = 0.0
    """The time at which it was first scheduled."""
    first_token_at: float = 0.0
    """The time at which it got its first token."""

    def rewind(self, num_output_tokens: int, banned: Iterable[int] | None = None) -> None:
        """Keep only the first output tokens. `banned`: token ids that may not come next; None: the first
        withdrawn token. The `Scheduler` rewinds the cache."""
        end = self.num_prompt_tokens + num_output_tokens
        self.sampling.rewind(num_output_tokens, self.token_ids[end : end + 1] if banned is None else banned)
        del self.token_ids[end:]
        self.detokenizer = self.detokenizer.rewound(self.token_ids, num_output_tokens)
        self.finish_reason = None
        del self.scores[end:]
        self.due, self.num_decided_tokens = None, num_output_tokens

    def extend_hashes(self, block_size: int, num_blocks: int) -> None:
        """Make the hashes of its first `num_blocks` blocks, which must be full."""
        group, cache = self.group, self.cache
        public, secret = self.num_public_tokens, group.secret
        extend_hashes(
            cache.block_hashes,
            group.root_hash,
            self.token_ids,
            block_size,
            num_blocks,
            num_public=public,
            secret=secret,
        )

    @property
    def is_done(self) -> bool:
        """Whether it has ended and all its tokens were given."""
        return self.finish_reason is not None and self.due is None

    @property
    def is_scored(self) -> bool:
        """Whether probes score its tokens. Known once its prompt is computed."""
        return bool(self.scores)

    @property
    def caller(self) -> str:
        return self.group.request.caller

    @property
    def is_first(self) -> bool:
        """Whether it is the first of its prompt's candidates."""
        return self.index % self.sampling.params.num_candidates == 0

    @property
    def followers(self) -> list[Sequence]:
        """The other candidates of its prompt, if it is the first."""
        last = self.index + self.sampling.params.num_candidates
        return self.group.sequences[self.index + 1 : last] if self.is_first else []

    @property
    def num_tokens(self) -> int:
        """With the token that is drawn and not read."""
        return len(self.token_ids) + (self.drawn_row is not None)

    @property
    def num_output_tokens(self) -> int:
        return self.num_tokens - self.num_prompt_tokens

    @property
    def num_public_tokens(self) -> int:
        """Leading tokens whose blocks other requests can find without the group's `secret`."""
        own = self.group.num_public_tokens
        return self.num_prompt_tokens if own is None else own

    @property
    def prompt_token_ids(self) -> list[int]:
        return self.token_ids[: self.num_prompt_tokens]

    @property
    def num_uncomputed_tokens(self) -> int:
        # Not by `num_tokens`: it is read several times for every token.
        return len(self.token_ids) + (self.drawn_row is not None) - self.cache.num_computed_tokens

    @property
    def longest_chunk(self) -> int:
        """Most tokens that one step may compute for it."""
        num_tokens = self.num_uncomputed_tokens
        return min(num_tokens, PROMPT_LOGPROBS_CHUNK) if self.needs_prompt_logprobs else num_tokens

    @property
    def was_rewound(self) -> bool:
        return self.sampling.num_rewinds > 0

    @property
    def needs_prompt_logprobs(self) -> bool:
        """Whether the request wants logprobs of its prompt, and some are not known yet."""
        return (
            self.echo_texts is not None
            and self.group.request.num_prompt_logprobs is not None
            and len(self.prompt_logprobs) < self.num_prompt_tokens - 1
        )


@dataclass(eq=False, slots=True)
class SequenceGroup:
    """One request's sequences, and its running totals."""

    request: GenerationRequest
    sequences: list[Sequence] = field(default_factory=list)
    num_prompt_tokens: int = 0
    """Each prompt counts once, whatever `n` is."""
    num_output_tokens: int = 0
    """Tokens of all sequences. Counted, because every delta reports it."""
    num_cached_tokens: int = 0
    """Prompt tokens that the cache held when their sequence began to run. Filled by the `Scheduler`."""
    root_hash: bytes = root_hash(None)
    """Sequences with the same root may share blocks."""
    secret: bytes = b""
    """If not empty, only requests that know it find blocks after `num_public_tokens`. Usually this request
    alone knows it, and its outputs' blocks are its own."""
    num_public_tokens: int | None = None
    """Leading tokens that do not need the `secret`. None: each sequence's prompt."""
    bias: LogitBias | None = None
    """The request's `logit_bias`, if it has one."""
    arrival: int | None = None
    """The number of requests that came before this one. Given by the `Scheduler`."""
    is_aborted: bool = False
    has_choice: bool = field(init=False)
    """Whether the outputs are chosen among more candidates (`best_of`)."""

    def __post_init__(self) -> None:
        self.has_choice = self.request.sampling.num_candidates > self.request.sampling.n

    def add(
        self,
        prompt_token_ids: Iterable[int],
        *,
        max_tokens: int,
        detokenizer: Detokenizer,
        seed: int | None = None,
        eos_token_ids: frozenset[int] = frozenset(),
        echo_texts: tuple[str, ...] | None = None,
    ) -> Sequence:
        ids, index, request = list(prompt_token_ids), len(self.sequences), self.request
        tokens = TokenIds(ids, len(ids))
        state = SamplingState(request.request_id, request.sampling, tokens, eos_token_ids, seed, self.bias)
        seq = Sequence(self, index, ids, len(ids), max_tokens, detokenizer, state, echo_texts=echo_texts)
        self.sequences.append(seq)
        return seq

    def close(self) -> None:
        """Forget the sequences, once nobody needs them. They and the group refer to each other, so their
        memory would stay until the garbage collector comes by."""
        self.sequences.clear()

    @property
    def usage(self) -> Usage:
        return Usage(self.num_prompt_tokens, self.num_output_tokens, self.num_cached_tokens)

    @property
    def is_finished(self) -> bool:
        return all(s.is_done for s in self.sequences)


@contextmanager
def going_ahead(drawing: Iterable[Sequence]) -> Iterator[None]:
    """Inside, each sequence counts the token that was drawn for it and is not read yet. `drawing`: in the
    order of the draw's rows."""
    drawing = list(drawing)
    for row, seq in enumerate(drawing):
        seq.drawn_row = row
    try:
        yield
    finally:
        for seq in drawing:
            seq.drawn_row = None


@dataclass(slots=True, eq=False)
class ScheduledSequence:
    """A sequence's share of one step: it computes the tokens at positions `start` to `end`.

    It never changes once it is made. What the step gives to the sequence follows from the sequence as it is
    then, and is read often.
    """

    sequence: Sequence
    start: int
    end: int
    draft: tuple[int, ...] = ()
    """Guesses at the tokens that follow, computed as well. If the next token drawn is the first guess, the
    logits of the token after it are there already, and so on."""
    num_tokens: int = field(init=False)
    """All that the model computes."""
    num_samples: int = field(init=False)
    """Most tokens that the sequence can get, each from a row of logits."""
    is_sampled: bool = field(init=False)
    """Whether the step gives the sequence its next token. One that has ended may be computed once more, for
    the scores of its last token."""
    is_decode: bool = field(init=False)
    """Whether it computes a single token, and gets the next one or has ended."""
    drawn_row: int | None = field(init=False)
    """The row of the last draw with its token, if only the device knows the token."""
    prompt_logprob_positions: range = field(init=False)
    """Positions whose logits give the logprobs of prompt tokens that are wanted and not known yet."""

    def __post_init__(self) -> None:
        seq, num_tokens = self.sequence, self.end - self.start
        self.drawn_row = seq.drawn_row if self.end > len(seq.token_ids) else None
        is_at_end = self.end >= seq.num_tokens
        has_ended = seq.finish_reason is not None
        self.is_sampled = is_at_end and not has_ended and seq.num_output_tokens < seq.max_tokens
        self.is_decode = is_at_end and num_tokens == 1 and (has_ended or self.is_sampled)
        self.num_samples = 1 + len(self.draft) if self.is_sampled else 0
        self.num_tokens = num_tokens + len(self.draft)
        self.prompt_logprob_positions = _NO_POSITIONS
        if seq.needs_prompt_logprobs:
            first, end = max(self.start, len(seq.prompt_logprobs)), min(self.end, seq.num_prompt_tokens - 1)
            self.prompt_logprob_positions = range(first, end)

    @property
    def token_ids(self) -> list[int]:
        """The tokens that the model computes, with the draft. 0 stands for a token that is not read yet
        (`drawn_row`)."""
        return [*self.sequence.token_ids[self.start : self.end], *self.draft] or [0]

    @property
    def block_table(self) -> array[int]:
        return self.sequence.cache.blocks()

    @property
    def is_last(self) -> bool:
        """Whether the sequence needs no other step once the token that the step gives is drawn."""
        seq = self.sequence
        return seq.num_output_tokens >= seq.max_tokens and self.end >= len(seq.token_ids)
