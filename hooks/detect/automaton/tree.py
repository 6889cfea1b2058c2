"""Reads a regular expression as a tree that a superset of its matches follows.

The tree keeps characters, order, alternatives, repeats and look-aheads. Everything else that a pattern can
ask for, as boundaries and longer look-behinds, only makes matches fewer, so the tree leaves it out.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from hooks.detect.automaton.regex_analysis import MOST_PATTERNS, TOKEN, UNLIMITED, bounds_of

_LINE_BREAK = r"[\n\v\f\r\x85\u2028\u2029]"


@dataclass(frozen=True, slots=True)
class One:
    """One character."""

    pattern: str
    literal: str = ""
    """The character itself, unless the pattern is of several."""


@dataclass(frozen=True, slots=True)
class Join:
    parts: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Either:
    branches: "tuple[Node, ...]"


@dataclass(frozen=True, slots=True)
class Repeat:
    part: "Node"
    fewest: int
    most: int


@dataclass(frozen=True, slots=True)
class Ahead:
    """A look-ahead: `part` is read, and the pattern continues where the look-ahead is."""

    part: "Node"


@dataclass(frozen=True, slots=True)
class Behind:
    """A look-behind that reads one character at most. `pattern` matches after an allowed character."""

    pattern: str


@dataclass(frozen=True, slots=True)
class Next:
    """A look-ahead that reads one character. `pattern` matches before an allowed character."""

    pattern: str


@dataclass(frozen=True, slots=True)
class After:
    """A look-behind for `part`."""

    part: "Node"


Node = One | Join | Either | Repeat | Ahead | Behind | After | Next
NOTHING = Join(())
ANY = Repeat(One(r"(?s:.)"), 0, UNLIMITED)
_LITERAL = re.compile(r"[^.\\\[]|\\[^\w]")
_RARE = 4
"""A match that begins with this many literals is so rare that its other characters need not be known."""


@lru_cache(maxsize=MOST_PATTERNS)
def tree_of(pattern: str) -> Node | None:
    """Return the tree of a pattern that `analyse` accepts; None: the pattern has no tree."""
    parser = _Parser(pattern)
    return parser.parse() if parser.has_tree else None


def begun(node: Node, num_rare: int = _RARE) -> Node:
    """Return the node, or only its beginning and anything after it if that beginning is rare: it ends in
    `num_rare` literals."""
    if not isinstance(node, Join):
        return node
    if len(node.parts) == 1:
        return begun(node.parts[0], num_rare)
    num_literals = 0
    for i, part in enumerate(node.parts):
        if isinstance(part, One):
            num_literals = num_literals + 1 if part.literal else 0
        elif not isinstance(part, (Behind, After, Ahead, Next)):
            num_literals = 0
        if num_literals == num_rare:
            return Join((*node.parts[: i + 1], ANY))
    return node


def literals_of(node: Node) -> tuple[str, ...]:
    """Return texts of which every match contains one. The pattern regards case."""
    match node:
        case One(_, literal):
            return (literal,)
        case Repeat(part, fewest) if fewest:
            return literals_of(part)
        case Either(branches):
            return tuple(literal for branch in branches for literal in literals_of(branch))
        case Join(parts):
            rows = "".join(one.literal or "\0" if isinstance(one, One) else "\0" for one in parts).split("\0")
            found = [(row,) for row in rows] + [literals_of(part) for part in parts]
            return max(found, key=lambda literals: min(map(len, literals)))
    return ("",)


def conditions_before(node: Node) -> "list[Behind | After]":
    """Return the look-behinds that come before the first character of every match."""
    return [one for one in _leading(node, 1) if isinstance(one, (Behind, After))]


def conditions_after(node: Node) -> list[Next]:
    """Return the look-aheads that come after the last character of every match."""
    return [one for one in _leading(node, -1) if isinstance(one, Next)]


def _leading(node: Node, step: int) -> Iterator[Node | None]:
    """Yield the assertions before the first character of every match, or after the last if `step` is -1.
    Then yield None."""
    if isinstance(node, Join):
        for part in node.parts[::step]:
            for found in _leading(part, step):
                yield found
                if found is None:
                    return
    elif isinstance(node, (Behind, After, Next)):
        yield node
    elif not (isinstance(node, Ahead) and step < 0):
        yield None


@dataclass(slots=True)
class _Frame:
    """An open group."""

    opener: str = ""
    parts: list[Node] = field(default_factory=list)
    branches: list[Node] = field(default_factory=list)

    def end_branch(self) -> None:
        self.branches.append(self.parts[0] if len(self.parts) == 1 else Join(tuple(self.parts)))
        self.parts = []

    def node(self) -> Node:
        self.end_branch()
        return self.branches[0] if len(self.branches) == 1 else Either(tuple(self.branches))


class _Parser:
    def __init__(self, pattern: str) -> None:
        self._tokens = [*TOKEN.finditer(pattern)]
        # In `regex`, flags without a group hold for the whole pattern.
        self._flags = "".join(token[0] for token in self._tokens if token.lastgroup == "flags")
        self._frames = [_Frame()]
        self._captured: dict[str, Node] = {}
        openers = [token[0] for token in self._tokens if token.lastgroup == "open"]
        self.has_tree = "(?" not in openers  # a condition on a group
        self._regards_case = "i" not in "".join([self._flags, *openers])
        self._knows_groups = self._regards_case and not any(
            opener == "(?|" or opener.endswith(">") for opener in openers if opener != "(?>"
        )
        self._numbers: list[int] = []
        """For each open group its number; 0: none."""
        self._num_groups = 0

    def parse(self) -> Node:
        for token in self._tokens:
            self._take(token)
        return self._frames[0].node()

    def _take(self, token: re.Match[str]) -> None:
        kind, text, parts = token.lastgroup, token[0], self._frames[-1].parts
        if kind == "one":
            parts.append(One(self._in_context(text), self._literal(text)))
        elif kind == "open":
            self._open(text)
        elif kind == "close":
            self._close()
        elif kind == "bar":
            self._frames[-1].end_branch()
        elif kind == "repeat":
            parts[-1:] = [Repeat(parts[-1], *bounds_of(token))]
        elif kind == "end":
            parts.append(Ahead(Repeat(One(r"\n"), 0, 1)))
        elif kind == "line_break":
            parts.append(Join((One(_LINE_BREAK), Repeat(One(r"\n"), 0, 1))))
        elif kind == "reference":
            parts.append(self._captured.get(text[1:], ANY) if self._knows_groups else ANY)
        elif kind in ("boundary", "anchor"):
            parts.append(NOTHING)

    def _open(self, opener: str) -> None:
        self._num_groups += opener == "("
        self._numbers.append(self._num_groups if opener == "(" else 0)
        self._frames.append(_Frame(opener))

    def _close(self) -> None:
        frame = self._frames.pop()
        node = frame.node()
        if number := self._numbers.pop():
            self._captured[str(number)] = node
        if frame.opener in ("(?=", "(?!"):
            node = Next(f"{frame.opener}{node.pattern})") if isinstance(node, One) else Ahead(node)
        elif frame.opener in ("(?<=", "(?<!"):
            node = self._behind(frame.opener, node)
        self._frames[-1].parts.append(node)

    def _behind(self, opener: str, node: Node) -> Node:
        if isinstance(node, One):
            return Behind(f"{opener}{node.pattern})")
        return After(node) if opener == "(?<=" else NOTHING

    def _literal(self, text: str) -> str:
        return text[-1] if self._regards_case and _LITERAL.fullmatch(text) else ""

    def _in_context(self, text: str) -> str:
        """Return the pattern `text` with the flags that hold at its place."""
        around = [frame.opener for frame in self._frames if frame.opener.endswith(":")]
        if not any("a" in opener or "u" in opener for opener in around):
            # A group without these flags takes the whole pattern's: see `encoding_of`.
            around = [opener for opener in around if opener != "(?:"]
        around = [self._flags, *around]
        return f"{''.join(around)}{text}{')' * (len(around) - 1)}"
