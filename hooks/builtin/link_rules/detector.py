"""Finds addresses in a text, in any markup. A text that may still become an address stays undecided.

Each text that begins like an address is judged, whatever markup is around it. After the signs of a link,
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
"""Takes the address as it is written, and where it is."""


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
        for sign in _signs(text, start):
            if sign.start() >= undecided:
                break
            found = _at(text, sign, is_final)
            if isinstance(found, int):
                undecided = min(undecided, max(start, found))
                continue
            offence = next(
                (one for one in found if one.start >= start and not self._may_pass(text, one)), None
            )
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


def _signs(text: str, start: int) -> Iterator[Sign[str]]:
    """The signs of addresses that begin from `start` on, from left to right."""
    begin = places.begin_of_gap(text, start)
    signs: Iterator[Sign[str]] = places.SIGN.finditer(text, max(0, begin - 1))
    if written.may_have_sign(text, start):
        signs = merge(signs, written.signs(text, start), key=Sign.start)
    if len(text) - begin > places.MOST_BLANKS:
        signs = merge(signs, places.LONG_GAP.finditer(text, begin), key=Sign.start)
    return signs


def _at(text: str, sign: Sign[str], is_final: bool) -> Found:
    if sign.lastgroup is None:
        return places.at_sign(text, sign[0], sign.start(), is_final)
    if sign.lastgroup == "gap":
        return places.after_gap(text, sign.end(), is_final)
    return written.at_sign(text, sign, is_final)
