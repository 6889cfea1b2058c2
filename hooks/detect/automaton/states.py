"""A lazily built automaton that reads a text backwards, for many rules at once.

At each place it knows the positions from which the text continues to its end within a match (`going`), and
the positions from which some text is the rest of a match (`whole`). A rule's first position that is one of
these shows a place where a match may be open, or may be whole. The automaton excludes places for good. The
rule's own pattern must confirm the places that it reports.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from hooks.detect.automaton.positions import Fragment, Positions, bits
from hooks.detect.automaton.tree import (
    ANY,
    After,
    Behind,
    Join,
    Next,
    Node,
    begun,
    conditions_after,
    conditions_before,
)
from hooks.loading.screen import MAX_STEPS

Place = tuple[int, int, int]
"""A place, the rules that may have an open match there, and those that may have a whole one, as bits."""
_NOWHERE: list[Place] = []


class Sketch(NamedTuple):
    """The facts about a rule that the automaton knows."""

    match: Node
    behind: Node | None = None
    """The text that must come directly before a match."""
    width: int = 0
    """Most characters of `behind`."""
    is_cut: bool = False
    """A match may end before the text that its pattern reads."""
    shortest: int = 0
    """Fewest characters of a match."""


def left_of(positions: Positions, sketch: Sketch) -> tuple[Fragment, bool]:
    """Add positions for the text before a match. Returns them, and whether they are those of a text, and not
    only of the character before the match."""
    conditions = conditions_before(sketch.match)
    behinds = [one.part for one in conditions if isinstance(one, After)]
    if sketch.behind is not None:
        behinds.insert(0, sketch.behind)
    for behind in behinds:
        left = positions.add(behind)
        if not left.is_empty:
            return left, True
    patterns = [one.pattern for one in conditions if isinstance(one, Behind)]
    return positions.add_one(Behind("".join(patterns))), False


def end_of(sketch: Sketch, match: Node, *, is_rare: bool = False) -> Next:
    """Return the condition on the character after a match. `is_rare`: `match` is only a beginning."""
    patterns = [] if sketch.is_cut or is_rare else [one.pattern for one in conditions_after(match)]
    return Next("".join(reversed(patterns)))


class State(dict[str, "State"]):
    """The facts about a place, and the states at the place before it, by the character there."""

    __slots__ = (
        "_automaton",
        "_left",
        "begun",
        "going",
        "is_conditional",
        "is_marked",
        "may_be",
        "may_open",
        "shown",
        "starts",
        "whole",
    )

    def __init__(self, automaton: "Automaton", going: int, whole: int, starts: int) -> None:
        super().__init__()
        self._automaton = automaton
        self._left: State | None = None
        self.going = going
        self.whole = whole
        self.starts = starts
        """The positions that end a match. There are none before the place where a search begins."""
        self.may_open = automaton.begun(going)
        """The rules, as bits, that may have an open match at the next place."""
        self.may_be = automaton.begun(whole)
        """The rules that may have a whole match at the next place."""
        self.shown = automaton.shown(going | whole)
        """The rules whose `behind` may begin here."""
        self.begun = self.may_open | self.may_be
        self.is_marked = bool(self.begun | self.shown)
        self.is_conditional = bool(self.begun & automaton.conditional)

    def __missing__(self, char: str) -> "State":
        state = self[char] = self._automaton.step(self, char)
        return state

    @property
    def left(self) -> "State":
        """The state with which to read on, left of the place where the search begins."""
        if self._left is None:
            self._left = self._automaton.outside(self)
        return self._left


class Automaton:
    def __init__(self, sketches: Sequence[Sketch | None]) -> None:
        """The rules are numbered in the order of `sketches`. The automaton knows nothing of a rule that has
        None."""
        self._positions = Positions()
        self._rules: list[int] = []
        """For each position its rule, as a bit."""
        self._bodies = self._rights = self._lefts = self._behinds = self._outermost = self._shown_by_text = 0
        self._rest: Fragment | None = None
        """The positions of any text to the end, which all rules with a rare beginning share."""
        self._width = 0
        for rule, sketch in enumerate(sketches):
            if sketch is not None:
                self._add(sketch, 1 << rule)
                self._width = max(self._width, sketch.width)
        self.conditional = self._shown_by_text
        """The rules that the text before a match may exclude."""
        self._positions.close()
        self._states: dict[tuple[int, int, int], State] = {}
        self._num_steps = 0
        self._end = State(self, 0, self._rights & self._positions.of(""), self._rights)

    def _add(self, sketch: Sketch, rule: int) -> None:
        positions = self._positions
        first = positions.count
        left, is_text = left_of(positions, sketch)
        if is_text:
            self._behinds |= _between(first, positions.count)
            self._outermost |= left.first
            self._shown_by_text |= rule
        middle = positions.count
        match = begun(sketch.match)
        is_rare = isinstance(match, Join) and match.parts[-1] is ANY
        body = positions.add(Join(match.parts[:-1]) if isinstance(match, Join) and is_rare else match)
        self._bodies |= _between(middle, positions.count)
        right = self._any_text() if is_rare else positions.add_one(end_of(sketch, match))
        positions.connect(left.last, body.first)
        positions.connect(body.last, right.first)
        self._lefts |= left.last
        self._rights |= right.last
        self._rules += [rule] * (positions.count - len(self._rules))

    def _any_text(self) -> Fragment:
        """Return the positions of any text and of its end."""
        if self._rest is None:
            positions = self._positions
            body = positions.add(ANY)
            self._bodies |= body.last
            right = positions.add_one(Next(""))
            positions.connect(body.last, right.first)
            self._rest = Fragment(body.first | right.first, right.last, False)
        return self._rest

    def places(self, text: str, start: int) -> list[Place]:
        """Return the places from `start` on where rules may match or be open, from left to right."""
        found: list[tuple[int, State]] = []
        state = self._end
        place = len(text)
        for char in reversed(text[start - 1 :] if start else text):
            state = state[char]
            if state.is_marked:
                found.append((place, state))
            place -= 1
        if not start:
            state = state[""]
            if state.is_marked:
                found.append((0, state))
        if not found:
            return _NOWHERE
        found.reverse()
        for _, one in found:
            if one.is_conditional:
                allowed = self._allowed(text, start, found, state)
                return [
                    (place, one.may_open & allowed, one.may_be & allowed)
                    for place, one in found
                    if one.begun & allowed
                ]
        return [(place, one.may_open, one.may_be) for place, one in found]

    def _allowed(self, text: str, start: int, found: list[tuple[int, State]], state: State) -> int:
        """Return the rules, as bits, that the text before the found places does not exclude."""
        wanted = shown = 0
        for _, one in found:
            wanted |= one.begun
            shown |= one.shown
        if wanted & self._shown_by_text:
            left = state.left
            if left.going:
                shown |= self._shown(text, start, left)
            wanted &= ~self._shown_by_text | shown
        return wanted

    def _shown(self, text: str, start: int, state: State) -> int:
        """Return the rules whose `behind` may begin before `start`."""
        shown = 0
        place = start - 1
        end = max(0, place - self._width)
        while state.going and place > end:
            place -= 1
            state = state[text[place]]
            shown |= state.shown
        return shown

    def step(self, state: State, char: str) -> State:
        """Return the state before `char`, which comes before the place of `state`."""
        self._num_steps += 1
        if self._num_steps > MAX_STEPS:
            self._forget()
        matched, before = self._positions.of(char), self._positions.before
        whole, outside = state.whole & ~self._behinds, state.whole & self._behinds
        going = self._bodies if state is self._end else before(state.going | outside)
        return self._state(matched & going, matched & (state.starts | before(whole)), state.starts)

    def outside(self, state: State) -> State:
        return self._state((state.going | state.whole) & self._behinds, 0, 0)

    def begun(self, positions: int) -> int:
        """Return the rules that begin right of one of `positions`."""
        return self._rules_of(positions & self._lefts)

    def shown(self, positions: int) -> int:
        return self._rules_of(positions & self._outermost)

    def _rules_of(self, positions: int) -> int:
        rules = 0
        for position in bits(positions):
            rules |= self._rules[position]
        return rules

    def _state(self, going: int, whole: int, starts: int) -> State:
        key = going, whole, starts
        state = self._states.get(key)
        return self._states.setdefault(key, State(self, *key)) if state is None else state

    def _forget(self) -> None:
        states, self._states, self._num_steps = self._states, {}, 0
        for state in (self._end, *states.values()):
            state.clear()


@lru_cache(1 << 12)
def numbers(rules: int) -> tuple[int, ...]:
    """Return the numbers of rules that are given as bits."""
    return tuple(bits(rules))


def _between(first: int, end: int) -> int:
    return (1 << end) - (1 << first)
