"""Finds addresses in a text, in any markup. A text that may still become an address stays undecided.

Each text that begins like an address is judged, whatever markup is around it. Behind the signs of a link,
such as `](` and `href=`, a text is judged even if it does not look like an address, because clients take it
for one.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from typing import NamedTuple

from hooks.detect.detector import Findings, Match

ENTITY = "link"
MAX_ADDRESS = 2048
"""Most characters of an address. A longer one does not pass."""
LONG = 1
"""The rule of an address that is longer: its match goes on as far as the address does."""
_MOST_BLANKS = 1000
"""Most blanks between a sign of a link and the address."""
_OF_WORD = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.+_-:"
_LONGEST_WORD = 255
"""Most characters of a word that may become an address: of a name of the DNS."""

_BREAK = r"[\t\r\n]{0,64}"
"""What browsers drop from an address."""


def _spelled(*schemes: str) -> str:
    """A pattern of schemes with their colons, or of their beginnings at the end of a text."""
    patterns = []
    for scheme in schemes:
        pattern = ":"
        for char in reversed(scheme):
            pattern = rf"{char}{_BREAK}(?:{pattern}|\Z)"
        patterns.append(pattern)
    return "|".join(patterns)


_COUNTRIES = (
    "a[cdefgilmoqrstuwxz]|b[abdefghijmnorstvwyz]|c[acdfghiklmnoruvwxyz]|d[ejkmoz]|e[cegrstu]|f[ijkmor]"
    "|g[abdefghilmnpqrstuwy]|h[kmnrtu]|i[delmnoqrst]|j[emop]|k[eghimnprwyz]|l[abcikrstuvy]"
    "|m[acdeghklmnopqrstuvwxyz]|n[acefgilopruz]|om|p[aefghklmnrstwy]|qa|r[eosuw]|s[abcdeghijklmnorstuvxyz]"
    "|t[cdfghjklmnortvwz]|u[agksyz]|v[aceginu]|w[fs]|y[et]|z[amw]"
)
_TOP = (
    rf"(?:com|org|net|edu|gov|mil|int|info|biz|name|pro|app|dev|xyz|online|site|website|top|shop|store|club"
    rf"|cloud|tech|live|page|link|click|work|space|zip|mov|xn--[a-z0-9-]{{2,59}}|{_COUNTRIES})"
)
"""Ends of names that show, without a scheme, that a text is an address."""
_NOT_IN_ESCAPE = "".join(rf"(?<!{begin})" for begin in (r"%\w", r"\\x\w", r"\\u\w", r"\\u\w\w", r"\\u\w\w\w"))
"""The reading without escapes finds what begins behind an escape."""
_LABELS = r"(?:[a-z0-9_-]{1,63}\.){1,9}"
_SIGN = re.compile(
    rf"""
    (?P<web>{_spelled("https", "http", "ftp", "wss", "ws")})
  | (?P<script>(?<!\w)(?:{_spelled("javascript", "vbscript", "mailto")}))
  | (?P<data>(?<!\w)(?:{_spelled("data")}))
  | (?P<file>(?<!\w)(?:{_spelled("file")}))
  | (?P<other>(?<![a-z\\%]){_NOT_IN_ESCAPE}[a-z][a-z0-9+.-]{{1,31}}:(?:\Z|/(?:\Z|/)))
  | (?P<slashes>(?<![:/\\\w.])/(?:\Z|/))
  | (?P<www>(?<![\w@./:\\+-])www\.(?:\Z|(?=[\w-])))
  | (?P<name>(?<![\w@./:\\+-]){_LABELS}[a-z][a-z0-9-]{{1,62}}(?::\d{{1,5}})?[/?\#])
    """,
    re.IGNORECASE | re.VERBOSE,
)
_MAY_BE_SIGN = re.compile(r"[:/.\t\r\n]").search
_CONTEXT = re.compile("[(:=]")
"""The signs behind which clients expect an address, if the text before them is right."""
_BEFORE_ADDRESS = " \t\r\n\f\v<\"'\\"
"""What may stand between such a sign and the address."""
_IS_NAME = re.compile(
    rf"{_LABELS}(?:{_TOP}(?![\w.-])|[a-z][a-z0-9-]{{1,62}}/[^\s?]*\?[^\s=]*=)", re.IGNORECASE
).match
_IS_HOST = re.compile(
    rf"{_LABELS}(?:{_TOP}(?![\w.-])|[a-z][a-z0-9-]{{1,62}}[/?:])|\d+(?:\.\d+){{3}}(?![\w.])|\[[\da-f]*:",
    re.IGNORECASE,
).match
_SLASHES = re.compile(r"[\t\r\n/\\]*")
_DATA = re.compile(r"[\t\r\n]*(?:[\w.+-]{1,64}/[\w.+-]{1,64})?[;,]").match
_MAY_BE_DATA = re.compile(r"[\t\r\n]*[\w.+/-]{0,129}\Z").match
_OF_HOST = r"""[^\s<>"`/?#]*"""
_OF_PATH = r"""[^\s<>"`、。！（），：；？」』】》]*"""
_RUN = re.compile(f"{_OF_HOST}(?:[/?#]{_OF_PATH})?")
"""The characters of an address in plain text: up to a space or a quote and, behind the host, up to the
punctuation of scripts that write no spaces."""
_PATH = re.compile("[/?#]").search
_MORE_OF_HOST = re.compile(r"@|[.\u3002\uff0e\uff61]\w|\\[.@:%-]")
"""Behind a host: what some clients could take for more of it, or for another host."""
_REST = re.compile(r"""[^\s<>"`]*""")
"""What still belongs to an address that is too long."""
_CLOSING = re.compile(r"\[/|[()\[\]{}]|\\(?=[^/])|[|']")
_PAIRS = {")": "(", "]": "[", "}": "{"}
_PARENTHESIS = re.compile(r"\\[\s\S]|[()]")
_MOST_NESTED = 32
"""Most parentheses in each other that CommonMark allows in an address."""
_TRAILING = ".,;:!?*_~'\u2019\\"
_QUOTED = {'"': re.compile(r'[^" <>]*'), "'": re.compile(r"[^' <>]*")}
_CONTROLS = "".join(map(chr, range(0x21)))
_VALUE = re.compile(rf"""\s{{0,{_MOST_BLANKS // 2}}}(?P<open>\\{{0,3}}["'])?""")
_INSIDE = {'"': re.compile(r'[^"]*'), "'": re.compile(r"[^']*")}
_BARE = re.compile(r"""[^\s>"'\]]*""")
_IN_CSS = re.compile(r"""[^)"']*""")
_IN_ANGLES = re.compile(r"[^<>\n]*")
_TO_SPACE = re.compile(r"\S*")
_BLANKS = rf"[ \t]{{0,{_MOST_BLANKS // 2 - 2}}}"
_BEFORE_DESTINATION = re.compile(rf"{_BLANKS}(?:(?:\r\n?|\n){_BLANKS})?<?")
_NAMES = (
    "src|href|srcset|imagesrcset|poster|background|action|formaction|data|cite|ping|manifest|longdesc|lowsrc"
    "|dynsrc|codebase|classid|profile|usemap|icon|archive|code|url|img|image"
)
_IS_ATTRIBUTE = re.compile(rf"(?:\A|[^\w?&])(?:{_NAMES})\Z", re.IGNORECASE).search


class Address(NamedTuple):
    """A text that may be an address. The places count from the beginning of the text in which it stands."""

    start: int
    end: int
    is_destination: bool = False
    """Whether it stands where clients expect an address, so that it may be relative."""
    is_unsure: bool = False
    """Whether clients may take another host for the address's."""
    is_long: bool = False


Passes = Callable[[str, bool], bool]
"""Takes the address as it is written, and whether it stands where clients expect one."""


class LinkDetector:
    """Finds the addresses that do not pass."""

    longest = MAX_ADDRESS + _MOST_BLANKS
    reach = _MOST_BLANKS + 100

    def __init__(self, passes: Passes) -> None:
        self._passes = passes

    def scan(self, text: str, start: int = 0, is_final: bool = True, taken: Sequence[Match] = ()) -> Findings:
        longer = [one._replace(end=_end_of_long(text, one.end)) for one in taken if one.rule == LONG]
        matches = [one for one in longer if one not in taken]
        long_end = max((one.end for one in longer), default=0)
        undecided = len(text) if is_final else _word_at_end(text, start)
        for sign in _signs(text, start):
            place = sign.start()
            if place >= undecided:
                break
            is_begun = sign.end() == len(text) and not is_final
            addresses = None if is_begun else _addresses(text, sign, is_final)
            if addresses is None:
                undecided = max(start, place)
                break
            offence = next(
                (one for one in addresses if one.start >= start and not self._may_pass(text, one)), None
            )
            if offence is not None and offence.is_long:
                end = _end_of_long(text, offence.end)
                if end > long_end:  # otherwise it is a part of a long one
                    matches.append(Match(offence.start, end, ENTITY, LONG))
                    long_end = end
            elif offence is not None:
                matches.append(Match(offence.start, offence.end, ENTITY))
        return [match for match in matches if match.start < undecided], undecided

    def _may_pass(self, text: str, address: Address) -> bool:
        written = text[address.start : address.end]
        return not (address.is_long or address.is_unsure) and self._passes(written, address.is_destination)


def _signs(text: str, start: int) -> Iterator[re.Match[str]]:
    """The signs of addresses that begin from `start` on, from left to right."""
    left = max(0, start - _MOST_BLANKS)
    before = left + len(text[left:start].rstrip(_BEFORE_ADDRESS))
    in_context = _CONTEXT.finditer(text, max(0, before - 1))
    if _MAY_BE_SIGN(text, start) is None:
        return in_context
    return merge(in_context, _SIGN.finditer(text, start), key=re.Match.start)


def _word_at_end(text: str, start: int) -> int:
    """The beginning of the word at the end of the text. More text may make the word an address."""
    last = text[max(start, len(text) - _LONGEST_WORD) :]
    return len(text) - len(last) + len(last.rstrip(_OF_WORD))


def _end_of(pattern: re.Pattern[str], text: str, place: int, most: int = MAX_ADDRESS) -> int:
    found = pattern.match(text, place, place + most)
    return found.end() if found else place


def _end_of_long(text: str, place: int) -> int:
    return _end_of(_REST, text, place, len(text))


def _addresses(text: str, sign: re.Match[str], is_final: bool) -> list[Address] | None:
    """The addresses that begin at the sign. None: more text may make or change them."""
    kind, start, end = sign.lastgroup, sign.start(), sign.end()
    if kind is None:
        return _in_context(text, sign[0], start, is_final)
    if kind in ("www", "name"):
        return _in_text(text, start, start, is_final, None if kind == "www" else _IS_NAME)
    if kind in ("slashes", "other"):
        if not sign[0].endswith("//"):
            return []
        return _in_text(text, start, end, is_final, _IS_HOST if kind == "slashes" else None)
    return _of_scheme(text, start, end, kind, is_final) if sign[0][-1] == ":" else []


def _in_context(text: str, sign: str, place: int, is_final: bool) -> list[Address] | None:
    """The address behind the sign at `place`, if the text before it is right."""
    before = text[max(0, place - 3) : place]
    if before.endswith("]") and sign != "=":
        return _destination(text, place + 1, is_definition=sign == ":", is_final=is_final)
    if sign == "(" and before.lower() == "url":
        return _value(text, place + 1, _IN_CSS, is_final)
    if sign == "=" and (before[-1:].isalpha() or before[-1:].isspace()):
        before = text[max(0, place - _MOST_BLANKS) : place].rstrip()[-24:]
        return _value(text, place + 1, _BARE, is_final) if _IS_ATTRIBUTE(before) else []
    return []


def _of_scheme(text: str, start: int, place: int, kind: str, is_final: bool) -> list[Address] | None:
    """The address of a known scheme, whose colon is before `place`."""
    if kind == "data":
        if not is_final and _MAY_BE_DATA(text, place):
            return None
        return _in_text(text, start, place, is_final) if _DATA(text, place) else []
    slashes = _end_of(_SLASHES, text, place)
    if slashes == len(text) and not is_final:
        return None
    has_slash = bool(text[place:slashes].strip("\t\r\n"))
    if kind == "file" and not has_slash:
        return []
    before = text[max(0, start - 256) : start].rstrip(_CONTROLS)[-1:]
    if not has_slash and (text[slashes : slashes + 1].isspace() or (kind == "web" and before not in _QUOTED)):
        return []
    found = _in_text(text, start, slashes, is_final)
    if not found or before not in _QUOTED:
        return found
    # A client that reads the whole string drops the line breaks in it.
    end = _end_of(_QUOTED[before], text, slashes)
    if _may_go_on(text, start, end, is_final):
        return None
    is_broken = any(char in text[start:end] for char in "\t\r\n")
    return [*found, Address(start, end, is_destination=True)] if is_broken else found


def _in_text(
    text: str, start: int, place: int, is_final: bool, is_one: Callable[[str], object] | None = None
) -> list[Address] | None:
    """The address that begins at `start` in plain text, and whose host begins at `place`. `is_one` says
    whether the text from `place` on is an address."""
    limit = start + MAX_ADDRESS
    end = _end_of(_RUN, text, place, limit - place)
    closing = _closing(text, place, end, text[max(0, start - 1) : start])
    path = _PATH(text, place, end)
    is_closed = path is not None and path.start() < closing < end
    if not is_closed and end >= limit:
        return [Address(start, end, is_long=True)]
    if not is_closed and end == len(text) and not is_final:
        return None
    cut = _without_marks(text, place, closing)
    if is_one is not None and not is_one(text[place:cut]):
        return []
    if path is not None and path.start() < cut:
        return [Address(start, cut)]
    quoted = text[end : end + 3] if text[end : end + 1] in ('"', "`") else ""
    if quoted and not is_final and end + 3 > len(text):
        return None
    host_end = path.start() if path else end
    is_unsure = _MORE_OF_HOST.search(text[cut:host_end] + quoted) is not None
    return [Address(start, end if is_unsure else cut, is_unsure=is_unsure)]


def _may_go_on(text: str, start: int, end: int, is_final: bool) -> bool:
    return end == len(text) and not is_final and end < start + MAX_ADDRESS


def _closing(text: str, start: int, end: int, before: str) -> int:
    """The last place at which a sign, as a bracket, may end the address. `before`: the text before it."""
    opened: list[str] = []
    for sign in _CLOSING.finditer(text, start, end):
        char = sign[0]
        if char in "([{":
            opened.append(char)
        elif char in _PAIRS:
            if not opened or opened.pop() != _PAIRS[char]:
                return sign.start()
        elif char in ("[/", "\\") or (char == "|" and before == "<") or (char == "'" and before == "'"):
            return sign.start()
    return end


def _without_marks(text: str, start: int, end: int) -> int:
    """The end of the address, without the marks of the sentence around it."""
    found = text[start:end].rstrip(_TRAILING)
    return start + len(found.removesuffix("'s").removesuffix("\u2019s").rstrip(_TRAILING))


def _destination(text: str, place: int, *, is_definition: bool, is_final: bool) -> list[Address] | None:
    """The address behind `](` or `]:` in Markdown."""
    start = _end_of(_BEFORE_DESTINATION, text, place)
    if start == len(text) and not is_final:
        return None
    is_in_angles = start > place and text[start - 1] == "<"
    end = cut = _end_of(_IN_ANGLES if is_in_angles else _TO_SPACE, text, start)
    if is_definition and not is_in_angles:
        cut = start + len(text[start:end].partition('"')[0])
    elif not is_in_angles:
        cut = _end_of_destination(text, start, end)
    if end >= start + MAX_ADDRESS and cut == end:
        return [Address(start, end, is_destination=True, is_long=True)]
    sure_from = cut + 3 if is_definition and cut < end else end if cut == end else cut
    if sure_from >= len(text) and _may_go_on(text, start, end, is_final):
        return None
    is_unsure = cut < end and is_definition and _MORE_OF_HOST.match(text, cut + 1, end) is not None
    return [Address(start, cut, is_destination=True, is_unsure=is_unsure)] if start < cut else []


def _end_of_destination(text: str, start: int, end: int) -> int:
    """The place of the parenthesis that closes the link, or behind which it is none."""
    depth = 0
    for sign in _PARENTHESIS.finditer(text, start, end):
        depth += {"(": 1, ")": -1}.get(sign[0], 0)
        if not 0 <= depth <= _MOST_NESTED:
            return sign.start()
    return end


def _value(text: str, place: int, bare: re.Pattern[str], is_final: bool) -> list[Address] | None:
    """The address, or the list of addresses, of an attribute or between parentheses in CSS."""
    opening = _VALUE.match(text, place)
    start = opening.end() if opening else place
    if start == len(text) and not is_final:
        return None
    quote = opening["open"][-1] if opening and opening["open"] else ""
    end = _end_of(_INSIDE[quote] if quote else bare, text, start)
    if end >= start + MAX_ADDRESS:
        return [Address(start, end, is_destination=True, is_long=True)]
    if end == len(text) and not is_final:
        return None
    end = start + len(text[start:end].rstrip("\\"))
    return [Address(start, end, is_destination=True)] if start < end else []
