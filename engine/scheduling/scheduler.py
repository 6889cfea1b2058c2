"""Plans which sequences compute how many tokens in the next step. Pure Python; knows neither model nor text.

As in vLLM v1, there are no separate phases for prefill and decode. A sequence has `num_tokens`, and
`num_computed_tokens` of them are in the cache. Each step lets some sequences catch up by some tokens, within
a budget. A chunked prefill is a sequence that catches up over several steps. A sequence that decodes is one
token behind. Preemption sets `num_computed_tokens` back to 0.

**Callers.** Callers share the places equally (max-min fairness). A place that becomes free goes to the caller
with the fewest running sequences; among equals, callers take turns. A caller may have all places while nobody
else waits. If another caller then waits, the caller with the most places gives way: one of its sequences is
preempted in each step, as long as it has more than one place more. So the first token of a caller waits for
no other caller's outputs to end, unless as many callers as places are there. The same holds for blocks.
Priorities come first: a sequence gives way only to sequences of its own priority, or a better one.

**Order.** One caller's sequences are sorted by `Sequence.rank`: by priority, then by turn. A request's first
output has the turn of the request's arrival. Its second output has the turn of the request after it, its
third output that of the one after that, as if the outputs had arrived one by one. So a request of many
outputs gets all places that nobody else waits for, but not all places that become free, and only a bounded
number of other outputs overtake each of its outputs. `running` is sorted by priority, then by each sequence's
place among its caller's, then by rank. The last sequence in `running` is preempted first. Except to give way
to another caller, a running sequence keeps its place until it is done, or until a sequence before it needs
its blocks. A rewound sequence has fewer tokens than before; if it was done, it waits again with its old rank.

**Share of a step.** Sequences that decode come first, with one token each. The `StepBudget` says how many
prompt tokens may join them. Short prompts of a burst (`Bursts`) get as many as if nothing decoded. A prompt
that can finish in this step gets all the tokens it needs. Another one gets at most half of what is left, so
that short ones after it need not wait. Tokens that no prompt after it wants are given to it in the end.

**Sharing blocks.** A sequence begins with the blocks of the longest known text that begins like it. Full
blocks become known as soon as they are computed, for prompts and outputs alike, so a preempted sequence finds
its own blocks again. The outputs of one prompt wait until the first of them has computed it. They share its
blocks even if requests share none with each other.

**Rest.** A text that is classified gets its tokens little by little. While it has none to compute, it rests:
it has no place, but keeps its blocks. Whoever needs blocks takes those of the text that has rested longest,
before any running sequence is preempted.
"""

from collections import Counter, OrderedDict
from operator import attrgetter

from engine.protocol.options import EngineConfig
from engine.scheduling.block_hash import KnownHashes
from engine.scheduling.block_manager import BlockManager
from engine.scheduling.sequence import ScheduledSequence, Sequence
from engine.scheduling.step_budget import Budget, StepBudget
from engine.scheduling.step_plan import StepPlan
from engine.turns.bursts import Bursts
from engine.turns.fair_queue import FairQueue

MAX_PARTIAL_PREFILLS = 4
"""Prompts that may be begun and unfinished at a time, among those of the same place or a better one. One more
that the step cannot finish would take a place and blocks, and get next to nothing of the step."""

_rank = attrgetter("rank")


class _MayNotPreemptError(Exception):
    """A running sequence would have to give way."""


class Scheduler:
    """Owns the sequences that wait and those that run. `schedule` reserves blocks for a step, `update` says
    that the device computes it, `remove` gives blocks back."""

    def __init__(self, config: EngineConfig, num_blocks: int, step_budget: Budget | None = None) -> None:
        """No `step_budget`: `max_num_batched_tokens` alone limits prompts."""
        self.block_manager = BlockManager(num_blocks, config.block_size)
        self.waiting: FairQueue[Sequence] = FairQueue(_rank)
        self.running: list[Sequence] = []
        self.num_preempted = 0
        """Times that a sequence lost its blocks."""
        self.num_cache_queries = 0
        """Prompt tokens of the sequences that began to run; each prompt counts once."""
        self.num_cache_hits = 0
        self._resting: OrderedDict[Sequence, None] = OrderedDict()
        """Sequences that have blocks and no place, also if they wait for one. The first is the next to lose
        its blocks."""
        self._config = config
        self._max_num_seqs_per_caller = config.max_num_seqs_per_caller or config.max_num_seqs
        self._is_sorted = True
        """Whether `running` is in its order."""
        self._is_short_of_blocks = False
        """Whether the sequence that is next has found too few blocks."""
        self._may_preempt = True
        """Whether a running sequence may lose its blocks now."""
        self._step_budget: Budget = step_budget or StepBudget(config.max_num_batched_tokens)
        self._num_arrived = 0
        self._bursts = Bursts(config.max_num_seqs, self._max_num_seqs_per_caller)
        self._known_hashes = KnownHashes(config.block_size)

    def add(self, seq: Sequence) -> None:
        group = seq.group
        if group.arrival is None:
            group.arrival = self._num_arrived
            self._num_arrived += 1
        seq.rank = (group.request.priority, group.arrival + seq.index, group.arrival)
        self._bursts.add(seq, self.running, self.waiting, len(self.waiting))
        if seq.is_first or not self._num_shareable_blocks(seq):
            self.waiting.add(seq.caller, seq)

    def remove(self, seq: Sequence) -> None:
        """Forget a finished or aborted sequence and free its blocks. A sequence not known here is ignored."""
        if not self.waiting.remove(seq.caller, seq):
            if seq in self.running:
                self.give_up_place(seq)
            else:
                self._is_short_of_blocks = False  # this sequence had blocks beside those that ran
        self._resting.pop(seq, None)
        self.block_manager.free(seq.cache.block_table)

    def give_up_place(self, seq: Sequence) -> None:
        """Take the place of a running sequence that needs no more steps. It keeps its blocks until
        `remove`."""
        self.running.remove(seq)
        self._is_sorted = False

    def rest(self, seq: Sequence) -> None:
        """Take the place of a running sequence that has computed its tokens. More may come."""
        self.give_up_place(seq)
        self._resting[seq] = None

    def resume(self, seq: Sequence) -> None:
        """Let a sequence that rests wait for a place, since it has got tokens. It waits as if it came now."""
        if seq in self._resting:
            self._resting.move_to_end(seq)
        seq.group.arrival = None
        self.add(seq)

    def truncate(self, seq: Sequence, num_computed_tokens: int) -> None:
        """Drop the blocks of withdrawn tokens, and of all tokens after the first `num_computed_tokens`."""
        cache = seq.cache
        del cache.block_hashes[seq.num_tokens // self.block_manager.block_size :]
        cache.keep(self.block_manager.truncate(cache.block_table, num_computed_tokens))

    def rewind(self, seq: Sequence) -> None:
        """Drop the blocks of withdrawn tokens. A sequence that was done waits again."""
        self.truncate(seq, seq.num_tokens - 1)  # the last token gives the logits of the next one once more
        if seq not in self.running and seq not in self.waiting:
            self.waiting.add(seq.caller, seq)

    def update(self, scheduled: ScheduledSequence) -> None:
        """Note that the device computes a share of a step, before later steps. Call it again when all tokens
        of the share are read, before the sequence gets its next token.

        Full blocks become known once their tokens are. If its prompt is now computed, the prompt's other
        outputs may come.
        """
        seq, end, size = scheduled.sequence, scheduled.end, self.block_manager.block_size
        cache = seq.cache
        first, num_full = scheduled.start // size, min(end, len(seq.token_ids)) // size
        if first < num_full:
            seq.extend_hashes(size, num_full)
            for i in range(first, num_full):
                self.block_manager.cache(cache.block_table[i], cache.block_hashes[i])
        if end <= cache.num_computed_tokens:
            return
        cache.num_computed_tokens = end
        if end == seq.num_tokens:
            self._bursts.finish_prefill(seq)
            if end == seq.num_prompt_tokens and not seq.was_rewound:
                self._let_followers_come(seq)

    def schedule_ahead(self) -> list[ScheduledSequence] | None:
        """Plan the step after one that the device still computes. None: one of its sequences would have to
        give way, which it can do only when its token is read."""
        self._may_preempt = False
        try:
            return self.schedule()
        except _MayNotPreemptError:
            return None
        finally:
            self._may_preempt = True

    def schedule(self) -> list[ScheduledSequence]:
        """Plan one step and reserve its blocks. Sequences that compute a single token come first."""
        self._bursts.begin_step()
        self._sort_running()
        self._give_way()
        num_decodes, units = self._budgets()
        plan = StepPlan(self._step_budget, units)
        num_preempted = self.num_preempted
        self._go_on(plan, num_decodes)
        if self.waiting and num_preempted == self.num_preempted:
            self._admit(plan)
        self._give_rest(plan)
        return plan.scheduled()

    def _sort_running(self) -> None:
        if self._is_sorted:
            return
        self.running.sort(key=_rank)
        places: Counter[str] = Counter()
        for seq in self.running:
            seq.place = places[seq.caller]
            places[seq.caller] += 1
        if len(places) > 1:
            self.running.sort(key=lambda seq: (seq.rank[0], seq.place, seq.rank))
        self._is_sorted = True

    def _give_way(self) -> None:
        is_full = len(self.running) == self._config.max_num_seqs or self._is_short_of_blocks
        if is_full and self.running and self.waiting and (last := self._one_to_give_way()) is not None:
            self._preempt(last)
        self._is_short_of_blocks = False

    def _one_to_give_way(self) -> Sequence | None:
        """One sequence of a caller that has more than its share of what another caller waits for."""
        places = self._places()
        if (seq := self._next(places)) is None:
            return None
        last = max(self.running, key=lambda s: (s.rank[0] >= seq.rank[0], s.place, s.rank))
        return last if last.rank[0] >= seq.rank[0] and last.place > places[seq.caller] else None

    def _places(self) -> Counter[str]:
        """The number of running sequences, by caller."""
        return Counter(seq.caller for seq in self.running)

    def _next(self, places: Counter[str]) -> Sequence | None:
        """The waiting sequence that runs next. `places`: as `_places` gives them."""

        def load(caller: str, seq: Sequence) -> tuple[int, int] | None:
            place = places[caller]
            return (seq.rank[0], place) if place < self._max_num_seqs_per_caller else None

        return self.waiting.first(load)

    def _budgets(self) -> tuple[int, float]:
        """The number of sequences that may decode, and the units (see `StepBudget`) of the prompts' tokens.
        A token has at least one unit."""
        contexts = [s.cache.num_computed_tokens + 1 for s in self.running if s.num_uncomputed_tokens == 1]
        num_decodes = len(contexts)
        num_prompts = min(len(self.running) + len(self.waiting), self._config.max_num_seqs) - num_decodes
        num_decodes = min(num_decodes, self._config.max_num_batched_tokens)
        units: float = self._config.max_num_batched_tokens - num_decodes
        if num_decodes and not (num_prompts and self._goes_on_with_a_burst()):
            units = min(units, self._step_budget.plan(num_decodes, num_prompts, sum(contexts)))
        elif (most := self._step_budget.plan_prompts()) is not None:
            units = min(units, most)
        return num_decodes, units

    def _goes_on_with_a_burst(self) -> bool:
        """Whether the step can compute all of a prompt that may delay the sequences that decode."""
        waiting = self._next(self._places()) if self.waiting else None
        prompts = self._bursts.unprotected_from(self.running, waiting)
        units = self._step_budget.plan_prompts() if prompts else None
        cost = self._step_budget.units
        return units is not None and any(
            cost(seq.longest_chunk, seq.cache.num_computed_tokens) <= units for seq in prompts
        )

    def _go_on(self, plan: StepPlan, num_decodes: int) -> None:
        """Give running sequences their shares."""
        at, size = 0, self.block_manager.block_size
        # A preempted sequence comes after the one that needs its blocks, and has no share yet.
        while at < len(self.running):
            seq = self.running[at]
            is_decode = seq.num_uncomputed_tokens == 1
            num_tokens = min(1, num_decodes) if is_decode else plan.share(seq)
            if num_tokens:
                end = seq.cache.num_computed_tokens + num_tokens
                if end > size * len(seq.cache.block_table) and not self._make_room(seq, end):
                    break
                if is_decode:
                    plan.decode(seq)
                    num_decodes -= 1
                else:
                    plan.give(seq, num_tokens)
            at += 1

    def _make_room(self, seq: Sequence, end: int) -> bool:
        """Reserve blocks up to `end`, preempting the last sequences as needed. False: it preempted itself."""
        while not self._allocate(seq, end):
            last = self.running[-1]
            self._preempt(last)
            if last is seq:
                return False
        return True

    def _allocate(self, seq: Sequence, end: int) -> bool:
        """Reserve blocks up to `end`, with those of resting sequences as needed. False: there are too few."""
        while not self.block_manager.allocate(seq.cache.block_table, end):
            other = next((one for one in self._resting if one is not seq), None)
            if other is None:
                return False
            del self._resting[other]
            self._give_up(other)
            self.num_preempted += 1
        return True

    def _admit(self, plan: StepPlan) -> None:
        """Let waiting sequences run while there are places, blocks and units."""
        places = self._places()
        while (
            plan.units >= 1
            and len(self.running) < self._config.max_num_seqs
            and (seq := self._next(places)) is not None
        ):
            if seq not in self._resting:
                self._reuse_blocks(seq)
            num_tokens = plan.share(seq)
            end = seq.cache.num_computed_tokens + num_tokens
            seq.place = places[seq.caller]
            may_begin = end == seq.num_tokens or self._num_partial(plan, seq.place) < MAX_PARTIAL_PREFILLS
            if not (may_begin and self._allocate(seq, end)):
                self._is_short_of_blocks = may_begin
                if seq not in self._resting:
                    self._give_up(seq)
                break
            self._resting.pop(seq, None)
            self._bursts.admit(seq)
            self._count(seq)
            self.waiting.dequeue(seq.caller, seq)
            self.running.append(seq)
            self._is_sorted = False
            places[seq.caller] += 1
            plan.give(seq, num_tokens)

    def _num_partial(self, plan: StepPlan, place: int) -> int:
        """Prompts that stay unfinished after this step, of sequences with this place or a better one."""
        return sum(s.place <= place and plan.end_of(s) < s.num_tokens for s in self.running)

    def _give_rest(self, plan: StepPlan) -> None:
        """Give the units that are left to the sequences that got less than they need."""
        for seq in plan.partial:
            if plan.units < 1:
                break
            num_tokens = plan.largest_share(seq)
            end = seq.cache.num_computed_tokens + num_tokens
            if end > plan.end_of(seq) and self.block_manager.allocate(seq.cache.block_table, end):
                plan.give(seq, num_tokens)

    def _preempt(self, seq: Sequence) -> None:
        if not self._may_preempt:
            raise _MayNotPreemptError
        self.give_up_place(seq)
        self._bursts.preempt(seq)
        self._give_up(seq)
        self.waiting.add(seq.caller, seq)
        self.num_preempted += 1

    def _give_up(self, seq: Sequence) -> None:
        self.block_manager.free(seq.cache.block_table)
        seq.cache.keep(0)

    def _count(self, seq: Sequence) -> None:
        # A prompt's other candidates, and preempted sequences, find blocks that were computed for themselves.
        if seq.is_first and not seq.cache.has_run:
            self.num_cache_queries += seq.num_prompt_tokens
            self.num_cache_hits += seq.cache.num_computed_tokens
            seq.group.num_cached_tokens += seq.cache.num_computed_tokens
        seq.cache.has_run = True

    def _reuse_blocks(self, seq: Sequence) -> None:
        # At least one token is always computed, to get the logits of the next one. Prompt tokens whose logits
        # give wanted logprobs are computed too.
        num_tokens = len(seq.prompt_logprobs) if seq.needs_prompt_logprobs else seq.num_tokens - 1
        num_blocks = num_tokens // (size := self.block_manager.block_size)
        if seq.group.num_public_tokens is None:
            seq.extend_hashes(size, num_blocks)
        else:  # a guard asks about a text again and again while the text grows
            kind = seq.group.secret, seq.group.num_public_tokens
            seq.cache.block_hashes = seq.cache.block_hashes or self._known_hashes.find(kind, seq.token_ids)
            seq.extend_hashes(size, num_blocks)
            self._known_hashes.keep(kind, seq.token_ids, seq.cache.block_hashes)
        self.block_manager.reuse(seq.cache.block_table, seq.cache.block_hashes[:num_blocks])
        seq.cache.num_computed_tokens = len(seq.cache.block_table) * size

    def _num_shareable_blocks(self, seq: Sequence) -> int:
        """Blocks of its prompt that the prompt's other candidates can share."""
        return (seq.num_prompt_tokens - 1) // self.block_manager.block_size

    def _let_followers_come(self, seq: Sequence) -> None:
        if num_blocks := self._num_shareable_blocks(seq):
            for follower in seq.followers:
                follower.cache.block_hashes = seq.cache.block_hashes[:num_blocks]
                follower.prompt_logprobs = list(seq.prompt_logprobs)
                self.waiting.add(follower.caller, follower)
