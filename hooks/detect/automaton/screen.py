"""Reads a text forward, for many rules at once: which matches may be open at its end, and since where.

The positions are those of the rules' sketches. A match that reaches its last position may be whole as soon as
the next character allows it. The rule's own pattern must confirm that.
"""

from collections.abc import Sequence
from functools import lru_cache

from hooks.detect.automaton.positions import Positions
from hooks.detect.automaton.states import Sketch, end_of, left_of
from hooks.detect.automaton.tree import ANY, Join, begun
from hooks.loading.screen import Mark

MOST_HELD = 32
"""Most characters that a screen holds: words, and the beginnings of values. A longer text is the guard's."""
_RARE = 6
"""Literals that begin no word of ordinary text. With four, `ships` calls a guard for `shippo_`."""


class RuleScreen:
    """The screen of a `RuleDetector`. Implements `Screen`."""

    def __init__(self, sketches: Sequence[Sketch]) -> None:
        self.width = max(sketch.width for sketch in sketches)
        self._positions = positions = Positions(reads_ahead=False)
        self._bodies = self._rights = self._firsts = 0
        shortest: dict[int, int] = {}
        for sketch in sketches:
            right, length = self._add(sketch)
            shortest[length] = shortest.get(length, 0) | right
        positions.close()
        self._after = lru_cache(1 << 14)(positions.after)
        self._shortest = [(right, length) for length, right in shortest.items() if length > 1]
        """The ends of rules, and the fewest characters of the matches of these rules."""
        self.start = Mark(0, positions.of("") & self._firsts)
        self.anywhere = Mark(0, 0)

    def _add(self, sketch: Sketch) -> tuple[int, int]:
        """Add a rule's positions. Returns those of the character after a match, and the fewest characters
        before it."""
        positions = self._positions
        left, _ = left_of(positions, sketch)
        first = positions.count
        match = begun(sketch.match, _RARE)
        is_rare = isinstance(match, Join) and match.parts[-1] is ANY
        body = positions.add(Join(match.parts[:-1]) if isinstance(match, Join) and is_rare else match)
        self._bodies |= (1 << positions.count) - (1 << first)
        right = positions.add_one(end_of(sketch, match, is_rare=is_rare))
        positions.connect(left.last, body.first)
        positions.connect(body.last, right.first)
        self._rights |= right.last
        self._firsts |= left.first
        return right.last, 0 if is_rare else sketch.shortest

    def step(self, mark: Mark, char: str) -> Mark | None:
        matched, after = self._positions.of(char), self._after
        _, before, threads = mark
        held = seen = 0
        going: list[tuple[int, int]] = []
        for length, positions in threads:
            positions = after(positions) & matched & ~seen
            if (whole := positions & self._rights) and self._may_be_whole(whole, length):
                return None
            positions &= self._bodies
            if positions:
                going.append((length + 1, positions))
                seen |= positions
        following = after(before) & matched
        if begun := following & self._bodies & ~seen:
            going.append((1, begun))
        if going:
            held = going[0][0]
            if held > MOST_HELD:
                return None
        return Mark(held, following & ~self._bodies | matched & self._firsts, tuple(going))

    def _may_be_whole(self, rights: int, length: int) -> bool:
        """Whether a match of `length` characters that has come to its end is long enough."""
        for right, shortest in self._shortest:
            if length < shortest:
                rights &= ~right
        return rights != 0

    def step_over(self, mark: Mark, char: str) -> Mark:
        matched = self._positions.of(char)
        return Mark(0, matched & (self._after(mark.before) & ~self._bodies | self._firsts))
