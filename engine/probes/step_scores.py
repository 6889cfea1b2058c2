"""The scores that a step gives to sequences. They stand in the cache, beside the keys and values.

A sequence that a step computes to its end gets the scores of all its tokens that have none yet. After a
prompt, these are the prompt's, those found in the cache included. After a decoded token, it is this one, and
tokens of a draft that came true.
"""

from collections.abc import Sequence as Seq
from math import isfinite

from engine.core.sequence import ScheduledSequence, Sequence
from engine.execution.model_runner import HostScores, ModelRunner
from engine.protocol import Scores


class StepScores:
    """The scores of one step, which the model has run."""

    def __init__(self, runner: ModelRunner, scheduled: Seq[ScheduledSequence]) -> None:
        size = runner.kv_cache.block_size
        slots: list[int] = []
        self._first_rows: dict[Sequence, int] = {}
        """The place of a sequence's first new scores."""
        for s in scheduled:
            seq = s.sequence
            if s.end == seq.num_tokens:
                self._first_rows[seq] = len(slots) - len(seq.scores)
                places = range(len(seq.scores), s.end + len(s.draft))
                slots += [s.block_table[i // size] * size + i % size for i in places]
        self._arriving: HostScores | None = runner.scores_at(slots) if slots else None
        self._rows: list[Scores] = []

    def give(self, s: ScheduledSequence) -> None:
        """Give the sequence the scores of its tokens up to the end of its share. Raises `ValueError` for
        scores that are not finite."""
        if self._arriving is not None:
            self._rows, self._arriving = self._arriving.rows(), None
        first, seq = self._first_rows[s.sequence], s.sequence
        new = self._rows[first + len(seq.scores) : first + s.end]
        if not all(isfinite(score) for scores in new for score in scores):
            raise ValueError("the probes' scores are not finite")
        seq.scores += new
