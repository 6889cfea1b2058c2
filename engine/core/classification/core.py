"""Gives the logits of tokens, for labels, to texts that grow. One thread owns a `ClassifierCore`.

A text is a `SequenceGroup` with one sequence, of which no token is generated. The tokens of `begin` are its
prompt: texts of the same caller share the prompt's blocks. Blocks with later tokens are the text's alone,
since a block that is found could confirm a guess at text that hooks withheld.

The logits of a token lie beside its keys and values, in the same slot. A text that lost its blocks and finds
them again has their logits too, so a token never needs to be computed for them.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import replace
from itertools import accumulate
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from engine.core.classification.budget import JudgingBudget
from engine.core.isolation import attempt, run_what_fits
from engine.device.layout import TokenSpan
from engine.device.transfers import HostCopy
from engine.execution.model_runner import ModelRunner
from engine.models.heads import labels_of
from engine.protocol import EngineError, EngineStats, GenerationRequest
from engine.protocol.guard_models import Logits
from engine.protocol.options import EngineConfig
from engine.scheduling.block_hash import root_hash, unique_root
from engine.scheduling.metrics import EngineMetrics
from engine.scheduling.scheduler import Scheduler
from engine.scheduling.sequence import ScheduledSequence, Sequence, SequenceGroup
from engine.text.detokenizer import Detokenizer
from engine.text.tokenizer import LocalTokenizer

Output: TypeAlias = "tuple[SequenceGroup, Logits | EngineError]"
"""The logits of the tokens that a text was last fed. After an error, the text is closed."""


def new_text(config: EngineConfig, caller: str = "") -> SequenceGroup:
    """A new and empty text of the caller, for a core with this configuration."""
    request = GenerationRequest(request_id="", model="", endpoint="completions", caller=caller)
    root = root_hash(f"caller {caller}") if config.enable_prefix_caching else unique_root()
    return SequenceGroup(request, root_hash=root, secret=unique_root())


class ClassifierCore:
    """Computes the new tokens of all texts together, step by step. Between steps, texts get tokens by `begin`
    and `feed`, lose some by `truncate`, and leave by `close`."""

    begins_outputs = False

    def __init__(self, runner: ModelRunner, tokenizer: LocalTokenizer, config: EngineConfig) -> None:
        """Raises `ValueError` for a model without classification heads."""
        self.runner = runner
        self.labels = labels_of(config.model, runner.model.labels)
        step_budget = JudgingBudget(config.max_num_prefill_tokens)
        self.metrics = EngineMetrics(step_budget)
        self.scheduler = Scheduler(config, runner.kv_cache.num_blocks, step_budget)
        self.block_manager = self.scheduler.block_manager
        num_labels = sum(map(len, self.labels.values()))
        num_slots = self.block_manager.num_blocks * config.block_size
        self._logits = np.zeros((num_slots, num_labels), np.float32)
        """By slot, as the keys and values are."""
        self._first_wanted: dict[Sequence, int] = {}
        """The position of the first token that a text was last fed, until the logits are delivered."""
        self._tokenizer = tokenizer
        self._num_fed = 0
        self._num_closed_early = 0

    @property
    def has_work(self) -> bool:
        return bool(self.scheduler.running or self.scheduler.waiting)

    def begin(self, text: SequenceGroup, token_ids: Seq[int]) -> None:
        """Give an empty text its first tokens, at least one. Their logits are not delivered. Nothing happens
        if the text is closed."""
        if not text.is_aborted:
            self._compute(self._first(text, token_ids), len(token_ids))

    def feed(self, text: SequenceGroup, token_ids: Seq[int]) -> None:
        """Append tokens, at least one. Their logits come from a later step. Nothing happens if the text is
        closed."""
        if text.is_aborted:
            return
        seq = text.sequences[0] if text.sequences else self._first(text, ())
        self._first_wanted[seq] = seq.num_tokens
        seq.token_ids += token_ids
        seq.scheduled_at = 0.0
        self._compute(seq, len(token_ids))

    def _first(self, text: SequenceGroup, token_ids: Seq[int]) -> Sequence:
        return text.add(token_ids, max_tokens=0, detokenizer=Detokenizer(self._tokenizer.fast))

    def _compute(self, seq: Sequence, num_new: int) -> None:
        self._num_fed += num_new
        self.metrics.queue(seq)
        if seq not in self.scheduler.running and seq not in self.scheduler.waiting:
            self.scheduler.resume(seq)

    def truncate(self, text: SequenceGroup, num_tokens: int) -> None:
        """Keep only the first tokens. All tokens of the text must be computed."""
        for seq in text.sequences:
            del seq.token_ids[num_tokens:]
            seq.num_prompt_tokens = min(seq.num_prompt_tokens, num_tokens)
            self.scheduler.truncate(seq, num_tokens)

    def close(self, text: SequenceGroup) -> None:
        """Forget a text, and free its blocks. Closing twice is fine."""
        text.is_aborted = True
        for seq in text.sequences:
            self._num_closed_early += self._first_wanted.pop(seq, None) is not None
            self.scheduler.remove(seq)
        text.close()

    def step(self) -> list[Output]:
        """Compute new tokens. A text that fails gets an error; an exception ends the engine."""
        with self.metrics.step():
            scheduled = self.scheduler.schedule()
            if not scheduled:
                return []
            self.metrics.end_phase("schedule")
            self.metrics.begin(scheduled)
            ran = attempt(f"a step of {len(scheduled)} texts", run_what_fits, self._run, scheduled)
            if isinstance(ran, EngineError):
                return [self._fail(s.sequence.group) for s in scheduled]
            _, scheduled, dropped = ran
            self.metrics.end_phase("forward")
            for s in scheduled:
                self.scheduler.update(s)
            computed = [s.sequence for s in scheduled if not s.sequence.num_uncomputed_tokens]
            for seq in computed:
                self.scheduler.rest(seq)
            outputs = [self._fail(text) for text in dropped]
            outputs += [self._deliver(seq) for seq in computed if seq in self._first_wanted]
            self.metrics.end_phase("update")
        return outputs

    def stats(self) -> EngineStats:
        stats = self.metrics.stats(self.scheduler)
        return replace(stats, prompt_tokens_total=self._num_fed, aborted_total=self._num_closed_early)

    def _run(self, scheduled: Seq[ScheduledSequence]) -> None:
        """Compute the tokens, and keep their logits."""
        logits, _ = self.runner.run([_of_every_token(s) for s in scheduled])
        slots = [slot for s in scheduled for slot in self._slots(s.sequence, s.start, s.end)]
        self._logits[slots] = HostCopy([logits]).tensors()[0].numpy()

    def _deliver(self, seq: Sequence) -> Output:
        rows = self._logits[self._slots(seq, self._first_wanted.pop(seq), seq.num_tokens)]
        if not np.isfinite(rows).all():
            return self._fail(seq.group)
        return seq.group, by_group(rows, self.labels)

    def _fail(self, text: SequenceGroup) -> Output:
        self.close(text)
        return text, EngineError("The model failed to classify this text.")

    def _slots(self, seq: Sequence, start: int, end: int) -> list[int]:
        blocks, size = seq.cache.block_table, self.block_manager.block_size
        return [blocks[i // size] * size + i % size for i in range(start, end)]


def _of_every_token(s: ScheduledSequence) -> TokenSpan:
    """The share of a step, of which the logits of all tokens are wanted."""
    return TokenSpan(s.start, s.token_ids, s.block_table, num_samples=s.num_tokens)


def by_group(rows: npt.NDArray[np.float32], labels: Mapping[str, Seq[str]]) -> Logits:
    """`rows`: `[tokens, labels of all groups]`, the groups in the order of `labels`. They are not copied."""
    ends = accumulate(map(len, labels.values()))
    return {group: rows[:, end - len(labels[group]) : end] for group, end in zip(labels, ends, strict=True)}
