"""Addresses as places of a text, and the parts that readers of addresses share."""

import re
from enum import Enum
from typing import NamedTuple

MAX_ADDRESS = 2048
"""Most characters of an address. A longer one does not pass."""
BLANKS = (
    "".join(map(chr, range(0x21)))
    + "\x7f\x85\xa0\u1680\u180e"
    + "".join(map(chr, range(0x2000, 0x200C)))
    + "\u2028\u2029\u202f\u205f\u3000\ufeff"
)
"""Characters that some reader takes for white space or leaves out before an address."""


class Place(Enum):
    """The place of an address in a text."""

    TEXT = "text"
    """Anywhere: the text itself looks like an address."""
    DESTINATION = "destination"
    """A place where clients expect an address. It may be relative, and of any scheme."""
    POSSIBLE = "possible"
    """A place where some clients expect an address, and where other texts are common, too."""
    UNKNOWN = "unknown"
    """The place is unknown. A text that may be an address with a host does not pass."""


class Address(NamedTuple):
    """A text that may be an address. The places count from the beginning of the text in which it is."""

    start: int
    end: int
    place: Place = Place.TEXT
    begin: int | None = None
    """The beginning of the address if it is before `start`. The text up to `start` has been released."""
    is_unsure: bool = False
    """Whether clients may take another host for the address's."""
    is_long: bool = False


Found = list[Address] | int
"""The addresses at a sign, or the place from which on more text may make or change one."""


def end_of(pattern: re.Pattern[str], text: str, place: int, most: int = MAX_ADDRESS) -> int:
    """The end of the pattern's match at `place`. Without a match, `place`."""
    found = pattern.match(text, place, place + most)
    return found.end() if found else place


def may_go_on(text: str, start: int, end: int, is_final: bool) -> bool:
    """Whether more text may continue the address."""
    return end == len(text) and not is_final and end < start + MAX_ADDRESS
