"""The engine's loop body. One thread owns an `EngineCore`, and torch with it; all of it is synchronous."""

import logging
import time
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from itertools import accumulate, chain, repeat

import torch

from engine.config import EngineConfig
from engine.core.block_manager import BlockManager
from engine.core.metrics import EngineMetrics
from engine.core.scheduler import ScheduledSequence, Scheduler
from engine.core.sequence import Logprobs, Sequence, SequenceGroup
from engine.core.step_budget import StepBudget
from engine.execution.model_runner import ModelRunner
from engine.protocol import (
    Channel,
    Delta,
    EngineError,
    EngineStats,
    LogitsProcessorError,
    Rewind,
    Token,
    TopLogprob,
)
from engine.sampling.best_of import best_candidates
from engine.sampling.sampler import Sampled, Sampler, logprobs_of
from engine.sampling.speculation import Speculation
from engine.text.tokenizer import LocalTokenizer

logger = logging.getLogger("weir.engine")

Output = tuple[SequenceGroup, Delta | EngineError]
"""What a step has to say to a request. An error is the last thing it hears."""


class EngineCore:
    """Requests join with `add`, leave with `abort` and go back with `rewind`, between steps; a `step` takes
    all that run further."""

    def __init__(self, runner: ModelRunner, tokenizer: LocalTokenizer, config: EngineConfig) -> None:
        self.runner = runner
        self.tokenizer = tokenizer
        self.sampler = Sampler(runner.device, logprobs_mode=config.logprobs_mode, seed=config.seed)
        self.block_manager = BlockManager(runner.kv_cache.num_blocks, config.block_size)
        self.speculation = Speculation(
            config.num_speculative_tokens, config.prompt_lookup_min, config.prompt_lookup_max
        )
        self.step_budget = StepBudget(config.max_num_prefill_tokens)
        self.scheduler = Scheduler(
            self.block_manager,
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
            step_budget=self.step_budget,
            speculation=self.speculation,
        )
        self.metrics = EngineMetrics()
        self._prompt_tokens_total = 0
        self._generation_tokens_total = 0
        self._aborted_total = 0
        self._steps_total = 0

    @property
    def has_work(self) -> bool:
        return bool(self.scheduler.running or self.scheduler.waiting)

    def add(self, group: SequenceGroup) -> None:
        self._prompt_tokens_total += group.num_prompt_tokens
        for seq in group.sequences:
            self.metrics.queue(seq)
            self.scheduler.add(seq)

    def abort(self, group: SequenceGroup) -> None:
        """Drop what is not finished of a request, and free its blocks at once. Once is enough."""
        if group.is_aborted or group.is_finished:
            return
        group.is_aborted = True
        self._aborted_total += 1
        for seq in group.sequences:
            self.scheduler.remove(seq)

    def rewind(self, group: SequenceGroup, rewind: Rewind) -> None:
        """Take an output back to an earlier token. One that had finished runs again, unless its request was
        aborted or has failed."""
        if group.is_aborted:
            return
        seq, banned = group.sequences[rewind.index], rewind.banned
        if banned is not None:
            banned = tuple(i for i in banned if 0 <= i < self.runner.vocab_size)
        seq.rewind(rewind.num_tokens, banned)
        self.scheduler.rewind(seq)

    def step(self) -> list[Output]:
        """Schedule, run, sample, update. What fails a request is an `Output`; what is raised is fatal."""
        self.metrics.begin_step()
        started = time.perf_counter()
        scheduled = self.scheduler.schedule()
        if not scheduled:  # the last to need blocks gave up its own: there are some now
            return []
        self.metrics.end_phase("schedule")
        self.metrics.schedule(scheduled)
        num_decodes = sum(s.is_decode for s in scheduled)
        num_tokens = sum(s.end - s.start for s in scheduled)
        outputs = self._run(scheduled)
        self._steps_total += 1
        self.step_budget.observe(num_decodes, num_tokens - num_decodes, time.perf_counter() - started)
        return outputs

    def _run(self, scheduled: list[ScheduledSequence]) -> list[Output]:
        try:
            logits, prompt_logits = self.runner.run(scheduled)
            self.metrics.end_phase("forward")
            self.settle_prompts(prompt_logits, scheduled)
        except torch.AcceleratorError:
            # The device's state is lost, and with it every later step.
            raise
        except Exception:
            logger.exception("a step of %d sequences failed", len(scheduled))
            return self._fail({s.sequence.group: _failure() for s in scheduled})
        return self._settle(scheduled, logits)

    def _settle(self, scheduled: list[ScheduledSequence], logits: torch.Tensor) -> list[Output]:
        """Give each sequence its token, and while that is what its draft foretold, the next one too."""
        outputs: list[Output] = []
        first_rows = accumulate((s.num_samples for s in scheduled), initial=0)
        turn = list(zip(scheduled, first_rows, strict=False))
        while turn:
            drawn = [(s.sequence, row) for s, row in turn if s.is_sampled]
            sampled = self.sample(_take(logits, [row for _, row in drawn]), [seq for seq, _ in drawn])
            self.metrics.end_phase("sample")
            outputs += self.update([s for s, _ in turn], sampled)
            self.metrics.end_phase("update")
            turn = [(follower, row + 1) for s, row in turn if (follower := _foretold(s))]
            self.speculation.num_accepted_tokens += len(turn)
        return outputs

    def sample(self, logits: torch.Tensor, sequences: Seq[Sequence]) -> dict[Sequence, Sampled]:
        """A token for each sequence, or why there is none. If a batch fails, its halves try."""
        if not sequences:
            return {}
        try:
            return dict(zip(sequences, self.sampler.sample(logits, sequences), strict=True))
        except torch.AcceleratorError:
            raise
        except Exception:
            if len(sequences) == 1:
                logger.exception("sampling failed for one sequence")
                return {sequences[0]: None}
            halves = slice(len(sequences) // 2), slice(len(sequences) // 2, None)
            return {
                s: token for half in halves for s, token in self.sample(logits[half], sequences[half]).items()
            }

    def settle_prompts(self, logits: torch.Tensor, scheduled: Seq[ScheduledSequence]) -> None:
        """Keep the logprobs that the step found for prompt tokens."""
        row = 0
        for s in scheduled:
            if positions := s.prompt_logprob_positions:
                seq, rows = s.sequence, slice(row, row + len(positions))
                row = rows.stop
                targets = torch.tensor(
                    seq.token_ids[positions.start + 1 : positions.stop + 1], device=logits.device
                )
                num_top = [seq.sampling.logprobs or 0] * len(positions)
                seq.prompt_logprobs += logprobs_of(logits[rows], targets, num_top)

    def update(self, scheduled: Seq[ScheduledSequence], sampled: dict[Sequence, Sampled]) -> list[Output]:
        """Move every sequence on, and say what came of it."""
        outputs: list[tuple[SequenceGroup, Delta]] = []
        failed: dict[SequenceGroup, EngineError] = {}
        for s in scheduled:
            seq = s.sequence
            self.scheduler.update(s)
            if seq.num_uncomputed_tokens:
                continue
            try:
                outputs += [(seq.group, delta) for delta in self._advance(seq, sampled.get(seq))]
            except LogitsProcessorError as error:
                failed[seq.group] = error
            except Exception:
                logger.exception("one sequence failed")
                failed[seq.group] = _failure()
            self.metrics.advance(seq)
            if seq.finish_reason:
                self.scheduler.remove(seq)
        return self._given([o for o in outputs if o[0] not in failed]) + self._fail(failed)

    def _given(self, outputs: list[tuple[SequenceGroup, Delta]]) -> list[Output]:
        """Keep back what is a candidate's, until its request has all of them and gives the best."""
        given: list[Output] = []
        chosen: dict[SequenceGroup, None] = {}
        for group, delta in outputs:
            if group.has_choice:
                group.sequences[delta.index].kept.append(delta)
                if delta.finish_reason and group.is_finished:
                    chosen[group] = None
            else:
                given.append((group, delta))
        return given + [(group, delta) for group in chosen for delta in best_candidates(group)]

    def stats(self) -> EngineStats:
        return EngineStats(
            num_running=len({seq.group for seq in self.scheduler.running}),
            num_waiting=len({seq.group for seq in self.scheduler.waiting}),
            prompt_tokens_total=self._prompt_tokens_total,
            generation_tokens_total=self._generation_tokens_total,
            aborted_total=self._aborted_total,
            steps_total=self._steps_total,
            preemptions_total=self.scheduler.num_preempted,
            prefix_cache_queries_total=self.scheduler.num_cache_queries,
            prefix_cache_hits_total=self.scheduler.num_cache_hits,
            spec_decode_drafts_total=self.speculation.num_drafts,
            spec_decode_draft_tokens_total=self.speculation.num_draft_tokens,
            spec_decode_accepted_tokens_total=self.speculation.num_accepted_tokens,
            kv_blocks_used=self.block_manager.num_used,
            kv_blocks=self.block_manager.num_blocks,
            step_seconds=self.metrics.step_seconds,
            histograms=self.metrics.histograms,
        )

    def _advance(self, seq: Sequence, sampled: Sampled) -> Iterator[Delta]:
        """All of the sequence is computed: give its echo if it is due, and take the token drawn."""
        if seq.echo_texts is not None:
            echo = self._echo_tokens(seq, seq.echo_texts)
            seq.echo_texts = None
            yield self._delta(seq, echo, channel="echo")
        tokens: tuple[Token, ...] = ()
        stop_reason: str | int | None = None
        if seq.num_output_tokens == seq.max_tokens:  # it may have none, or was rewound to all that it may
            seq.finish_reason = "length"
        elif isinstance(sampled, LogitsProcessorError):
            raise sampled
        elif sampled is None:
            raise ValueError("no token can be drawn: all are masked, or the logits are not numbers")
        else:
            self._generation_tokens_total += 1
            seq.group.num_output_tokens += 1
            seq.token_ids.append(sampled.id)
            if sampled.logprobs is not None:
                seq.cumulative_logprob += sampled.logprobs.logprob
            logprobs = None if seq.sampling.logprobs is None else sampled.logprobs
            tokens, stop_reason = self._append(seq, self._token(sampled.id, logprobs))
        if tokens or seq.finish_reason:
            yield self._delta(seq, tokens, stop_reason=stop_reason)

    def _append(self, seq: Sequence, token: Token) -> tuple[tuple[Token, ...], str | int | None]:
        """The tokens that the new one decides, and what ended the output, if it was not its length."""
        if token.id in seq.eos_token_ids or token.id in seq.sampling.stop_token_ids:
            seq.finish_reason = "stop"
            tokens = seq.detokenizer.flush()
            stop_reason = None if token.id in seq.eos_token_ids else token.id
            if stop_reason is None or token.id in self.tokenizer.special_ids:
                return (*tokens, token), stop_reason
            # Like a stop string, it is not given: it stands for text, which no hook was shown.
            return tokens, stop_reason
        may_stop = seq.num_output_tokens > seq.sampling.min_tokens
        tokens = seq.detokenizer.decode(token, may_stop=may_stop)
        if seq.detokenizer.stopped is not None:
            seq.finish_reason = "stop"
        elif seq.num_output_tokens == seq.max_tokens:
            seq.finish_reason = "length"
            tokens += seq.detokenizer.flush()
        return tokens, seq.detokenizer.stopped

    def _echo_tokens(self, seq: Sequence, texts: tuple[str, ...]) -> tuple[Token, ...]:
        # Nothing foretold the first; without logprobs asked for, none of the others either.
        logprobs = chain([None], seq.prompt_logprobs, repeat(None))
        return tuple(map(self._token, seq.token_ids, logprobs, texts))

    def _token(self, token_id: int, logprobs: Logprobs | None, text: str = "") -> Token:
        raw = self.tokenizer.raw
        if logprobs is None:
            return Token(token_id, text, raw(token_id))
        top = tuple(TopLogprob(i, raw(i), logprob) for i, logprob in logprobs.top)
        return Token(token_id, text, raw(token_id), logprobs.logprob, top)

    def _delta(
        self,
        seq: Sequence,
        tokens: tuple[Token, ...],
        *,
        channel: Channel = "content",
        stop_reason: str | int | None = None,
    ) -> Delta:
        is_first, seq.has_begun = not seq.has_begun, True
        return Delta(
            index=seq.index,
            text="".join(token.text for token in tokens),
            tokens=tokens,
            channel=channel,
            finish_reason=None if channel == "echo" else seq.finish_reason,
            stop_reason=stop_reason,
            prompt_token_ids=tuple(seq.prompt_token_ids) if is_first else None,
            usage=seq.group.usage,
        )

    def _fail(self, groups: dict[SequenceGroup, EngineError]) -> list[Output]:
        for group in groups:
            self.abort(group)
        return list(groups.items())


def _failure() -> EngineError:
    return EngineError("The engine failed to generate this output.")


def _take(logits: torch.Tensor, rows: list[int]) -> torch.Tensor:
    """Those rows; nothing is copied if they are all."""
    return logits if len(rows) == len(logits) else logits[rows]


def _foretold(s: ScheduledSequence) -> ScheduledSequence | None:
    """If the token drawn is the one that the draft says, that is computed as well: like a step of its own."""
    seq = s.sequence
    goes_on = seq.finish_reason is None and not seq.group.is_aborted
    if goes_on and s.draft and seq.token_ids[s.end :] == [s.draft[0]]:
        return ScheduledSequence(seq, s.end, s.end + 1, s.draft[1:])
    return None
