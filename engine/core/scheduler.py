"""Which sequences compute how many tokens in the next step. Pure Python; it knows neither model nor text.

There is no prefill phase and no decode phase, as in vLLM v1: a sequence has `num_tokens`, of which
`num_computed_tokens` are in the cache, and a step lets some sequences catch up by some tokens, within a
budget. Chunked prefill is a sequence that catches up over several steps; decoding is one that is a single
token behind; preemption sets `num_computed_tokens` back to 0.

**Whose turn it is.** `waiting` and `running` are both in order of `Sequence.rank`: by priority, then by turn.
A request's turn is its arrival. Its second output has the turn of the request after it, its third that of the
one after that, and so on, as if they had come one by one. So a request of many outputs takes all the places
that nobody else waits for, but not all that become free, and each of its outputs is overtaken by a bounded
number of others. The first in `waiting` is the next to run; the last in `running` is the first to be
preempted. Who runs keeps its place until it is done, or until one that ranks before it needs its blocks.
One that is rewound has fewer tokens than before; if it was done, it waits again, with the rank that it had.

**Who gets the step.** Those that decode come first, a token each. What prompts may have beside them is the
`StepBudget`'s to say. Of that, a prompt takes all that it still needs, but one that cannot finish in this
step at most half of what is left, and leaves the rest to those behind it: a long prompt does not keep short
ones waiting. What nobody behind it wants, it gets.

**What is computed once.** A sequence begins with the blocks of the longest text known that begins as it does.
Full blocks become known as they are computed, prompts and outputs alike, so a preempted sequence finds its
own again. The outputs of one prompt wait until the first of them has it computed, and share what it has,
whether or not requests share with each other.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass, replace

from engine.core.block_hash import extend_hashes
from engine.core.block_manager import BlockManager
from engine.core.sequence import Rank, Sequence
from engine.core.step_budget import StepBudget
from engine.sampling.speculation import Speculation

MAX_PARTIAL_PREFILLS = 4
"""Prompts begun and not finished, beyond which none is begun that a step cannot finish: it would take a place
and blocks, and next to nothing of the step."""
PROMPT_LOGPROBS_CHUNK = 256
"""Prompt tokens computed in one step for a sequence that wants their logprobs: each needs a row of logits as
wide as the vocabulary, where others need one row in all."""


@dataclass(frozen=True, slots=True)
class ScheduledSequence:
    """A sequence's share of one step: it computes the tokens at positions `start` to `end`."""

    sequence: Sequence
    start: int
    end: int
    draft: tuple[int, ...] = ()
    """Tokens that may follow, computed as well: if the next one drawn is the first of them, the logits of the
    one after it are there, and so on."""

    @property
    def num_tokens(self) -> int:
        """That the model computes."""
        return self.end - self.start + len(self.draft)

    @property
    def num_samples(self) -> int:
        """Tokens that it may get, each with a row of logits."""
        return 1 + len(self.draft) if self.is_sampled else 0

    @property
    def is_sampled(self) -> bool:
        """Whether the step gives the sequence its next token."""
        seq = self.sequence
        return self.end == seq.num_tokens and seq.num_output_tokens < seq.max_tokens

    @property
    def is_decode(self) -> bool:
        """Whether it does nothing else."""
        return self.end - self.start == 1 and self.is_sampled

    @property
    def prompt_logprob_positions(self) -> range:
        """Positions whose logits foretell prompt tokens with logprobs asked for, and not yet known."""
        seq = self.sequence
        if not seq.needs_prompt_logprobs:
            return range(0)
        return range(max(self.start, len(seq.prompt_logprobs)), min(self.end, seq.num_prompt_tokens - 1))


class Scheduler:
    """Owns who waits and who runs.

    `schedule` reserves blocks for a step, `update` is told that it was run, `remove` gives blocks back.
    """

    def __init__(
        self,
        block_manager: BlockManager,
        *,
        max_num_seqs: int,
        max_num_batched_tokens: int,
        step_budget: StepBudget | None = None,
        speculation: Speculation | None = None,
    ) -> None:
        """`step_budget`: None sets prompts no limit but `max_num_batched_tokens`; `speculation`: None, no
        drafts."""
        self.block_manager = block_manager
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self.num_preempted = 0
        self.num_cache_queries = 0
        """Prompt tokens of the sequences that began to run, each prompt's once."""
        self.num_cache_hits = 0
        self._max_num_seqs = max_num_seqs
        self._max_num_batched_tokens = max_num_batched_tokens
        self._step_budget = step_budget or StepBudget(max_num_batched_tokens)
        self._speculation = speculation or Speculation()
        self._num_arrived = 0

    def add(self, seq: Sequence) -> None:
        group = seq.group
        if group.arrival is None:
            group.arrival = self._num_arrived
            self._num_arrived += 1
        seq.rank = (group.request.priority, group.arrival + seq.index, group.arrival)
        if seq.is_first or not self._num_shareable_blocks(seq):
            insort(self.waiting, seq, key=_rank)

    def remove(self, seq: Sequence) -> None:
        """Forget a finished or aborted sequence, and free its blocks. Unknown ones are ignored."""
        for queue in (self.running, self.waiting):
            if (at := _place(queue, seq)) is not None:
                del queue[at]
        self.block_manager.free(seq.block_table)

    def rewind(self, seq: Sequence) -> None:
        """Its last tokens were taken back, and so is what was computed of them. One that was removed, since
        it had finished, waits again."""
        del seq.block_hashes[seq.num_tokens // self.block_manager.block_size :]
        # The last token is computed again, for the logits of the next.
        num_held = self.block_manager.truncate(seq.block_table, seq.num_tokens - 1)
        seq.num_computed_tokens = min(seq.num_computed_tokens, num_held)
        if all(_place(queue, seq) is None for queue in (self.running, self.waiting)):
            insort(self.waiting, seq, key=_rank)

    def update(self, scheduled: ScheduledSequence) -> None:
        """It was run: its full blocks become known, and the other outputs of a prompt now computed may come.

        To be told before the sequence gets its next token.
        """
        seq, size = scheduled.sequence, self.block_manager.block_size
        seq.num_computed_tokens = scheduled.end
        if full := range(scheduled.start // size, scheduled.end // size):
            self._extend_hashes(seq, full.stop)
            for i in full:
                self.block_manager.cache(seq.block_table[i], seq.block_hashes[i])
        if scheduled.end == seq.num_prompt_tokens == seq.num_tokens and not seq.num_rewinds:
            self._let_followers_come(seq)

    def schedule(self) -> list[ScheduledSequence]:
        """Plan one step and reserve its blocks. Those that compute a single token come first."""
        num_decodes, num_tokens = self._budgets()
        num_preempted = self.num_preempted
        ends: dict[Sequence, int] = {}
        num_tokens = self._go_on(ends, num_decodes, num_tokens)
        if self.waiting and num_preempted == self.num_preempted:
            num_tokens = self._admit(ends, num_tokens)
        self._give_rest(ends, num_tokens)
        scheduled = [ScheduledSequence(seq, seq.num_computed_tokens, end) for seq, end in ends.items()]
        if self._speculation.num_speculative_tokens:
            scheduled = self._with_drafts(scheduled)
        return sorted(scheduled, key=lambda s: s.end - s.start > 1)

    def _budgets(self) -> tuple[int, int]:
        """How many sequences may decode, and how many tokens may be computed for the others."""
        num_decodes = sum(seq.num_uncomputed_tokens == 1 for seq in self.running)
        num_prompts = min(len(self.running) + len(self.waiting), self._max_num_seqs) - num_decodes
        num_decodes = min(num_decodes, self._max_num_batched_tokens)
        num_prefill_tokens = self._max_num_batched_tokens - num_decodes
        if num_decodes:
            num_prefill_tokens = min(num_prefill_tokens, self._step_budget.plan(num_decodes, num_prompts))
        return num_decodes, num_prefill_tokens

    def _go_on(self, ends: dict[Sequence, int], num_decodes: int, num_tokens: int) -> int:
        """Where the chunks of those that run end. What is left of the tokens for prompts."""
        at = 0
        # Whoever is preempted stands behind the one that needs its blocks, and has no chunk yet.
        while at < len(self.running):
            seq = self.running[at]
            is_decode = seq.num_uncomputed_tokens == 1
            chunk = min(1, num_decodes) if is_decode else _share(seq, num_tokens)
            if chunk:
                end = seq.num_computed_tokens + chunk
                if not self._make_room(seq, end):
                    break
                ends[seq] = end
                num_decodes -= is_decode
                num_tokens -= 0 if is_decode else chunk
            at += 1
        return num_tokens

    def _make_room(self, seq: Sequence, end: int) -> bool:
        """Reserve blocks up to `end`, whoever behind it has to give up its own. False: it had to itself."""
        while not self.block_manager.allocate(seq.block_table, end):
            if self._preempt_last() is seq:
                return False
        return True

    def _admit(self, ends: dict[Sequence, int], num_tokens: int) -> int:
        """Let those that wait run, while there are places, blocks and tokens. What is left of the tokens."""
        num_partial = sum(ends.get(s, s.num_computed_tokens) < s.num_tokens for s in self.running)
        while num_tokens and self.waiting and len(self.running) < self._max_num_seqs:
            seq = self.waiting[0]
            self._reuse_blocks(seq)
            chunk = _share(seq, num_tokens)
            end = seq.num_computed_tokens + chunk
            num_partial += end < seq.num_tokens
            if num_partial > MAX_PARTIAL_PREFILLS or not self.block_manager.allocate(seq.block_table, end):
                self._give_up(seq)
                break
            self._count(seq)
            del self.waiting[0]
            insort(self.running, seq, key=_rank)
            ends[seq] = end
            num_tokens -= chunk
        return num_tokens

    def _give_rest(self, ends: dict[Sequence, int], num_tokens: int) -> None:
        """Lengthen the chunks of those that left something to others behind them."""
        for seq, end in ends.items():
            if end == seq.num_tokens:
                continue
            more = min(num_tokens, seq.num_computed_tokens + _longest_chunk(seq) - end)
            if more and self.block_manager.allocate(seq.block_table, end + more):
                ends[seq] += more
                num_tokens -= more

    def _with_drafts(self, scheduled: list[ScheduledSequence]) -> list[ScheduledSequence]:
        """Those that decode, with what may come next, as far as tokens and blocks are left. Nobody is
        preempted for a guess."""
        num_left = self._max_num_batched_tokens - sum(s.num_tokens for s in scheduled)
        drafted = []
        for s in scheduled:
            seq = s.sequence
            if s.is_decode:
                # The last token that it may have is never computed.
                num_wanted = min(num_left, seq.max_tokens - seq.num_output_tokens - 1)
                draft = self._speculation.draft(seq, num_wanted)
                if draft and self.block_manager.allocate(seq.block_table, s.end + len(draft)):
                    s = replace(s, draft=tuple(draft))
                    num_left -= len(draft)
                    self._speculation.num_drafts += 1
                    self._speculation.num_draft_tokens += len(draft)
            drafted.append(s)
        return drafted

    def _preempt_last(self) -> Sequence:
        seq = self.running.pop()
        self._give_up(seq)
        insort(self.waiting, seq, key=_rank)
        self.num_preempted += 1
        return seq

    def _give_up(self, seq: Sequence) -> None:
        self.block_manager.free(seq.block_table)
        seq.num_computed_tokens = 0

    def _count(self, seq: Sequence) -> None:
        # A prompt's other candidates, and who was preempted, find what was computed for themselves.
        if seq.is_first and not seq.has_run:
            self.num_cache_queries += seq.num_prompt_tokens
            self.num_cache_hits += seq.num_computed_tokens
            seq.group.num_cached_tokens += seq.num_computed_tokens
        seq.has_run = True

    def _reuse_blocks(self, seq: Sequence) -> None:
        # At least one token is always computed, for the logits of the next; and so are those whose logits
        # foretell prompt tokens with logprobs asked for.
        num_tokens = len(seq.prompt_logprobs) if seq.needs_prompt_logprobs else seq.num_tokens - 1
        num_blocks = num_tokens // self.block_manager.block_size
        self._extend_hashes(seq, num_blocks)
        self.block_manager.reuse(seq.block_table, seq.block_hashes[:num_blocks])
        seq.num_computed_tokens = len(seq.block_table) * self.block_manager.block_size

    def _extend_hashes(self, seq: Sequence, num_blocks: int) -> None:
        if len(seq.block_hashes) < num_blocks:
            size = self.block_manager.block_size
            extend_hashes(
                seq.block_hashes,
                seq.group.root_hash,
                seq.token_ids,
                size,
                num_blocks,
                num_public=seq.num_prompt_tokens,
                secret=seq.group.output_secret,
            )

    def _num_shareable_blocks(self, seq: Sequence) -> int:
        """Of its prompt, with the prompt's other candidates."""
        return (seq.num_prompt_tokens - 1) // self.block_manager.block_size

    def _let_followers_come(self, seq: Sequence) -> None:
        if num_blocks := self._num_shareable_blocks(seq):
            for follower in seq.followers:
                follower.block_hashes = seq.block_hashes[:num_blocks]
                follower.prompt_logprobs = list(seq.prompt_logprobs)
                insort(self.waiting, follower, key=_rank)


def _rank(seq: Sequence) -> Rank:
    return seq.rank


def _place(queue: list[Sequence], seq: Sequence) -> int | None:
    at = bisect_left(queue, seq.rank, key=_rank)
    return at if at < len(queue) and queue[at] is seq else None


def _longest_chunk(seq: Sequence) -> int:
    num_tokens = seq.num_uncomputed_tokens
    return min(num_tokens, PROMPT_LOGPROBS_CHUNK) if seq.needs_prompt_logprobs else num_tokens


def _share(seq: Sequence, num_tokens: int) -> int:
    """What it may have of so many tokens for all."""
    wanted = _longest_chunk(seq)
    return wanted if wanted <= num_tokens else (num_tokens + 1) // 2
