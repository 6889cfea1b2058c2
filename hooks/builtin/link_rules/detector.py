"""Finds addresses in a text, in any markup. A text that may still become an address stays undecided.

Each text that begins like an address is judged, whatever markup is around it. Behind the signs of a link,
such as `](` and `href=`, a text is judged even if it does not look like an address, because clients take it
for one.
"""

from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from re import Match as Sign

from hooks.builtin.link_rules import places, written
from hooks.builtin.link_rules.address import MAX_ADDRESS, Address, Found, Place
from hooks.detect.detector import Findings, Match

ENTITY = "link"
LONG = 1
"""The rule of an address that is longer: its match goes on as far as the address does."""
Passes = Callable[[str, Place], bool]
"""Takes the address as it is written, and where it stands."""


class LinkDetector:
    """Finds the addresses that do not pass."""

    longest = MAX_ADDRESS + places.MOST_BLANKS
    reach = places.REACH

    def __init__(self, passes: Passes) -> None:
        self._passes = passes

    def scan(self, text: str, start: int = 0, is_final: bool = True, taken: Sequence[Match] = ()) -> Findings:
        longer = [one._replace(end=written.end_of_long(text, one.end)) for one in taken if one.rule == LONG]
        matches = [one for one in longer if one not in taken]
        long_end = max((one.end for one in longer), default=0)
        undecided = len(text) if is_final else written.word_at_end(text, start)
        for place, found in _found(text, start, is_final):
            if place >= undecided:
                break
            if isinstance(found, int):
                undecided = min(undecided, max(start, found))
                continue
            offence = next((one for one in found if one.start >= start and not self._may_pass(text, one)), None)
            if offence is None:
                continue
            if not offence.is_long:
                matches.append(Match(offence.start, offence.end, ENTITY))
            elif (end := written.end_of_long(text, offence.end)) > long_end:  # otherwise a part of a long one
                matches.append(Match(offence.start, end, ENTITY, LONG))
                long_end = end
        return [match for match in matches if match.start < undecided], undecided

    def _may_pass(self, text: str, address: Address) -> bool:
        begin = address.start if address.begin is None else address.begin
        is_whole = not (address.is_long or address.is_unsure)
        return is_whole and self._passes(text[begin : address.end], address.place)


def _found(text: str, start: int, is_final: bool) -> Iterator[tuple[int, Found]]:
    """What is found from `start` on, each with the place of its sign. The signs are in order, but for those
    behind long gaps."""
    for place in places.behind_long_gaps(text, start):
        if place < len(text):
            yield place, places.behind_gap(text, place, is_final)
    signs: Iterator[Sign[str]] = places.signs(text, start)
    if written.may_have_sign(text, start):
        signs = merge(signs, written.SIGN.finditer(text, start), key=Sign.start)
    for sign in signs:
        kind = sign.lastgroup
        if kind is None:
            yield sign.start(), places.at_sign(text, sign[0], sign.start(), is_final)
        else:
            yield sign.start(), written.at_sign(text, sign, is_final)
