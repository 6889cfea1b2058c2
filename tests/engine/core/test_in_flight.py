"""A step in flight gives its tokens to the sequences that have not left it."""

from dataclasses import dataclass
from typing import Any

import torch

from engine.core.in_flight import InFlight
from engine.sampling.speculation import Speculation
from engine.scheduling.sequence import ScheduledSequence, Sequence
from tests.engine.core.sequences import sequences


def test_a_sequence_that_leaves_gets_no_token_and_the_others_keep_their_rows() -> None:
    first, second, third, stranger = sequences(4)
    step = InFlight([ScheduledSequence(s, 0, 1) for s in (first, second, third)], torch.zeros(3, 2))
    for seq in (second, second, stranger):
        step.leave(seq)
    turn = next(step.turns(Speculation(0)))
    assert [s.sequence for s in turn.scheduled] == turn.sequences == [first, third]
    assert turn.rows == [0, 2]
    assert not step.is_empty
    step.leave(first)
    step.leave(third)
    assert step.is_empty
    assert list(step.turns(Speculation(0))) == []


@dataclass
class CountedShare:
    """Counts how often the sequence of a share is read."""

    counts: list[int]
    own: Sequence
    num_samples = 1

    @property
    def sequence(self) -> Sequence:
        self.counts[0] += 1
        return self.own


def test_many_sequences_that_leave_at_once_do_not_each_read_all_others() -> None:
    counts, leaving = [0], sequences(100)
    shares: Any = [CountedShare(counts, seq) for seq in leaving]
    step = InFlight(shares, torch.zeros(100, 2))
    for seq in leaving:
        step.leave(seq)
    assert step.is_empty
    assert counts[0] <= 200
