"""A step that the device runs, and the turns in which its sequences get their tokens.

A sequence gets its next token in the first turn. A draft is a guess at a sequence's next tokens, computed
along with its last token. If the token drawn is the first token of the draft, the logits of the token after
it are there already: the sequence takes another turn.
"""

from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Seq
from enum import StrEnum
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from engine.protocol import EngineError
from engine.sampling.speculation import Speculation
from engine.scheduling.sequence import ScheduledSequence, Sequence, SequenceGroup


class InTurn(StrEnum):
    """Why a step begins only when the tokens of the step before it are read. All other steps go ahead."""

    OFF = "async_scheduling is off"
    DRAFTS = "drafts are guessed from the last tokens"
    PROBES = "probes score the last tokens, and a later step writes where their scores are"
    FAILED_DRAW = "a draw has failed"
    MUST_GIVE_WAY = "a running sequence must give way to another"
    SHORT_OF_BLOCKS = "nothing can run before a sequence that ends now frees its blocks"
    FAILED_AHEAD = "the step has failed ahead, such as for too little memory"


class Turn(NamedTuple):
    """Sequences that move on together, and those among them that draw a token."""

    scheduled: list[ScheduledSequence]
    sequences: list[Sequence]
    """The sequences that draw a token."""
    rows: list[int]
    """The row of `logits` that each of `sequences` draws from."""
    logits: Tensor
    """All rows of the step, `[rows, vocab]`."""


_NO_LOGITS = torch.empty(0)


class InFlight:
    """A step whose tokens are not drawn yet. A sequence may leave it until then."""

    def __init__(
        self,
        scheduled: Seq[ScheduledSequence] = (),
        logits: Tensor = _NO_LOGITS,
        errors: Mapping[SequenceGroup, EngineError] | None = None,
    ) -> None:
        """`logits`: each sequence's `num_samples` rows, `[rows, vocab]`. `errors`: of the requests that the
        step had to leave out."""
        self.errors = errors or {}
        self._logits = logits
        first_rows = accumulate((s.num_samples for s in scheduled), initial=0)
        self._shares = {s.sequence: (s, row) for s, row in zip(scheduled, first_rows, strict=False)}
        """Each with its first row."""

    @property
    def scheduled(self) -> list[ScheduledSequence]:
        return [s for s, _ in self._shares.values()]

    @property
    def is_empty(self) -> bool:
        return not self._shares

    def leave(self, seq: Sequence) -> None:
        """Forget a sequence that has ended or was rewound: it gets no token of this step. A sequence without
        a share of the step is ignored."""
        self._shares.pop(seq, None)

    def turns(self, speculation: Speculation) -> Iterator[Turn]:
        """First a turn of all sequences; then, as long as drafts come true, turns of those whose draft did.
        Update a turn's sequences before you ask for the next turn."""
        turn = list(self._shares.values())
        while turn:
            drawing = [(s.sequence, row) for s, row in turn if s.is_sampled]
            rows = [row for _, row in drawing]
            yield Turn([s for s, _ in turn], [seq for seq, _ in drawing], rows, self._logits)
            turn = [(follower, row + 1) for s, row in turn if (follower := _next_known(s))]
            speculation.num_accepted_tokens += len(turn)


def _next_known(s: ScheduledSequence) -> ScheduledSequence | None:
    """The share of a step for the token just drawn, if the draft predicted it: it is computed already."""
    seq = s.sequence
    goes_on = seq.finish_reason is None and not seq.group.is_aborted
    if goes_on and s.draft and seq.token_ids[s.end :] == [s.draft[0]]:
        return ScheduledSequence(seq, s.end, s.end + 1, s.draft[1:])
    return None
