"""Which sequences get a token from the same run of the model, and which of them get another one.

A draft is a guess at a sequence's next tokens, computed along with its last token. If the token drawn is the
first token of the draft, the logits of the token after it are there already: the sequence takes another turn.
"""

from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import NamedTuple

from engine.core.sequence import ScheduledSequence, Sequence
from engine.sampling.speculation import Speculation


class Turn(NamedTuple):
    """Sequences that move on together, and those among them that draw a token."""

    scheduled: list[ScheduledSequence]
    sequences: list[Sequence]
    """The sequences that draw a token."""
    rows: list[int]
    """The row of the step's logits that each of `sequences` draws from."""


def turns(scheduled: Iterable[ScheduledSequence], speculation: Speculation) -> Iterator[Turn]:
    """First a turn of all sequences; then, as long as drafts come true, turns of those whose draft did.

    The step's logits have `num_samples` rows for each sequence, in order. Update a turn's sequences before
    you ask for the next turn.
    """
    first_rows = accumulate((s.num_samples for s in scheduled), initial=0)
    turn = list(zip(scheduled, first_rows, strict=False))
    while turn:
        drawing = [(s.sequence, row) for s, row in turn if s.is_sampled]
        yield Turn([s for s, _ in turn], [seq for seq, _ in drawing], [row for _, row in drawing])
        turn = [(follower, row + 1) for s, row in turn if (follower := _foretold(s))]
        speculation.num_accepted_tokens += len(turn)


def _foretold(s: ScheduledSequence) -> ScheduledSequence | None:
    """If the draft foretold the token just drawn, that token's share of a step: it is computed already."""
    seq = s.sequence
    goes_on = seq.finish_reason is None and not seq.group.is_aborted
    if goes_on and s.draft and seq.token_ids[s.end :] == [s.draft[0]]:
        return ScheduledSequence(seq, s.end, s.end + 1, s.draft[1:])
    return None
