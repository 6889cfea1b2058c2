"""Addresses in plain text: any text that looks like an address, wherever it is."""

import re
from collections.abc import Callable, Iterator

from hooks.builtin.link_rules.address import MAX_ADDRESS, Address, Found, Place, end_of, may_go_on
from hooks.builtin.link_rules.names import LABELS, NUMBERS, begin_of_name, is_host, is_ip6, is_name
from hooks.builtin.link_rules.places import MORE_OF_HOST

_BREAK = r"[\t\r\n]{0,64}"
"""Characters that browsers drop from an address."""


def _spelled(*schemes: str) -> str:
    """A pattern of schemes with their colons, or of their beginnings at the end of a text."""
    patterns = []
    for scheme in schemes:
        pattern = ":"
        for char in reversed(scheme):
            pattern = rf"{char}{_BREAK}(?:{pattern}|\Z)"
        patterns.append(pattern)
    return "|".join(patterns)


_NOT_IN_ESCAPE = "".join(rf"(?<!{begin})" for begin in (r"%\w", r"\\x\w", r"\\u\w", r"\\u\w\w", r"\\u\w\w\w"))
"""The reading without escapes finds an address that begins after an escape."""
_HOST = rf"(?:{LABELS}[a-z][a-z0-9-]{{1,62}}\.?|{NUMBERS})(?::\d{{1,5}})?"
_SIGNS = rf"""
    (?P<web>{_spelled("https", "http", "ftp", "wss", "ws")})
  | (?P<script>(?<!\w)(?:{_spelled("javascript", "vbscript", "mailto")}))
  | (?P<data>(?<!\w)(?:{_spelled("data")}))
  | (?P<file>(?<!\w)(?:{_spelled("file")}))
  | (?P<other>(?<![a-z\\%]){_NOT_IN_ESCAPE}[a-z][a-z0-9+.-]{{1,31}}:(?:\Z|/(?:\Z|/)))
  | (?P<slashes>(?<![:/\\\w])/(?:\Z|/))
  | (?P<www>(?<![a-z0-9_@./:\\+-])www\.(?:\Z|(?=[\w/?\#-])))
  | (?P<name>(?<![\w@/\\+-])(?<![\w/\\]\.)(?<!\d:){_HOST}[/?\#])
  | (?P<user>(?<=[\w.-]@){_HOST}/)
  | (?P<ip6>(?<![\w)\]/@])\[[\da-f]{{0,4}}(?:\Z|:[\da-f:.]{{0,45}}(?:\Z|\](?::\d{{0,5}})?(?:\Z|[/?\#]))))
"""
_REST_OF_NAME = r"|(?P<rest>(?<=[^\x00-\x7f])[a-z0-9_.-]{0,255}(?::\d{1,5})?[/?\#])"
"""The part of a name after letters of other scripts."""
_SIGN = re.compile(_SIGNS, re.IGNORECASE | re.VERBOSE)
_SIGN_OF_ANY = re.compile(_SIGNS + _REST_OF_NAME, re.IGNORECASE | re.VERBOSE)
may_have_sign = re.compile(r"[:/.?#\t\r\n\[]").search
"""Whether a text may have a sign: a cheap check."""
_OF_WORD = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.+_-:"
_LONGEST_WORD = 255
"""Most characters of a word that may become an address: of a name of the DNS."""
_SLASHES = re.compile(r"[\t\r\n/\\]*")
_DATA = re.compile(r"[\t\r\n]*(?:[\w.+-]{1,64}/[\w.+-]{1,64})?[;,]").match
_MAY_BE_DATA = re.compile(r"[\t\r\n]*[\w.+/-]{0,129}\Z").match
_SPACE = r" \t\r\n\f\v\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_OF_HOST = rf"""[^{_SPACE}<>"`/?#]*"""
_OF_PATH = r"""[^\s<>"`、。！（），：；？」』】》]*"""
_RUN = re.compile(f"{_OF_HOST}(?:[/?#]{_OF_PATH})?")
"""The characters of an address in plain text: up to a space or a quote and, after the host, up to the
punctuation of scripts that write no spaces."""
_PATH = re.compile("[/?#]").search
_MORE = re.compile(r"[^ \t\r\n\f</?#]*")
"""Text that some linkifiers still take for the host after a quote or another space."""
_ENDS = ("", "<", *" \t\r\n\f")
_REST = re.compile(r"""[^\s<>"`]*""")
"""The rest of an address that is too long."""
_CLOSING = re.compile(r"\[/|[()\[\]{}]|\\(?=[^/])|[|']")
_PAIRS = {")": "(", "]": "[", "}": "{"}
_TRAILING = ".,;:!?*_~'\u2019\\"
_QUOTED = {'"': re.compile(r'[^" <>]*'), "'": re.compile(r"[^' <>]*"), "<": re.compile(r"[^ <>]*")}
_CONTROLS = "".join(map(chr, range(0x21)))


def signs(text: str, start: int) -> Iterator[re.Match[str]]:
    """The beginnings of addresses in plain text."""
    return (_SIGN if text.isascii() else _SIGN_OF_ANY).finditer(text, start)


def word_at_end(text: str, start: int) -> int:
    """The beginning of the word at the end of the text. More text may make the word an address."""
    last = text[max(start, len(text) - _LONGEST_WORD) :]
    return len(text) - len(last) + len(last.rstrip(_OF_WORD))


def end_of_long(text: str, place: int) -> int:
    return end_of(_REST, text, place, len(text))


def at_sign(text: str, sign: re.Match[str], is_final: bool) -> Found:
    """The addresses that begin at the sign."""
    kind, start, end = sign.lastgroup, sign.start(), sign.end()
    if end == len(text) and not is_final:
        return start
    if kind == "www":
        return _in_text(text, start, start, is_final)
    if kind in ("name", "user"):
        return _in_text(text, start, start, is_final, is_name)
    if kind == "rest":
        begin = begin_of_name(text, start)
        return [] if begin is None else _in_text(text, start, start, is_final, is_name, begin)
    if kind == "ip6":
        return _in_text(text, start, start, is_final) if sign[0][-1] in "/?#" and is_ip6(sign[0]) else []
    if kind in ("slashes", "other"):
        if not sign[0].endswith("//"):
            return []
        return _in_text(text, start, end, is_final, is_host if kind == "slashes" else None)
    return _of_scheme(text, start, end, kind or "", is_final) if sign[0][-1] == ":" else []


def _of_scheme(text: str, start: int, place: int, kind: str, is_final: bool) -> Found:
    """The address of a known scheme, whose colon is before `place`."""
    if kind == "data":
        if not is_final and _MAY_BE_DATA(text, place):
            return start
        return _in_text(text, start, place, is_final) if _DATA(text, place) else []
    slashes = end_of(_SLASHES, text, place)
    if slashes == len(text) and not is_final:
        return start
    has_slash = bool(text[place:slashes].strip("\t\r\n"))
    if kind == "file" and not has_slash:
        return []
    before = text[max(0, start - 256) : start].rstrip(_CONTROLS)[-1:]
    if not has_slash and text[slashes : slashes + 1].isspace():
        return []
    is_one = is_host if not has_slash and kind == "web" and before not in _QUOTED else None
    found = _in_text(text, start, slashes, is_final, is_one, has_host=kind != "script")
    if not found or isinstance(found, int) or before not in _QUOTED:
        return found
    # A client that reads the whole string drops the line breaks in it.
    end = end_of(_QUOTED[before], text, slashes)
    if may_go_on(text, start, end, is_final):
        return start
    is_broken = any(char in text[start:end] for char in "\t\r\n")
    return [*found, Address(start, end, Place.DESTINATION)] if is_broken else found


def _in_text(
    text: str,
    start: int,
    place: int,
    is_final: bool,
    is_one: Callable[[str], object] | None = None,
    begin: int | None = None,
    *,
    has_host: bool = True,
) -> Found:
    """The address that begins at `start` in plain text, and whose host begins at `place`. `is_one`:
    whether the text from `place` on is an address. `begin`: where its name begins, if before `start`."""
    limit = start + MAX_ADDRESS
    end = end_of(_RUN, text, place, limit - place)
    closing = _closing(text, place, end, text[max(0, start - 1) : start])
    path = _PATH(text, place, end)
    is_closed = path is not None and path.start() < closing < end
    if not is_closed and end >= limit:
        return [Address(start, end, is_long=True)]
    if not is_closed and end == len(text) and not is_final:
        return start
    cut = _without_marks(text, place, closing)
    if is_one is not None and not is_one(text[place if begin is None else begin : cut]):
        return []
    if path is not None and path.start() < cut:
        return [Address(start, cut, begin=begin)]
    more = end_of(_MORE, text, end, limit - end) if has_host and text[end : end + 1] not in _ENDS else end
    if may_go_on(text, start, more, is_final):
        return start
    is_unsure = _has_more(text, cut, path.start() if path else end, end, more)
    return [Address(start, end if is_unsure else cut, begin=begin, is_unsure=is_unsure)]


def _has_more(text: str, cut: int, host_end: int, end: int, more: int) -> bool:
    """Whether clients may take the text from `cut` to `host_end`, or from `end` to `more`, for more of the
    host."""
    if MORE_OF_HOST.search(text, cut, host_end):
        return True
    if text[end : end + 1] in ('"', "`") and MORE_OF_HOST.search(text, end, min(more, end + 3)):
        return True
    return "@" in text[end:more]


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
