"""From readings of a reply's tokens to verdicts on its text. No I/O.

A verdict covers the tokens that no later one changes: not a last token that may be the first one of a pair.
"""

from collections.abc import Sequence

from hooks.builtin.stream_heads.debounce import Offences
from hooks.builtin.stream_heads.heads import SAFE, Reading
from hooks.detect.coverage import Judged
from hooks.detect.detector import Match


class ReplyVerdicts:
    """One reply. Its tokens come in order. The last ones may be withdrawn."""

    def __init__(self, offences: Offences, *, waits_for_end: bool) -> None:
        """`waits_for_end`: an offence is reported when it has ended, so once and whole."""
        self._offences = offences
        self._waits_for_end = waits_for_end
        self._ends: list[int] = []
        """For each token, the characters of the text up to its end."""
        self._num_lead = 0
        self._num_reported = 0
        """Tokens whose offences were reported."""
        self._end_reported = 0
        """The end of the last reported offence, in the reply's characters."""
        self._num_judged = 0

    @property
    def num_tokens(self) -> int:
        return len(self._ends)

    @property
    def are_all_safe(self) -> bool:
        """Whether no token is read as anything else."""
        return self._offences.are_all_safe

    def has_reply(self, ends: Sequence[int]) -> bool:
        """Whether tokens with these ends complete a character of the reply."""
        return bool(ends) and ends[-1] > self._num_lead

    def begin_with(self, num_characters: int) -> None:
        """The text begins with so many characters before the reply's first one. They are not an offence.
        Called before the first token comes, or not at all."""
        self._num_lead = num_characters

    def truncate(self, num_tokens: int) -> None:
        """Withdraw all but the first tokens."""
        del self._ends[num_tokens:]
        self._offences.truncate(num_tokens)
        self._num_reported = min(self._num_reported, num_tokens)
        self._end_reported = min(self._end_reported, self._place(num_tokens))

    def add(self, ends: Sequence[int], readings: Sequence[Reading]) -> None:
        """The text has more tokens. `ends`: for each, the characters of the text up to its end."""
        lead = self._num_lead
        self._offences.add([one if end > lead else SAFE for one, end in zip(readings, ends, strict=True)])
        self._ends += ends

    def judged(self, num_characters: int, is_final: bool) -> Judged:
        """The verdict on the tokens so far. Reports each offence once, in places of the reply. `is_final`:
        the reply ends, and its text has `num_characters`, which the verdict covers."""
        num_decided = len(self._ends) if is_final else self._offences.num_decided
        runs = self._offences.runs(self._num_reported)
        # A token that is not decided yet may continue the offence right before it.
        if self._waits_for_end and not is_final and runs and runs[-1][1] >= num_decided:
            num_decided = runs.pop()[0]
        matches: list[Match] = []
        for first, after, category in runs:
            start, last = max(self._place(first), self._end_reported), self._place(after - 1)
            # Tokens that are a part of a character are found with the whole character.
            places = map(self._place, range(after, len(self._ends) + 1))
            end = next((place for place in places if place > last), None)
            if end is None:
                if last > start and (is_final or not self._waits_for_end):
                    matches.append(Match(start, last, category))
                    first = next(at for at in range(first, after) if self._place(at) == last)
                num_decided = min(num_decided, first)
                break
            if end > start:
                matches.append(Match(start, end, category))
                self._end_reported = end
        self._num_reported = num_decided
        end = num_characters - self._num_lead if is_final else self._place(num_decided)
        self._num_judged = max(self._num_judged, end, *(match.end for match in matches))
        is_open = is_final and self._offences.num_decided < len(self._ends)
        open_from = self._place(self._offences.num_decided) if is_open else None
        return Judged(self._num_judged, others=matches, open_from=open_from)

    def _place(self, num_tokens: int) -> int:
        """The reply's characters up to the end of the first tokens."""
        end = self._ends[num_tokens - 1] if num_tokens else 0
        return max(0, end - self._num_lead)
