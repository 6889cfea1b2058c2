"""Places where clients expect an address: destinations in Markdown, attributes of HTML, and CSS.

A place is known by what is before it: a sign, such as `](` and `href=`, and then blanks, quotes and the
marks of block quotes. After more of these than the guard looks back, each text counts as such a place.
"""

import html
import re

from hooks.builtin.link_rules.address import BLANKS, MAX_ADDRESS, Address, Found, Place, end_of, may_go_on

MOST_BLANKS = 512
"""Most characters between a sign and its address. After more, the guard cannot tell what is before."""
REACH = 2 * MOST_BLANKS + 64
"""Most characters before an address that show its place: those from the sign on, and those that must be
before the sign."""
_QUOTING = f"{BLANKS}>"
_BEFORE = f"{BLANKS}<>\"'\\"
"""Characters that may be between a sign and the address."""
_Q = re.escape(_QUOTING)
_BREAKS = "\r\n\v\f\x85\u2028\u2029"
_GAP = rf"[{re.escape(''.join(set(BLANKS) - set(_BREAKS)))}]*+(?:[{_BREAKS}][{_Q}]*+)?"
"""Blanks. After a line break, also the marks of block quotes."""
_BEGINNING = r"[/\\&%]|[A-Za-z][A-Za-z0-9+.\t\r\n-]{0,40}(?:[:&%\\]|\Z)"
"""The beginning of an address that browsers fetch, or the part of a beginning at the end of a text."""
_MAY_BEGIN = re.compile(_BEGINNING).match
_AFTER_QUOTE = re.compile(_GAP)
SIGN = re.compile(
    rf"""[(:="';,\d.](?:(?<=[(:=])|(?<=["'])(?=[\s>]|{_BEGINNING})|(?<=[\d.\s][;,])|(?<=[\d.])(?=\s))"""
)
"""The signs of places. The first characters are a class of their own, which `re` finds fast."""
LONG_GAP = re.compile(f"(?P<gap>[{re.escape(_BEFORE)}]{{{MOST_BLANKS},}}(?!\\Z))")
"""A gap of so many blanks that a sign before it does not count."""


def _spelled(name: str) -> str:
    """A pattern of a name in CSS, whose letters may be escaped."""
    return "".join(map(_letter, name))


def _letter(char: str) -> str:
    code = rf"\\0{{0,4}}(?:{ord(char):x}|{ord(char.upper()):x})(?:\r\n|[ \t\r\n\f])?"
    return f"(?:{char}|{code})" if char in "abcdef" else rf"(?:\\?{char}|{code})"


_IS_URL = re.compile(rf"{_spelled('url')}\Z", re.IGNORECASE).search
_LONGEST_URL = 3 * 9
_OF_STRINGS = ("@import", "image(", "image-set(", "cross-fade(", "src(")
_IS_STRING = re.compile(
    rf"(?:(?:{'|'.join(_spelled(name[:-1]) for name in _OF_STRINGS[1:])})\("
    rf"|@{_spelled('import')}(?:[{_Q}]|/\*(?:[^*]|\*(?!/))*+\*/)*+\Z)",
    re.IGNORECASE,
).search
_NAMES = (
    "src|href|srcset|imagesrcset|poster|background|action|formaction|data|cite|ping|manifest|longdesc|lowsrc"
    "|dynsrc|codebase|classid|profile|usemap|icon|archive|code|url|img|image|attributionsrc|itemid|itemtype"
)
_IS_ATTRIBUTE = re.compile(rf"(?:\A|[^\w?&])(?:{_NAMES})\Z", re.IGNORECASE).search
_IS_ANIMATED = re.compile(r"(?:\A|[^\w?&])(?:to|from|by|values)\Z", re.IGNORECASE).search
"""The values that an animation gives to an attribute."""
_IN_ANIMATION = re.compile("<(?:animate|set)", re.IGNORECASE).search
_TIME = rf"[{_Q}]*+[\d.]*+[{_Q}]*+(?:[;,]?[{_Q}]*+url[{_Q}]*+)?\Z"
_IS_REFRESH = re.compile(rf"""content[{_Q}]*+=[{_Q}]*+(?P<open>["']?){_TIME}""", re.IGNORECASE).search
"""The value of `content` of a `meta`, up to the address of another page."""
_MAY_BE_REFRESH = re.compile(rf"""[{_Q}"'=]*+{_TIME}""", re.IGNORECASE).match

_ENDS_URL = ("l", "L", "c", "C", *" \t\r\n\f")
_NUM_TELLING = 64
"""Characters that tell whether a text after many blanks is an address."""
_VALUE = re.compile(rf"""{_GAP}(?:(?P<open>\\{{0,3}}["']){_GAP})?""")
_DESTINATION = re.compile(rf"{_GAP}(?:<{_GAP})?")
_INSIDE = {'"': re.compile(r'[^"]*'), "'": re.compile(r"[^']*")}
_BARE = re.compile(r"""[^ \t\r\n\f>"'\]]*""")
_REST_OF_HOST = re.compile(r"""[^ \t\r\n\f>/?#\\]*""")
_IN_CSS = re.compile(r"""(?:\\(?:[\s\S]|\Z)|[^)"'\\])*""")
_IN_ANGLES = re.compile(r"(?:\\(?:[^\n]|\Z)|[^<>\n\\])*")
_TO_SPACE = re.compile(r"[^\x00-\x20\x7f]*")
_HAS_PATH = re.compile(r"(?:[\w+.-]+:)?[/\\]*+[^/?#\\]*[/?#\\]").match
_MORE = re.compile(r"""[^)\n"'(]*""")
_PARENTHESIS = re.compile(r"\\[\s\S]|[()]")
_MOST_NESTED = 32
"""Most parentheses in each other that CommonMark allows in an address."""
MORE_OF_HOST = re.compile(r"@|[.\u3002\uff0e\uff61]\w|\\[.@:%-]")
"""Text after a host that some clients could read as more of it, or as another host."""


def begin_of_gap(text: str, start: int) -> int:
    """The beginning of the gap before `start` that may be between a sign and an address, as far as the guard
    looks."""
    left = max(0, start - MOST_BLANKS)
    return left + len(text[left:start].rstrip(_BEFORE))


def at_sign(text: str, sign: str, place: int, is_final: bool) -> Found:
    """The address after the sign at `place`, if the text before the sign is right."""
    before = text[place - 1 : place]
    if sign == "(":
        if before == "]":
            return _destination(text, place + 1, is_final)
        if before in _ENDS_URL and _IS_URL(text, max(0, place - _LONGEST_URL), place):
            return _value(text, place + 1, _IN_CSS, is_final)
        label = _before_blanks(text, place) if before and before in _QUOTING else ""
        is_possible = label is None or label.endswith("]")
        return _destination(text, place + 1, is_final, Place.POSSIBLE) if is_possible else []
    if sign == ":":
        return _definition(text, place + 1, is_final) if before == "]" else []
    if sign == "=":
        return _attribute(text, place, is_final)
    if sign in "\"'":
        return _string(text, place, sign, is_final)
    return _refreshed(text, place, is_final) or []


def after_gap(text: str, place: int, is_final: bool) -> Found:
    """The address at `place`, after so many blanks that its place is unknown."""
    end = end_of(_TO_SPACE, text, place, _NUM_TELLING)
    if end == len(text) and end < place + _NUM_TELLING and not is_final:
        return place
    return [Address(place, max(end, place + 1), Place.UNKNOWN)]


def _string(text: str, place: int, quote: str, is_final: bool) -> Found:
    """The address in a string of CSS that begins at the quote."""
    start = end_of(_AFTER_QUOTE, text, place + 1, MOST_BLANKS)
    is_far = start > place + MOST_BLANKS
    if is_far or start == len(text) or not _MAY_BEGIN(text, start) or not _is_in_css(text, place):
        return []
    return _quoted(text, start, quote, is_final, Place.POSSIBLE)


def _is_in_css(text: str, place: int) -> bool:
    window = text[max(0, place - MOST_BLANKS) : place]
    if len(window) == MOST_BLANKS and window.lstrip(_QUOTING).startswith("/*"):
        return True
    plain = window.lower()
    is_possible = any(name in plain for name in _OF_STRINGS) or "\\" in window
    return is_possible and _IS_STRING(window) is not None


def _before_blanks(text: str, place: int) -> str | None:
    """The end of the text before the blanks before `place`. None: there are only blanks in reach."""
    window = text[max(0, place - MOST_BLANKS) : place]
    before = window.rstrip(_QUOTING)[-24:]
    return None if not before and len(window) == MOST_BLANKS else before


def _attribute(text: str, place: int, is_final: bool) -> Found:
    before = text[place - 1 : place]
    if not (before.isalpha() or (before and before in _QUOTING)):
        return []
    name = _before_blanks(text, place) if before in _QUOTING else text[max(0, place - 24) : place]
    if name is None:
        return _value(text, place + 1, _BARE, is_final)
    if name[-3:].lower() == "url" and (found := _refreshed(text, place, is_final)) is not None:
        return found
    if _IS_ATTRIBUTE(name):
        return _value(text, place + 1, _BARE, is_final)
    if _IS_ANIMATED(name):
        is_sure = _IN_ANIMATION(text, max(0, place - MOST_BLANKS), place)
        return _value(text, place + 1, _BARE, is_final, Place.DESTINATION if is_sure else Place.POSSIBLE)
    return []


def _refreshed(text: str, place: int, is_final: bool) -> Found | None:
    """The address of a page that takes this one's place, after the sign. None: there is none."""
    window = text[max(0, place - MOST_BLANKS) : place]
    found = _IS_REFRESH(window) if "=" in window else None
    if found is None:
        if len(window) < MOST_BLANKS or not _MAY_BE_REFRESH(window):
            return None
        return _value(text, place + 1, _BARE, is_final, Place.UNKNOWN)
    if not (quote := found["open"]):
        return _value(text, place + 1, _BARE, is_final)
    start = end_of(_VALUE, text, place + 1, MOST_BLANKS)
    if start > place + MOST_BLANKS:
        return []
    return _quoted(text, start, quote, is_final, Place.DESTINATION)


def _destination(text: str, place: int, is_final: bool, kind: Place = Place.DESTINATION) -> Found:
    """The address after `](` in Markdown."""
    start = end_of(_DESTINATION, text, place, MOST_BLANKS)
    if start >= place + MOST_BLANKS or start == len(text):
        return []
    if "<" in text[place:start]:
        end = cut = end_of(_IN_ANGLES, text, start)
    else:
        end = end_of(_TO_SPACE, text, start)
        cut = _end_of_destination(text, start, end)
    if end >= start + MAX_ADDRESS and cut == end:
        return [Address(start, end, kind, is_long=True)]
    more = end_of(_MORE, text, end) if cut == end and not _HAS_PATH(text, start, end) else end
    if cut == end and may_go_on(text, start, more, is_final):
        return start
    # Markdown.pl takes all up to the parenthesis, and browsers drop tabs.
    is_whole = "\t" in text[end:more] or "@" in text[end:more]
    cut = more if is_whole else cut
    return [Address(start, cut, kind)] if start < cut else []


def _definition(text: str, place: int, is_final: bool) -> Found:
    """The address after `]:` in Markdown."""
    start = end_of(_DESTINATION, text, place, MOST_BLANKS)
    if start >= place + MOST_BLANKS or start == len(text):
        return []
    is_in_angles = "<" in text[place:start]
    end = cut = end_of(_IN_ANGLES if is_in_angles else _TO_SPACE, text, start)
    if not is_in_angles:
        cut = start + len(text[start:end].partition('"')[0])
    if end >= start + MAX_ADDRESS and cut == end:
        return [Address(start, end, Place.DESTINATION, is_long=True)]
    if may_go_on(text, start, end, is_final):
        return start
    is_unsure = cut < end and _has_more_of_host(text, start, cut)
    return [Address(start, cut, Place.DESTINATION, is_unsure=is_unsure)] if start < cut else []


def _end_of_destination(text: str, start: int, end: int) -> int:
    """The place of the parenthesis that closes the link, or after which it is not a link."""
    depth = 0
    for sign in _PARENTHESIS.finditer(text, start, end):
        depth += {"(": 1, ")": -1}.get(sign[0], 0)
        if not 0 <= depth <= _MOST_NESTED:
            return sign.start()
    return end


def _value(
    text: str, place: int, bare: re.Pattern[str], is_final: bool, kind: Place = Place.DESTINATION
) -> Found:
    """The address, or the list of addresses, of an attribute or between parentheses in CSS."""
    opening = _VALUE.match(text, place, place + MOST_BLANKS)
    start = opening.end() if opening else place
    if start >= place + MOST_BLANKS or start == len(text):
        return []
    if opening and opening["open"]:
        return _quoted(text, start, opening["open"][-1], is_final, kind)
    end = end_of(bare, text, start)
    # Browsers take a quote within a bare value for a part of it.
    is_open = bare is _BARE and text[end : end + 1] in ('"', "'") and _MAY_BEGIN(text, start)
    more = end_of(_REST_OF_HOST, text, end) if is_open and _ends_in_host(text[start:end]) else end
    if end >= start + MAX_ADDRESS:
        return [Address(start, end, kind, is_long=True)]
    if may_go_on(text, start, more, is_final):
        return start
    if more > end and _has_more_of_host(text, start, end):
        return [Address(start, more, kind, is_unsure=True)]
    return _address(text, start, end, kind)


def _has_more_of_host(text: str, start: int, cut: int) -> bool:
    """Whether some clients read the text after the quote at `cut` as more of the address's host."""
    if not _ends_in_host(text[start:cut]):
        return False
    more = text[cut + 1 : end_of(_REST_OF_HOST, text, cut)]
    return "@" in more or MORE_OF_HOST.match(more) is not None


def _ends_in_host(written: str) -> bool:
    return _HAS_PATH(html.unescape(written)) is None


def _quoted(text: str, start: int, quote: str, is_final: bool, kind: Place) -> Found:
    """The address from `start` up to the quote."""
    if start == len(text):
        return []
    end = end_of(_INSIDE[quote], text, start)
    if end >= start + MAX_ADDRESS:
        return [Address(start, end, kind, is_long=True)]
    if end == len(text) and not is_final:
        return start
    return _address(text, start, end, kind)


def _address(text: str, start: int, end: int, kind: Place) -> list[Address]:
    end = start + len(text[start:end].rstrip("\\"))
    return [Address(start, end, kind)] if start < end else []
