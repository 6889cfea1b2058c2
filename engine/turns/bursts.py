"""Requests that come together begin together.

A sequence that decodes is protected from prompts that came after it began to decode: they may delay its next
token only a little. A prompt that was there before is as old as the sequence, and still waits for its first
token. If it is short, it continues as if nothing decoded.

A prompt comes when there is a place for it, however long it has waited for one. While more requests wait than
can run, the streams that run are protected from all of them.
"""

import sys
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Protocol, TypeVar

NEVER = sys.maxsize
"""The number of a step that is not known yet."""


class Member(Protocol):
    """A sequence, as `Bursts` sees it."""

    arrival_step: int
    prefilled_step: int

    @property
    def caller(self) -> str: ...
    @property
    def num_uncomputed_tokens(self) -> int:
        """1 if it decodes."""


M = TypeVar("M", bound=Member)


class Bursts:
    """Records the step in which each sequence came and the step that computed its prompt. The scheduler
    reports both."""

    def __init__(self, max_num_seqs: int, max_num_seqs_per_caller: int) -> None:
        self._max_num_seqs = max_num_seqs
        self._max_num_seqs_per_caller = max_num_seqs_per_caller
        self._num_steps = 0

    def begin_step(self) -> None:
        self._num_steps += 1

    def add(self, seq: M, running: Sequence[M], waiting: Iterable[M], num_waiting: int) -> None:
        """Note a sequence that is going to wait. If it has a place, it came during the last step."""
        has_place = len(running) + num_waiting < self._max_num_seqs and (
            sum(one.caller == seq.caller for one in chain(running, waiting)) < self._max_num_seqs_per_caller
        )
        seq.arrival_step = self._num_steps if has_place else NEVER

    def admit(self, seq: M) -> None:
        """Note that the sequence has its place."""
        seq.arrival_step = min(seq.arrival_step, self._num_steps)

    def preempt(self, seq: M) -> None:
        """Note that the sequence has lost its place."""
        seq.arrival_step = NEVER

    def finish_prefill(self, seq: M) -> None:
        """Note that all tokens of the sequence are computed."""
        if seq.prefilled_step == NEVER:
            seq.prefilled_step = self._num_steps

    @staticmethod
    def unprotected_from(running: Sequence[M], waiting: M | None) -> list[M]:
        """The prompts among `running`, and `waiting`, that came before any that decodes began to decode."""
        first = min((seq.prefilled_step for seq in running if seq.num_uncomputed_tokens == 1), default=NEVER)
        prompts = [seq for seq in running if seq.prefilled_step == NEVER]
        if waiting is not None:
            prompts.append(waiting)
        return [seq for seq in prompts if seq.arrival_step <= first]
