"""Analyses a regular expression before it is used to search streams.

The analysis gives the length of a match, how far to the left the expression looks, and a pattern that finds
open matches: places where a match depends on more text. This pattern is the expression with `\\Z[\\s\\S]` at
its end. It never matches completely; a partial match reports every way through the expression that reaches
the end of the text. Assertions that fail at the end of a text, but may hold with more text, are rewritten.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from hooks.api.extras import from_extra

with from_extra("guards", "regex"):
    import regex

if not regex.compile("ab").search("a", 0, None, None, True, None):
    raise ImportError(f"the guard does not know regex {regex.__version__}: its search takes other arguments")

UNLIMITED = 1 << 32
"""A width without a bound, or with a bound too large to be useful."""

MOST_PATTERNS = 5000
"""Patterns that are kept: the guards that ship have 2,000."""

TOKEN = re.compile(
    r"""
    (?P<comment>\(\?\#[^)]*\))
  | (?P<flags>\(\?[imsau]+\))
  | (?P<refused>\\[XKGL]|\(\*|\(\?(?:[imsau]*[fprwxLV]|R|\d|&|P>|\((?:DEFINE|\?))|\{[^{}]*[idse][^{}]*\})
  | (?P<reference>\\[1-9]\d?|\\g<\w+>|\(\?P=\w+\))
  | (?P<line_break>\\R)
  | (?P<boundary>\\[bBmM])
  | (?P<anchor>\\A|\^)
  | (?P<end>\$|\\[Zz])
  | (?P<repeat>(?:[*+?]|\{(?:(?P<exactly>\d+)|(?P<fewest>\d*),(?P<most>\d*))\})[?+]?)
  | (?P<open>\((?:\?(?:P?<[^\W\d]\w*>|>|\||<?[=!]|[imsau]*(?:-[imsau]+)?:|(?=\(\w+\))))?)
  | (?P<close>\))
  | (?P<bar>\|)
  | (?P<one>\\(?:[pPN]\{[^}]*\}|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|0[0-7]{0,2}|.)
           |\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]|.)
    """,
    re.VERBOSE | re.DOTALL,
)

_AROUND = {"(?=", "(?!", "(?<=", "(?<!"}


@dataclass(frozen=True, slots=True)
class Analysis:
    shortest: int
    """Fewest characters of a match."""
    longest: int
    """Most characters of a match; `UNLIMITED` or more: no bound."""
    ahead: int
    """Most characters after a match that it may depend on."""
    behind: int
    """Most characters before a match that it may depend on."""
    opened: str
    """A pattern for partial search. It finds places where a match depends on more text."""


compiled = lru_cache(maxsize=MOST_PATTERNS)(regex.compile)
"""Compiles a pattern once for all guards that have it. The cache of `regex` itself holds fewer patterns than
one guard has, and is emptied whole."""


@lru_cache(maxsize=MOST_PATTERNS)
def analyse(pattern: str) -> Analysis:
    """Raises `ValueError` for a pattern that `regex` refuses, or that cannot be searched in a stream."""
    walk = _Walk()
    for token in TOKEN.finditer(pattern):
        walk.take(token)
    opened = f"(?:{walk.opened})\\Z[\\s\\S]"
    try:
        compiled(pattern)
        compiled(opened)
    except regex.error as error:
        raise ValueError(f"pattern {pattern!r}: {error}") from error
    whole = walk.groups[0]
    return Analysis(whole.narrowest, whole.widest, walk.ahead, walk.behind, opened)


def bounds_of(repeat: re.Match[str]) -> tuple[int, int]:
    """Return the fewest and the most times that a token `repeat` asks for."""
    most = repeat["exactly"] or repeat["most"] or ("1" if repeat[0][0] == "?" else "")
    fewest = repeat["exactly"] or repeat["fewest"] or ("1" if repeat[0][0] == "+" else "0")
    return int(fewest), int(most) if most else UNLIMITED


Find = Callable[..., "regex.Match[str] | None"]
"""Finds a match in a text, from a place on."""


def finder(pattern: str, timeout: float | None, *, partial: bool = False, is_fixed: bool = False) -> Find:
    """Return the pattern's `search`; or its `match`, which finds a match only at the place (`is_fixed`)."""
    find: Any = compiled(pattern).match if is_fixed else compiled(pattern).search
    if timeout is None and not partial:
        return find  # type: ignore[no-any-return]
    # Positional arguments make a search three times as fast as named ones.
    return lambda text, begin, end=None: find(text, begin, end, None, partial, timeout)


def encoding_of(openers: Sequence[str]) -> str:
    """Return the flag `a` or `u` that holds within groups, if it is not the whole pattern's. `regex` takes a
    group such as `(?a:` to hold for its own text, and not for that of a `(?:` or `(?i:` within it."""
    flagged = next((opener for opener in reversed(openers) if opener.endswith(":")), "")
    return "".join(flag for flag in flagged.partition("-")[0] if flag in "au")


@dataclass(slots=True)
class _Group:
    """An open group: the token that opened it, and its width so far. `UNLIMITED` or more: no bound."""

    opener: str = ""
    place: int = 0
    """The index of the token that opened the group."""
    width: int = 0
    """Most characters of the branch that is being read."""
    widest: int = 0
    """Most characters of the widest branch so far."""
    least: int = 0
    """Fewest characters of the branch that is being read."""
    leasts_before: tuple[int, ...] = ()
    """Fewest characters of each branch before it."""
    last: int = 0
    """Most characters of the last element, which a repeat multiplies."""
    last_least: int = 0
    """Fewest characters of the last element."""
    asserts: bool = False
    """The group contains an assertion."""
    last_asserts: bool = False
    """The last element contains an assertion."""

    @property
    def narrowest(self) -> int:
        return min((*self.leasts_before, self.least))

    def add(self, width: int, least: int) -> None:
        self.last, self.last_least = width, least
        self.last_asserts = False
        self.width += width
        self.widest = max(self.widest, self.width)
        self.least += least

    def repeat(self, fewest: int, most: int) -> None:
        once, least = self.last, self.last_least
        self.add(once * max(0, most - 1), least * (fewest - 1))
        self.last, self.last_least = once * most, least * fewest

    def next_branch(self) -> None:
        self.leasts_before += (self.least,)
        self.width = self.least = self.last = self.last_least = 0


class _Walk:
    """Reads a pattern token by token, and adds up the widths of its groups."""

    def __init__(self) -> None:
        self.groups = [_Group()]
        self._opened: list[str] = []
        self.ahead = 1
        self.behind = 2  # a boundary reads one character, an anchor checks whether there is one
        self._captured = 0

    def take(self, token: re.Match[str]) -> None:
        kind, text, group = token.lastgroup, token[0], self.groups[-1]
        if kind == "refused":
            raise ValueError(f"pattern {token.string!r}: {text} cannot be looked for in a stream")
        if kind == "open":
            self.groups.append(_Group(text, len(self._opened)))
        elif kind == "close" and group.opener:
            self._close(self.groups.pop())
        elif kind == "bar":
            group.next_branch()
        elif kind == "repeat":
            group.repeat(*bounds_of(token))
        else:
            # A line break may be \r\n.
            widest = {"one": 1, "line_break": 2, "reference": self._captured}.get(kind or "", 0)
            group.add(widest, int(kind in ("one", "line_break")))
        if kind in ("boundary", "end") or text in _AROUND:
            for outer in self.groups:
                outer.asserts = True
        self._opened.append(self._rewritten(token, group))

    def _close(self, group: _Group) -> None:
        opener = group.opener
        is_around = opener in _AROUND
        if opener in ("(?=", "(?!"):
            self.ahead += group.widest
        elif is_around:
            self.behind += group.widest
        elif opener == "(" or opener.endswith(">"):
            self._captured = max(self._captured, group.widest)
        if opener == "(?>" and group.asserts:
            self._opened[group.place] = self._plain_opener
        self.groups[-1].add(*((0, 0) if is_around else (group.widest, group.narrowest)))
        self.groups[-1].last_asserts = group.asserts

    @property
    def opened(self) -> str:
        return "".join(self._opened)

    @property
    def _plain_opener(self) -> str:
        return f"(?{encoding_of([group.opener for group in self.groups])}:"

    def _rewritten(self, token: re.Match[str], group: _Group) -> str:
        """Return the token's form in `Analysis.opened`. It must allow every way that the pattern could take
        with more text: the text's end fails no assertion, and no asserting part is possessive or atomic."""
        kind, text = token.lastgroup, token[0]
        is_ahead = text in ("(?=", "(?!")
        around = {outer.opener for outer in self.groups[: -1 if is_ahead else None]}
        if (is_ahead and around & _AROUND) or (kind in ("boundary", "end") and "(?<!" in around):
            raise ValueError(f"pattern {token.string!r}: {text} cannot be within another assertion")
        if kind == "boundary":
            return rf"{self._plain_opener}(?=\Z[\s\S])|{text})"
        if kind == "end":
            return rf"(?:(?=\n?\Z[\s\S])|{text})"
        if kind == "repeat" and len(text) > 1 and group.last_asserts:
            return text.removesuffix("+")
        if kind == "close" and group.opener == "(?!":
            return ")|)"
        return "(?:(?=" if text == "(?!" else text
