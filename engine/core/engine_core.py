"""The engine's loop body. One thread owns an `EngineCore`, and torch with it; all of it is synchronous."""

from collections import Counter
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import replace

from torch import Tensor

from engine.core.best_of import hold_candidates
from engine.core.drafting.draft_model import DraftModel
from engine.core.drafting.drafter import Drafter
from engine.core.in_flight import InFlight, InTurn, Turn
from engine.core.isolation import attempt, draw_apart, failure, out_of_memory, read_apart, run_what_fits
from engine.core.output_processor import OutputProcessor
from engine.device.transfers import HostCopy, on_device
from engine.execution.model_runner import ModelRunner
from engine.execution.step_scores import StepScores
from engine.models.heads import check_generates
from engine.protocol import Delta, EngineError, EngineStats, RequestError, Rewind
from engine.protocol.options import EngineConfig
from engine.sampling.logprobs import logprobs_of
from engine.sampling.sampler import Drawn, Sampled, Sampler
from engine.sampling.speculation import Speculation
from engine.scheduling.metrics import EngineMetrics
from engine.scheduling.scheduler import Scheduler
from engine.scheduling.sequence import ScheduledSequence, Sequence, SequenceGroup, going_ahead
from engine.scheduling.step_budget import StepBudget
from engine.text.tokenizer import LocalTokenizer

_FAILURES = EngineError, RequestError
Draw = tuple[Seq[Sequence], Drawn | EngineError]
"""The sequences of a draw, and their tokens on the device."""
Output = tuple[SequenceGroup, Delta | EngineError | RequestError]
"""A part of a request's answer. An error is the last part."""


class EngineCore:
    """Runs requests together, step by step. Between steps, a request joins with `add`, leaves with `leave`
    and is rewound with `rewind`."""

    def __init__(self, runner: ModelRunner, tokenizer: LocalTokenizer, config: EngineConfig) -> None:
        """Raises `ValueError` for a model that does not give the next token's logits."""
        check_generates(config.model, runner.model.labels)
        self.runner = runner
        self.sampler = Sampler(runner.device, logprobs_mode=config.logprobs_mode, seed=config.seed)
        step_budget = StepBudget(config.max_num_prefill_tokens)
        self.metrics = EngineMetrics(step_budget)
        self.scheduler = Scheduler(config, runner.kv_cache.num_blocks, step_budget)
        self.block_manager = self.scheduler.block_manager
        self.speculation = Speculation(
            config.num_speculative_tokens,
            config.prompt_lookup_min,
            config.prompt_lookup_max,
            has_lookup=config.speculative_method != "draft_model",
        )
        self.drafter = Drafter(
            self.speculation,
            self.block_manager,
            max_num_batched_tokens=config.max_num_batched_tokens,
            model=DraftModel.of(runner, config),
        )
        self.output_processor = OutputProcessor(tokenizer, runner.probes)
        self._scores = StepScores.of(runner.kv_cache)
        is_async = config.async_scheduling
        if is_async is None:
            is_async = runner.device.type == "cuda"
        self._always_in_turn = (
            InTurn.OFF if not is_async else InTurn.DRAFTS if config.num_speculative_tokens else None
        )
        self.in_turn = Counter[InTurn]()
        """The steps that did not go ahead, by the reason."""
        self._ahead: InFlight | None = None
        """The next step, if it runs while the tokens of the last one are read."""
        self.begins_outputs = False
        self._prompt_tokens_total = 0
        self._aborted_total = 0

    @property
    def has_work(self) -> bool:
        return bool(self.scheduler.running or self.scheduler.waiting)

    @property
    def _scoring(self) -> StepScores | None:
        """The scores of the steps. None: no probe scores tokens now."""
        return self._scores if self._scores is not None and self.runner.probe_heads is not None else None

    def step(self) -> list[Output]:
        """Schedule, run, sample, update. A request that fails gets an error; an exception ends the engine.

        The step that went ahead is sampled, if there is one. Before its tokens are read, the next step goes
        ahead, unless one of `InTurn` forbids it. So the device computes while the host makes text.
        """
        outputs: list[Output] = []
        self.begins_outputs = False
        with self.metrics.step():
            step, self._ahead = self._ahead, None
            if step is None:
                step = self._begin()
            else:
                self.metrics.begin(step.scheduled)
            for turn in step.turns(self.speculation):
                sampled = self._sample(turn)
                outputs += self._update(turn, sampled)
            return outputs + self._fail(step.errors)

    def add(self, group: SequenceGroup) -> None:
        self._prompt_tokens_total += group.num_prompt_tokens
        for seq in group.sequences:
            self.metrics.queue(seq)
            self.scheduler.add(seq)

    def abort(self, group: SequenceGroup) -> None:
        """Drop a request's unfinished sequences and free their blocks. Another abort does nothing."""
        if group.is_aborted or group.is_finished:
            return
        group.is_aborted = True
        self._aborted_total += 1
        for seq in group.sequences:
            self._remove(seq)

    def leave(self, group: SequenceGroup) -> None:
        """Forget a request that has no reader any more. It is aborted if it has not finished."""
        self.abort(group)
        group.close()

    def rewind(self, group: SequenceGroup, rewind: Rewind) -> None:
        """Rewind an output to an earlier token. A finished output runs again. Nothing happens if the
        request was aborted or has failed."""
        if group.is_aborted:
            return
        seq, banned = group.sequences[rewind.index], rewind.banned
        if banned is not None:
            banned = tuple(i for i in banned if 0 <= i < self.runner.vocab_size)
        seq.rewind(rewind.num_tokens, banned)
        self._leave_ahead(seq)
        self.scheduler.rewind(seq)

    def stats(self) -> EngineStats:
        return replace(
            self.metrics.stats(self.scheduler),
            prompt_tokens_total=self._prompt_tokens_total,
            generation_tokens_total=self.output_processor.num_generated_tokens,
            aborted_total=self._aborted_total,
            spec_decode_drafts_total=self.speculation.num_drafts,
            spec_decode_draft_tokens_total=self.speculation.num_draft_tokens,
            spec_decode_accepted_tokens_total=self.speculation.num_accepted_tokens,
        )

    def _begin(self) -> InFlight:
        """Plan a step, and have the model run it."""
        scheduled = self.scheduler.schedule()
        if not scheduled:  # the only sequence freed its own blocks
            return InFlight()
        self.metrics.end_phase("schedule")
        scheduled = self._draft(scheduled)
        self.metrics.end_phase("draft")
        self.metrics.begin(scheduled)
        ran = attempt(f"a step of {len(scheduled)} sequences", run_what_fits, self._run, scheduled)
        if isinstance(ran, EngineError):
            return InFlight(errors={s.sequence.group: failure() for s in scheduled})
        logits, scheduled, dropped = ran
        errors = {group: out_of_memory() for group in dropped}
        return InFlight(errors=errors) if logits is None else InFlight(scheduled, logits, errors)

    def _begin_ahead(self, turn: Turn, draws: Seq[Draw]) -> InTurn | None:
        """Have the model run the next step before the turn's tokens are read. Returns why it cannot."""
        if self._always_in_turn is not None:
            return self._always_in_turn
        if self._scoring is not None:
            return InTurn.PROBES
        drawn = draws[0][1] if draws else None
        if len(draws) > 1 or isinstance(drawn, EngineError):
            return InTurn.FAILED_DRAW
        token_ids = None if drawn is None else drawn.token_ids
        with going_ahead(turn.sequences):
            for s in turn.scheduled:
                if s.is_last:
                    self.scheduler.give_up_place(s.sequence)
            scheduled = self.scheduler.schedule_ahead()
            self.metrics.end_phase("schedule")
            if scheduled is None:
                return InTurn.MUST_GIVE_WAY
            if not scheduled:
                return InTurn.SHORT_OF_BLOCKS if self.has_work else None
            # If it fails, it runs again in turn, and fails those that are at fault.
            logits = attempt("a step ahead", self._run, scheduled, token_ids)
            if isinstance(logits, EngineError):
                return InTurn.FAILED_AHEAD
            self._ahead = InFlight(scheduled, logits)
        return None

    def _draft(self, scheduled: list[ScheduledSequence]) -> list[ScheduledSequence]:
        """Add drafts to the step. Without them, it gives the same tokens."""
        if not self.speculation.num_speculative_tokens:
            return scheduled
        drafted = attempt("a draft", self.drafter.add_drafts, scheduled)
        return scheduled if isinstance(drafted, EngineError) else drafted

    def _run(self, scheduled: Seq[ScheduledSequence], drawn: Tensor | None = None) -> Tensor:
        """`num_samples` rows of logits for each sequence, `[rows, vocab]`. `drawn`: see `ModelRunner.run`."""
        logits, prompt_logits = self.runner.run(scheduled, drawn)
        self.metrics.end_phase("forward")
        if (scores := self._scoring) is not None:
            scores.begin(scheduled)
        _keep_prompt_logprobs(prompt_logits, scheduled)
        for s in scheduled:
            self.scheduler.update(s)
        return logits

    def _sample(self, turn: Turn) -> dict[Sequence, Sampled]:
        """A token for each sequence that draws one, or the reason why it has none."""
        draws = draw_apart(self.sampler, turn.logits, turn.rows, turn.sequences)
        computed = None if draws else HostCopy([turn.logits])
        self.metrics.end_phase("sample")
        if (reason := self._begin_ahead(turn, draws)) is not None:
            self.in_turn[reason] += 1
        if computed is not None:
            computed.tensors()  # nothing is read, so nothing else waits for the device
        sampled = {seq: one for draw in draws for seq, one in read_apart(*draw).items()}
        self.metrics.end_phase("sample")
        return sampled

    def _update(self, turn: Turn, sampled: Mapping[Sequence, Sampled]) -> list[Output]:
        """Append each sequence's sampled token."""
        deltas: list[tuple[SequenceGroup, Delta]] = []
        failed: dict[SequenceGroup, EngineError | RequestError] = {}
        scores = self._scoring
        for s in turn.scheduled:
            seq = s.sequence
            self.scheduler.update(s)
            if s.end < seq.num_tokens:
                continue
            had_begun = seq.has_begun
            advanced = attempt("one sequence", self._advance, s, sampled.get(seq), scores)
            self.begins_outputs |= seq.has_begun and not had_begun
            if isinstance(advanced, _FAILURES):
                failed[seq.group] = advanced
            else:
                deltas += [(seq.group, delta) for delta in advanced]
            self.metrics.advance(seq)
            if seq.is_done:
                self._remove(seq)
        if failed:
            deltas = [(group, delta) for group, delta in deltas if group not in failed]
        outputs = [*hold_candidates(deltas), *self._fail(failed)]
        self.metrics.end_phase("update")
        return outputs

    def _remove(self, seq: Sequence) -> None:
        self._leave_ahead(seq)
        self.scheduler.remove(seq)

    def _leave_ahead(self, seq: Sequence) -> None:
        if self._ahead is not None:
            self._ahead.leave(seq)
            if self._ahead.is_empty:
                self._ahead = None

    def _advance(
        self, s: ScheduledSequence, sampled: Sampled, scores: StepScores | None
    ) -> list[Delta] | RequestError:
        if scores is not None:
            scores.give(s)
        if isinstance(sampled, RequestError):
            return sampled
        return self.output_processor.advance(s.sequence, sampled)

    def _fail(self, groups: Mapping[SequenceGroup, EngineError | RequestError]) -> list[Output]:
        for group in groups:
            self.abort(group)
        return list(groups.items())


def _keep_prompt_logprobs(logits: Tensor, scheduled: Seq[ScheduledSequence]) -> None:
    """Give each sequence the logprobs of the prompt tokens in its `prompt_logprob_positions`. If it raises,
    no sequence has got any."""
    row = 0
    found = []
    for s in scheduled:
        if positions := s.prompt_logprob_positions:
            seq, rows = s.sequence, slice(row, row + len(positions))
            row = rows.stop
            ids = seq.token_ids[positions.start + 1 : positions.stop + 1]
            num_top = [seq.group.request.num_prompt_logprobs or 0] * len(positions)
            chosen = on_device(ids, logits.device)
            found.append((seq, logprobs_of(logits[rows], chosen, num_top, ranked=True)))
    for seq, logprobs in found:
        seq.prompt_logprobs += logprobs
