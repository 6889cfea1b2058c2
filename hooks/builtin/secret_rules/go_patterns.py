"""Patterns of Go's `regexp` as parts in the syntax of `regex`.

A part stands for itself: it does not depend on flags before it. Classes are ASCII, as in Go.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

_CLASSES = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "blank": r"\t ",
    "digit": "0-9",
    "lower": "a-z",
    "space": r"\t\n\v\f\r ",
    "upper": "A-Z",
    "word": r"0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}
_ESCAPED = {"d": "0-9", "w": "0-9A-Za-z_", "s": r"\t\n\f\r "}
_TOKEN = re.compile(
    r"""
    (?P<flags>\(\?(?P<set>[imsU]*(?:-[imsU]+)?)(?P<ends>[:)]))
  | (?P<open>\((?:\?P?<\w+>)?)
  | (?P<close>\)) | (?P<bar>\|)
  | (?P<repeat>(?:[*+?]|\{(?P<fewest>\d+)(?P<comma>,(?P<most>\d*))?\})(?P<lazy>\??))
  | (?P<refused>\\[QC]|\\[1-9]|\(\?)
  | (?P<one>\\x\{[0-9A-Fa-f]+\}|\\x[0-9A-Fa-f]{2}|\\[pP](?:\{\^?\w+\}|\w)|\\.
           |\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_IN_CLASS = re.compile(r"\[:(\^?)(\w+):\]|\\x\{([0-9A-Fa-f]+)\}|\\(.)|(.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Part:
    """An element of a pattern with its repeat."""

    text: str
    """The element once; nothing around it changes its meaning."""
    ignores_case: bool = False
    fewest: int = 1
    most: int | None = 1
    """None: no bound."""
    is_lazy: bool = False
    group: int = 0
    """The number of the capturing group that this is; 0: none."""
    branches: tuple[tuple["Part", ...], ...] = ()
    """The alternatives of a group."""
    is_empty: bool = False
    """An anchor or a boundary."""

    @property
    def repeat(self) -> str:
        if self.fewest == self.most:
            return f"{{{self.fewest}}}" if self.fewest != 1 else ""
        most = "" if self.most is None else self.most
        return f"{{{self.fewest},{most}}}{'?' if self.is_lazy else ''}"

    @property
    def once(self) -> str:
        return f"(?i:{self.text})" if self.ignores_case else self.text

    @property
    def has_bound(self) -> bool:
        return self.most is not None and all(one.has_bound for branch in self.branches for one in branch)

    @property
    def num_groups(self) -> int:
        inner = sum(one.num_groups for branch in self.branches for one in branch)
        return inner + bool(self.group)

    def within(self, most: int) -> "Part":
        """Return the part with every unbounded repeat ended at `most`."""
        branches = tuple(tuple(one.within(most) for one in branch) for branch in self.branches)
        bound = max(self.fewest, most) if self.most is None else self.most
        text = grouped(branches) if branches else self.text
        return replace(self, most=bound, branches=branches, text=text)


def written(parts: Iterable[Part]) -> str:
    runs = groupby(parts, key=lambda part: part.ignores_case)
    texts = ((ignores, "".join(part.text + part.repeat for part in run)) for ignores, run in runs)
    return "".join(f"(?i:{text})" if ignores else text for ignores, text in texts)


def grouped(branches: Iterable[Sequence[Part]]) -> str:
    return f"(?:{'|'.join(map(written, branches))})"


def parsed(pattern: str) -> list[list[Part]]:
    """Return the alternatives of a pattern. Raises `ValueError` for syntax that cannot be kept."""
    reader = _Reader(pattern)
    branches = reader.alternatives("", 0)
    if reader.place < len(pattern):
        raise ValueError("a bracket closes nothing")
    return branches


class _Reader:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.place = 0
        self._num_groups = 0

    def alternatives(self, flags: str, depth: int) -> list[list[Part]]:
        """Read up to the bracket that closes the group, which the caller takes."""
        branches: list[list[Part]] = [[]]
        while self.place < len(self.pattern):
            token = _TOKEN.match(self.pattern, self.place)
            if token is None or token.lastgroup is None:
                raise ValueError(f"no pattern at {self.pattern[self.place :]!r}")
            kind = _kind(token)
            if kind == "close" and depth:
                return branches
            self.place = token.end()
            if kind == "close":
                raise ValueError("a bracket closes nothing")
            if kind == "refused":
                raise ValueError(f"{token[0]} cannot be kept")
            if kind == "bar":
                branches.append([])
            elif kind == "repeat":
                self._repeat(branches[-1], token)
            elif kind == "flags" and token["ends"] == ")":
                flags = _with(flags, token["set"])
            elif kind in ("flags", "open"):
                branches[-1].append(self._group(token, flags, depth))
            else:
                branches[-1].append(_one(token[0], flags))
        if depth:
            raise ValueError("a bracket is not closed")
        return branches

    def _group(self, token: re.Match[str], flags: str, depth: int) -> Part:
        number = 0
        if token["open"]:
            self._num_groups += 1
            number = self._num_groups
        else:
            flags = _with(flags, token["set"])
        branches = self.alternatives(flags, depth + 1)
        self.place += 1
        return Part(grouped(branches), group=number, branches=tuple(map(tuple, branches)))

    def _repeat(self, parts: list[Part], token: re.Match[str]) -> None:
        if not parts or (parts[-1].fewest, parts[-1].most) != (1, 1):
            raise ValueError(f"{token[0]} repeats nothing")
        first = token[0][0]
        fewest = int(token["fewest"] or (first == "+"))
        most: int | None = {"?": 1, "*": None, "+": None}.get(first, fewest)
        if token["comma"]:
            most = int(token["most"]) if token["most"] else None
        parts[-1] = replace(parts[-1], fewest=fewest, most=most, is_lazy=bool(token["lazy"]))


def _kind(token: re.Match[str]) -> str:
    return next(kind for kind in ("flags", "open", "close", "bar", "repeat", "refused", "one") if token[kind])


def _with(flags: str, change: str) -> str:
    added, _, removed = change.partition("-")
    if "U" in change:
        raise ValueError("the flag U cannot be kept")
    return "".join(sorted({*flags, *added} - {*removed}))


def _one(text: str, flags: str) -> Part:
    """Return the part for one character, anchor or boundary."""
    if text in ("[", "\\"):
        raise ValueError(f"{text} is not complete")
    if text in ("^", r"\A"):
        return Part(r"(?<![^\n])" if "m" in flags and text == "^" else r"\A", is_empty=True)
    if text in ("$", r"\z"):
        return Part(r"(?![^\n])" if "m" in flags and text == "$" else r"\Z", is_empty=True)
    if text in (r"\b", r"\B"):
        return Part(f"(?a:{text})", is_empty=True)
    if text == ".":
        return Part(r"[\s\S]" if "s" in flags else ".")
    if text[0] == "[":
        return Part(_class(text), "i" in flags)
    if text[0] == "\\" and text[1].lower() in _ESCAPED:
        return Part(f"[{'^' * text[1].isupper()}{_ESCAPED[text[1].lower()]}]")
    if text.startswith(r"\x{"):
        text = re.escape(chr(int(text[3:-1], 16)))
    elif text in "{}[]":
        text = f"\\{text}"
    return Part(text, "i" in flags and any(map(str.isalpha, text)))


def _class(text: str) -> str:
    """Return a class of characters in the syntax of `regex`."""
    negation = "^" if text[1] == "^" else ""
    return f"[{negation}{''.join(map(_in_class, _IN_CLASS.finditer(text[1 + len(negation) : -1])))}]"


def _in_class(found: re.Match[str]) -> str:
    negated, name, code, escaped, char = found.groups()
    if name:
        if negated or name not in _CLASSES:
            raise ValueError(f"{found[0]} cannot be kept")
        return _CLASSES[name]
    if code:
        return re.escape(chr(int(code, 16)))
    if escaped in _ESCAPED:
        return _ESCAPED[escaped]
    if escaped in ("D", "W", "S"):
        return f"\\{escaped}"
    if escaped:
        return f"\\{escaped}"
    return f"\\{char}" if char in "[]&|~" else char
