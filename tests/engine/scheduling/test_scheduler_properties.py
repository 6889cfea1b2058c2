"""Whatever requests come and leave, a sequence reads the keys and values of its own text, and all finish.

No model runs. Instead of keys and values, a slot of the cache holds the text they would be computed from: all
tokens up to their own, and the root that says who may share them. A mixture of two texts or salts is found.
The draft model has a memory of its own, and is tested in the same way.
"""

from collections.abc import Sequence as Seq
from dataclasses import replace
from typing import Any, cast

import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from engine.core.drafting.draft_cache import DraftCache
from engine.core.drafting.draft_model import DraftModel, DraftSpan
from engine.core.drafting.drafter import Drafter
from engine.protocol import GenerationRequest, SamplingParams
from engine.protocol.options import EngineConfig
from engine.sampling.sampling_state import Logprobs
from engine.sampling.speculation import Speculation
from engine.scheduling.block_hash import root_hash, unique_root
from engine.scheduling.prompt_cost import num_attended
from engine.scheduling.scheduler import Scheduler
from engine.scheduling.sequence import ScheduledSequence, Sequence, SequenceGroup
from engine.scheduling.step_budget import StepBudget
from tests.engine.core.block_accounting import check_blocks
from tests.helpers import examples

BLOCK_SIZE = 4
NUM_BLOCKS = 10
MAX_NUM_SEQS = 4
MAX_TOKENS = 12

TOKENS = st.integers(0, 1)
# There are few openings, so that many texts begin alike.
PROMPTS = st.tuples(
    st.sampled_from([[], [0] * 8, [0] * 13, [0, 1] * 10]), st.lists(TOKENS, min_size=1, max_size=8)
).map(lambda parts: parts[0] + parts[1])

Content = tuple[bytes, tuple[int, ...]]


class DraftRunner:
    """Stands in for the draft model: it checks what it reads, and guesses one token or another."""

    max_model_len = 45

    def __init__(self) -> None:
        self.memory: dict[int, Content] = {}
        self.guesses: dict[Sequence, list[int]] = {}
        self.num_runs = 0

    def run(
        self, spans: Seq[DraftSpan], drawn: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        self.num_runs += 1
        if drawn is not None:
            rows = [span.drawn_row for span in spans]
            assert all(row is not None for row in rows), "a guess is known on the device only"
            spans = [replace(span, token_ids=[int(drawn[span.drawn_row or 0])]) for span in spans]
        for span in spans:
            text = self.text_of(span)
            for position in range(len(text)):
                content = span.sequence.group.root_hash, tuple(text[: position + 1])
                slot = span.block_table[position // BLOCK_SIZE] * BLOCK_SIZE + position % BLOCK_SIZE
                if position >= span.start:
                    self.memory[slot] = content
                assert self.memory.get(slot) == content
        num_samples = sum(span.num_samples for span in spans)
        guesses = torch.tensor([(self.num_runs // 3 + i) % 2 for i in range(num_samples)], dtype=torch.int64)
        return torch.nn.functional.one_hot(guesses, 2).float(), torch.empty(0, 2)

    def text_of(self, span: DraftSpan) -> list[int]:
        """The tokens up to the span's last one."""
        seq = span.sequence
        if span.start < seq.num_tokens:
            self.guesses[seq] = []
            text = seq.token_ids[: span.start + span.num_tokens]
            assert list(span.token_ids) == text[span.start :]
            return text
        self.guesses[seq] += span.token_ids
        assert span.start + 1 == seq.num_tokens + len(self.guesses[seq])
        return seq.token_ids + self.guesses[seq]


class NoText:
    """Stands in for a detokenizer."""

    def rewound(self, token_ids: list[int], num_output_tokens: int) -> "NoText":
        return self


class Machine(RuleBasedStateMachine):
    @initialize(
        max_num_batched_tokens=st.integers(1, 40),
        is_caching=st.booleans(),
        num_speculative_tokens=st.sampled_from([0, 3]),
    )
    def start(self, max_num_batched_tokens: int, is_caching: bool, num_speculative_tokens: int) -> None:
        self.begin(max_num_batched_tokens, is_caching, Speculation(num_speculative_tokens))

    def begin(self, max_num_batched_tokens: int, is_caching: bool, speculation: Speculation) -> None:
        self.step_budget = StepBudget()
        self.max_num_batched_tokens = max_num_batched_tokens
        config = EngineConfig(
            block_size=BLOCK_SIZE, max_num_seqs=MAX_NUM_SEQS, max_num_batched_tokens=max_num_batched_tokens
        )
        self.scheduler = Scheduler(config, NUM_BLOCKS, self.step_budget)
        self.drafter = Drafter(
            speculation,
            self.scheduler.block_manager,
            max_num_batched_tokens=max_num_batched_tokens,
            model=self.draft_model(max_num_batched_tokens),
        )
        self.is_caching = is_caching
        self.memory: dict[int, Content] = {}
        self.groups: list[SequenceGroup] = []

    def draft_model(self, max_num_batched_tokens: int) -> DraftModel | None:
        return None

    @rule(
        prompts=st.lists(PROMPTS, min_size=1, max_size=2),
        n=st.integers(1, 3),
        max_tokens=st.integers(0, MAX_TOKENS),
        priority=st.integers(-1, 1),
        caller=st.sampled_from("abc"),
        salt=st.sampled_from([None, "a"]),
        has_prompt_logprobs=st.booleans(),
    )
    def come(
        self,
        prompts: list[list[int]],
        n: int,
        max_tokens: int,
        priority: int,
        caller: str,
        salt: str | None,
        has_prompt_logprobs: bool,
    ) -> None:
        request = GenerationRequest(
            request_id="r",
            model="m",
            endpoint="completions",
            sampling=SamplingParams(n=n, logprobs=0),
            priority=priority,
            caller=caller,
        )
        group = SequenceGroup(request, root_hash=root_hash(salt) if self.is_caching else unique_root())
        for prompt in prompts:
            for _ in range(n):
                group.add(
                    prompt,
                    max_tokens=max_tokens,
                    detokenizer=NoText(),  # type: ignore[arg-type]
                    echo_texts=("x",) * len(prompt) if has_prompt_logprobs else None,
                )
        for seq in group.sequences:
            self.scheduler.add(seq)
        self.groups.append(group)

    @precondition(lambda self: self.groups)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        group = self.groups.pop(data.draw(st.integers(0, len(self.groups) - 1)))
        for seq in group.sequences:
            self.scheduler.remove(seq)

    @precondition(lambda self: any(s.has_begun for g in self.groups for s in g.sequences))
    @rule(data=st.data())
    def go_back(self, data: st.DataObject) -> None:
        begun = [s for group in self.groups for s in group.sequences if s.has_begun]
        seq = data.draw(st.sampled_from(begun))
        seq.rewind(data.draw(st.integers(0, seq.num_output_tokens)))
        self.scheduler.rewind(seq)

    @rule(token=TOKENS, seconds=st.floats(0, 1), times=st.integers(1, 5))
    def go_on(self, token: int, seconds: float, times: int) -> None:
        for _ in range(times):
            self.step(token, seconds)

    def step(self, token: int, seconds: float) -> None:
        scheduled = self.drafter.add_drafts(self.scheduler.schedule())
        lengths = [s.end - s.start for s in scheduled]
        assert sum(s.num_tokens for s in scheduled) <= self.max_num_batched_tokens
        assert sorted(lengths, key=lambda n: n > 1) == lengths
        assert len({s.sequence for s in scheduled}) == len(scheduled)
        for s in scheduled:
            self.write(s)
        for s in scheduled:
            self.read(s.sequence, s.end)
        num_decodes = sum(s.is_decode for s in scheduled)
        attended = sum(num_attended(s.end - s.start, s.start) for s in scheduled if not s.is_decode)
        self.step_budget.observe(num_decodes, sum(lengths) - num_decodes, seconds, attended)
        for s in scheduled:
            self.settle(s, token)
        self.groups = [g for g in self.groups if not g.is_finished]

    def write(self, s: ScheduledSequence) -> None:
        seq = s.sequence
        assert s.start == seq.cache.num_computed_tokens < s.end <= seq.num_tokens
        others = [q.cache.block_table for q in self.scheduler.running if q is not seq]
        text = seq.token_ids[: s.end] + list(s.draft)
        for position in range(s.start, len(text)):
            block = seq.cache.block_table[position // BLOCK_SIZE]
            assert not any(block in table for table in others), "a shared block is not written"
            slot = block * BLOCK_SIZE + position % BLOCK_SIZE
            self.memory[slot] = seq.group.root_hash, tuple(text[: position + 1])

    def read(self, seq: Sequence, end: int) -> None:
        for position in range(end):
            slot = seq.cache.block_table[position // BLOCK_SIZE] * BLOCK_SIZE + position % BLOCK_SIZE
            assert self.memory[slot] == (seq.group.root_hash, tuple(seq.token_ids[: position + 1]))

    def settle(self, s: ScheduledSequence, token: int) -> None:
        seq = s.sequence
        is_sampled = s.is_sampled
        for position in s.prompt_logprob_positions:
            assert position == len(seq.prompt_logprobs)
            seq.prompt_logprobs.append(Logprobs(0.0, []))
        self.scheduler.update(s)
        if seq.num_uncomputed_tokens:
            return
        assert not seq.needs_prompt_logprobs
        seq.has_begun = True
        if is_sampled:
            seq.token_ids.append(token)
        self.end_or_go_on(s, token)

    def end_or_go_on(self, s: ScheduledSequence, token: int) -> None:
        seq = s.sequence
        if seq.num_output_tokens == seq.max_tokens:
            seq.finish_reason = "length"
            self.scheduler.remove(seq)
        elif s.draft[:1] == (token,):
            self.settle(ScheduledSequence(seq, s.end, s.end + 1, s.draft[1:]), token)

    @invariant()
    def all_blocks_are_accounted_for(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        scheduler = self.scheduler
        owners = [*scheduler.running, *scheduler._resting]
        check_blocks(scheduler.block_manager, [s.cache.block_table for s in owners])
        assert len(scheduler.running) <= MAX_NUM_SEQS
        ranks = [s.rank for s in (*scheduler.running, *scheduler.waiting)]
        assert len(set(ranks)) == len(ranks)
        without = [s for s in scheduler.waiting if s not in scheduler._resting]
        assert not any(s.cache.block_table or s.cache.num_computed_tokens for s in without)
        for seq in owners:
            self.read(seq, seq.cache.num_computed_tokens)

    def teardown(self) -> None:
        if not hasattr(self, "scheduler"):
            return
        steps = 0
        while self.groups:
            assert self.scheduler.running or self.scheduler.waiting, "a sequence was forgotten"
            self.step(0, 0.1)
            steps += 1
            assert steps < 10_000, "no sequence ends"
        assert self.scheduler.running == list(self.scheduler.waiting) == []
        assert self.scheduler.block_manager.num_used == 0


class MachineWithDraftModel(Machine):
    @initialize(
        max_num_batched_tokens=st.integers(10, 40), is_caching=st.booleans(), has_lookup=st.booleans()
    )
    def start(self, max_num_batched_tokens: int, is_caching: bool, has_lookup: bool) -> None:
        self.begin(max_num_batched_tokens, is_caching, Speculation(3, has_lookup=has_lookup))

    def draft_model(self, max_num_batched_tokens: int) -> DraftModel:
        cache = DraftCache(NUM_BLOCKS, BLOCK_SIZE)
        return DraftModel(
            cast(Any, DraftRunner()), cache, vocab_size=2, max_num_batched_tokens=max_num_batched_tokens
        )


class MachineWithTexts(Machine):
    """Texts that get their tokens little by little rest in between, beside the requests."""

    texts: list[Sequence]

    def begin(self, *arguments: Any) -> None:
        super().begin(*arguments)
        self.texts = []

    @rule(prompt=PROMPTS, caller=st.sampled_from("ab"))
    def open_text(self, prompt: list[int], caller: str) -> None:
        request = GenerationRequest(request_id="r", model="m", endpoint="completions", caller=caller)
        root = root_hash(None) if self.is_caching else unique_root()
        group = SequenceGroup(request, root_hash=root, secret=unique_root())
        seq = group.add(prompt, max_tokens=0, detokenizer=NoText())  # type: ignore[arg-type]
        self.texts.append(seq)
        self.scheduler.resume(seq)

    @precondition(lambda self: self.at_rest())
    @rule(data=st.data(), tokens=st.lists(TOKENS, min_size=1, max_size=6), num_taken_back=st.integers(0, 9))
    def feed(self, data: st.DataObject, tokens: list[int], num_taken_back: int) -> None:
        seq = data.draw(st.sampled_from(self.at_rest()))
        num_kept = max(0, seq.num_tokens - num_taken_back)
        del seq.token_ids[num_kept:]
        seq.num_prompt_tokens = min(seq.num_prompt_tokens, num_kept)
        self.scheduler.truncate(seq, num_kept)
        if seq.num_tokens + len(tokens) <= NUM_BLOCKS * BLOCK_SIZE:
            seq.token_ids += tokens
            self.scheduler.resume(seq)

    @precondition(lambda self: self.texts)
    @rule(data=st.data())
    def close_text(self, data: st.DataObject) -> None:
        self.scheduler.remove(self.texts.pop(data.draw(st.integers(0, len(self.texts) - 1))))

    def at_rest(self) -> list[Sequence]:
        busy = [*self.scheduler.running, *self.scheduler.waiting]
        return [seq for seq in self.texts if seq not in busy]

    def end_or_go_on(self, s: ScheduledSequence, token: int) -> None:
        if s.sequence in self.texts:
            self.scheduler.rest(s.sequence)
        else:
            super().end_or_go_on(s, token)

    def teardown(self) -> None:
        if hasattr(self, "scheduler"):
            for _ in range(200):
                self.step(0, 0.1)
            assert self.at_rest() == self.texts
            while self.texts:
                self.scheduler.remove(self.texts.pop())
        super().teardown()


TestWithTexts = MachineWithTexts.TestCase
TestWithTexts.settings = settings(examples(60), stateful_step_count=40)
TestWithDraftModel = MachineWithDraftModel.TestCase
TestWithDraftModel.settings = settings(examples(100), stateful_step_count=40)
TestSchedulerProperties = Machine.TestCase
TestSchedulerProperties.settings = settings(examples(60), stateful_step_count=40)
