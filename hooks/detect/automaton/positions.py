"""The positions of an automaton: each is one character of a pattern, and has those that may precede it.

This is Glushkov's construction, read backwards. A set of positions is an `int` with a bit for each.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache, reduce
from operator import or_
from typing import NamedTuple

from hooks.detect.automaton.regex_analysis import compiled
from hooks.detect.automaton.tree import After, Ahead, Behind, Either, Join, Next, Node, One, Repeat

MOST_COPIES = 4
"""Most positions that one repeat becomes. The automaton does not count further: it goes round."""
_MOST_CHARACTERS = 4096
"""The number of characters whose positions are kept."""
_MOST_SETS = 1 << 14
"""The number of sets of positions for which those before are kept."""


class Fragment(NamedTuple):
    """The positions of a part of a pattern."""

    first: int
    last: int
    is_empty: bool
    """Whether the part also matches no character."""


_EMPTY = Fragment(0, 0, True)


class Positions:
    """The positions of many patterns."""

    def __init__(self, *, reads_ahead: bool = True) -> None:
        """`reads_ahead`: whether look-aheads have positions."""
        self._reads_ahead = reads_ahead
        self.count = 0
        self.of = lru_cache(_MOST_CHARACTERS)(self._of)
        """Returns the positions that a character matches; '' is the start or the end of the text."""
        self._by_node: dict[One | Behind | Next, int] = {}
        self._allowing: list[tuple[Callable[[str], object], int]] = []
        self._before_special = lru_cache(_MOST_SETS)(self._of_special)
        """Each test of a character, and the positions that a character is allowed at if it passes."""
        self._before: list[int] = []
        """For each position the ones that may come directly before it."""
        self._following: list[int] = []
        """For each position the ones that may come directly after it."""
        self._in_order = self._looping = 0
        self._special: list[tuple[int, int]] = []
        """Other positions, together with all that have the same ones before them, and the ones before."""

    def add(self, node: Node) -> Fragment:
        match node:
            case One():
                return self.add_one(node)
            case Join(parts):
                return self._joined([self.add(part) for part in parts])
            case Either(branches):
                return _either([self.add(branch) for branch in branches])
            case Behind() | After() | Next():
                return _EMPTY
            case Ahead() if not self._reads_ahead:
                return _EMPTY
            case Ahead(part):
                return Fragment(self.add(part).first, 0, True)
            case Repeat(part, fewest, most):
                return self._repeated(part, fewest, most)

    def connect(self, left: int, right: int) -> None:
        """The positions `left` may come directly before the positions `right`."""
        for position in bits(right):
            self._before[position] |= left

    def close(self) -> None:
        """Make `of` and `before` ready. No position is added after this."""
        self._allowing = [(_allowing(node), positions) for node, positions in self._by_node.items()]
        special: dict[int, int] = {}
        for position, before in enumerate(self._before):
            bit = 1 << position
            if before & (bit >> 1):
                self._in_order |= bit
            if before & bit:
                self._looping |= bit
            if before & ~(bit | bit >> 1):
                special[before] = special.get(before, 0) | bit
        self._special = [(positions, before) for before, positions in special.items()]
        self._all_special = reduce(or_, special.values(), 0)

    def after(self, positions: int) -> int:
        """Return the positions that may come directly after one of `positions`."""
        if not self._following:
            self._following = [0] * self.count
            for position, before in enumerate(self._before):
                for one in bits(before):
                    self._following[one] |= 1 << position
        return reduce(or_, (self._following[position] for position in bits(positions)), 0)

    def before(self, positions: int) -> int:
        """Return the positions that may come directly before one of `positions`."""
        found = (positions & self._in_order) >> 1 | positions & self._looping
        special = positions & self._all_special
        return found | self._before_special(special) if special else found

    def _of_special(self, positions: int) -> int:
        """The same for positions that are all special. Results are cached: few such sets ever occur."""
        found = 0
        for alike, before in self._special:
            if positions & alike:
                found |= before
        return found

    def _of(self, char: str) -> int:
        found = 0
        for allows, positions in self._allowing:
            if allows(char):
                found |= positions
        return found

    def add_one(self, node: One | Behind | Next) -> Fragment:
        """Add a position for a character, or for the start or the end of the text."""
        bit = 1 << self.count
        self.count += 1
        self._before.append(0)
        self._by_node[node] = self._by_node.get(node, 0) | bit
        return Fragment(bit, bit, False)

    def _joined(self, parts: list[Fragment]) -> Fragment:
        whole = _EMPTY
        for part in parts:
            self.connect(whole.last, part.first)
            whole = Fragment(
                whole.first | part.first if whole.is_empty else whole.first,
                part.last | whole.last if part.is_empty else part.last,
                whole.is_empty and part.is_empty,
            )
        return whole

    def _repeated(self, part: Node, fewest: int, most: int) -> Fragment:
        if not most:
            return _EMPTY
        begun = self.count
        copies = [self.add(part)]
        most_copies = MOST_COPIES // max(1, self.count - begun)
        copies += [self.add(part) for _ in range(1, min(fewest, most_copies))]
        if most > len(copies):
            self.connect(copies[-1].last, copies[-1].first)
        whole = self._joined(copies)
        return whole if fewest else whole._replace(is_empty=True)


def bits(positions: int) -> Iterator[int]:
    while positions:
        lowest = positions & -positions
        yield lowest.bit_length() - 1
        positions ^= lowest


def _either(branches: list[Fragment]) -> Fragment:
    first = last = 0
    for branch in branches:
        first, last = first | branch.first, last | branch.last
    return Fragment(first, last, any(branch.is_empty for branch in branches))


def _allowing(node: One | Behind | Next) -> Callable[[str], object]:
    match = compiled(node.pattern).match
    return (lambda char: match(char, len(char))) if isinstance(node, Behind) else match
