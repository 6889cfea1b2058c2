"""Whether a value is in a text as its writer wrote it: as whole words, and not as a part of something."""

import re
import unicodedata
from functools import cached_property

from hooks.builtin.tool_policy.truth import Truth

_OPENING = frozenset(
    '([{<>)]}"|;\u201c\u201d\u201e\u00ab\u00bb\u2039\u203a\u300c\u300e\u3010\u3001\u3002\u00bf'
)
"""Signs that end one word and begin another, wherever they are."""
_QUOTES = frozenset("'\u2019\u2018`*")
"""Signs that quote or stress a word, and that may also be inside of one."""
_OF_MAIL = frozenset('{|}"')
"""Signs of `_OPENING` that may be inside of a mail address."""
_LABEL = re.compile(r"(?:\A|[\s(\[{<\"'])[^\W\d_]{2,}:\Z")
"""`to:` or `mailto:`, and no drive."""
_AFTER = re.compile(
    r"""(?:['\u2019]s(?!\w))?(?P<signs>[.!?\u2026:,;'\u2019\u2018`*)\]}>"\u201d\u00bb\u3001\u3002]*)"""
)
"""Signs that may be after a word, and before them the English genitive."""
_SEPARATING = frozenset(',;)]}>"\u201d\u00bb\u3001\u3002')
_IS_HOST = re.compile(r"(?:[a-z][a-z0-9+.-]*:)?(?://)?[\w-]+(?:\.[\w-]+)+").fullmatch
_WIDE = {0xFF01 + i: 0x21 + i for i in range(94)}
_IS_GROUP = re.compile(r"\d{3,4}(?!\d)").match
"""Digits after a blank that may go on with a number, as in `1 500` and `3704 0044`."""


class Words:
    """A text, in which values are looked for. Its forms for this are made when they are first needed."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def _normal(self) -> str:
        return _normal(self.text)

    @cached_property
    def _loose(self) -> str:
        return _loose(self.text)

    def have(self, value: str) -> Truth:
        """Whether the value is in the text, and not as a part of a longer word, name, number, path or
        address. Unknown: as a part of one, or in another form."""
        wanted, text = _normal(value), self._normal
        place = text.find(wanted) if wanted else -1
        while place >= 0:
            if _begins(text, place, wanted) and _ends(text, place + len(wanted), wanted):
                return Truth.YES
            place = text.find(wanted, place + 1)
        loose = _loose(value)
        return Truth.UNKNOWN if loose and loose in self._loose else Truth.NO


def _normal(text: str) -> str:
    """The text without differences of case, of white space, and of the width of letters. Two different words
    stay different."""
    return " ".join(unicodedata.normalize("NFC", text).translate(_WIDE).lower().split())


def _loose(text: str) -> str:
    """The text's letters and digits, in one form of all that some program takes for the same."""
    plain = unicodedata.normalize("NFKC", text).casefold()
    return "".join(filter(str.isalnum, plain))


def _begins(text: str, place: int, value: str) -> bool:
    before = text[place - 1] if place else " "
    first = text[place - 2] if place > 1 else " "
    if before == " ":
        return not (first.isdigit() and _IS_GROUP(text, place))
    if before == ",":
        return not (first.isdigit() and value[0].isdigit())
    if before == ":":
        return _LABEL.search(text, max(0, place - 32), place) is not None
    if before == "/":
        return text.endswith("://", 0, place)
    if before in _QUOTES:
        return first == " " or first in _OPENING or first in _QUOTES
    if before in ("$", "#") or unicodedata.category(before) == "Sc":
        return "@" not in value and (first == " " or first in _OPENING)
    if before in _OF_MAIL and "@" in value:
        return first == " " or first in _OPENING
    return before in _OPENING


def _ends(text: str, place: int, value: str) -> bool:
    if text[place : place + 1] in ("/", "?", "#", ":") and _IS_HOST(value):
        return True
    found = _AFTER.match(text, place)
    signs, after = (found["signs"], text[found.end() : found.end() + 2]) if found else ("", "")
    if after == "" or (not signs and after[0] == " "):
        return not (value[-1].isdigit() and _IS_GROUP(text, place + 1))
    if after[0] == " ":
        return True
    if not signs:
        is_unit = after[0] == "%" or unicodedata.category(after[0]) == "Sc"
        return after[0] in _OPENING or (is_unit and not after[1:].isalnum())
    is_number = signs == "," and value[-1].isdigit() and after[0].isdigit()
    return not is_number and not _SEPARATING.isdisjoint(signs)
