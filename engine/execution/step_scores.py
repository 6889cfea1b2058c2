"""The scores that a step gives to sequences. They are in the cache, beside the keys and values.

A sequence that a step computes to its end gets the scores of all its tokens that have none yet. After a
prompt, these are the prompt's, those found in the cache included. After a decoded token, it is this one, and
tokens of a draft that came true.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from math import isfinite
from struct import Struct

import torch
from torch import Tensor

from engine.device.kv_cache import KVCache
from engine.device.transfers import HostCopy, on_device
from engine.protocol import Scores
from engine.scheduling.sequence import ScheduledSequence


class StepScores:
    """Reads the scores of one step after another."""

    def __init__(self, scores: Tensor, block_size: int) -> None:
        """`scores`, `block_size`: those of a `KVCache`."""
        self._block_size = block_size
        self._copy = None if scores.device.type == "cpu" else _Copy(scores)
        self._read = _reader(scores) if self._copy is None else self._copy.read

    @classmethod
    def of(cls, kv_cache: KVCache) -> "StepScores | None":
        return None if kv_cache.scores is None else cls(kv_cache.scores, kv_cache.block_size)

    def begin(self, scheduled: Seq[ScheduledSequence]) -> None:
        """The model has run a step of these sequences. Scores on a GPU begin to move to the host."""
        if self._copy is not None:
            size, slots = self._block_size, []
            for s in scheduled:
                if s.end == s.sequence.num_tokens:
                    table, places = (
                        s.sequence.cache.block_table,
                        range(len(s.sequence.scores), s.end + len(s.draft)),
                    )
                    slots += [table[i // size] * size + i % size for i in places]
            self._copy.begin(slots)

    def give(self, s: ScheduledSequence) -> None:
        """Give the sequence the scores of its tokens up to the end of its share. Raises `ValueError` for
        scores that are not finite."""
        seq, size, read = s.sequence, self._block_size, self._read
        scores, table = seq.scores, seq.cache.block_table
        for i in range(len(scores), s.end):
            row = read(table[i // size] * size + i % size)
            if not isfinite(sum(row)):
                raise ValueError("the probes' scores are not finite")
            scores.append(row)


def _reader(scores: Tensor) -> Callable[[int], Scores]:
    """Reads one token's scores on the host, without an operator of torch or numpy, which takes longer after a
    step has filled the processor's cache."""
    row = Struct(f"{scores.shape[1]}f")
    numbers, num_bytes, unpack = scores.numpy().data.cast("B"), row.size, row.unpack_from
    return lambda slot: unpack(numbers, slot * num_bytes)


class _Copy:
    """Scores on their way from a GPU to the host, which continues meanwhile."""

    def __init__(self, scores: Tensor) -> None:
        self._scores = scores
        self._rows: dict[int, Scores] = {}

    @torch.inference_mode()
    def begin(self, slots: list[int]) -> None:
        self._slots = slots
        self._rows.clear()
        self._copy = HostCopy([self._scores[on_device(slots, self._scores.device)]])

    def read(self, slot: int) -> Scores:
        """One token's scores. Waits until all are there: once the step's tokens are drawn, they are."""
        if not self._rows:
            (scores,) = self._copy.tensors()
            self._rows.update(zip(self._slots, map(tuple, scores.tolist()), strict=True))
        return self._rows[slot]
