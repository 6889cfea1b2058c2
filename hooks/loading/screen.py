"""Screens read the text of a stream in place of guards that search text.

A screen reads a text forward, a character at a time. It knows how many characters at the end may still become
a match, and it gives up where a match may be whole. It may hold more than its guard would, and never less. So
the guard needs to be called only where the screen gives up.

A `JointScreen` is one screen for several guards: an automaton, built as texts need it. A state has the marks
of all their screens after the same text. So a character costs one step, however many guards read it.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from hooks.api import hold

MAX_STEPS = 50_000
"""Most steps that an automaton keeps. Then it forgets them all."""
MAX_PIECES = 50_000
"""Most pieces of texts whose steps are kept as one. Then all are forgotten."""
_LONGEST_PIECE = 12
"""Characters of a piece: models write the same few thousand tokens, hardly ever longer ones."""
_WORD = 64
"""Bits of a whole number that takes no more memory than a place in a table."""


class Mark(NamedTuple):
    """A screen's state at a place of a text. Its parts can be hashed, and equal marks go on equally."""

    held: int
    """The characters before the place that may be the beginning of a match; 0: none."""
    before: Any
    """The part of the state that comes from the text before the place, without matches that may be open."""
    open: Any = ()
    """The matches that may be open."""


class Screen(Protocol):
    """Keeps no state between calls."""

    width: int
    """Most characters before a place that the screen and its guard read to decide the place."""
    start: Mark
    """The mark at the beginning of a stream."""
    anywhere: Mark
    """A mark for any place. It is exact `width` characters further on."""

    def step(self, mark: Mark, char: str) -> Mark | None:
        """Return the mark after `char`; None: the guard must be called."""

    def step_over(self, mark: Mark, char: str) -> Mark:
        """The same, where the guard has decided that no match begins up to there. No match is open then."""


class Screened(ABC):
    """A guard that may have a screen. It reads only its chunks' text, and keeps the end of this text."""

    @property
    @abstractmethod
    def screen(self) -> Screen | None:
        """None: the guard must be called with each chunk."""

    @abstractmethod
    def may_skip(self, state: dict[Any, Any]) -> bool:
        """Whether a screen may read on in the stream that has this state."""

    @abstractmethod
    def skip(self, state: dict[Any, Any], before: str) -> None:
        """Go on in the stream that has this state, of which a screen has read a part. The guard is called
        next with the text after `before`: the stream so far, or at least its last `Screen.width` characters.
        """


class State(dict[str, "State | None"]):
    """The state after each character; None: the guards must be called."""

    __slots__ = ("_screen", "holds", "marks", "over", "pieces", "verdict")

    def __init__(self, screen: "JointScreen", marks: tuple[Mark, ...]) -> None:
        super().__init__()
        self._screen = screen
        self.marks = marks
        self.holds = tuple(mark.held > 0 for mark in marks)
        """For each guard, whether it holds text."""
        self.verdict = hold(max(mark.held for mark in marks))
        """Holds the text that one guard or another holds."""
        self.over: dict[str, State] = {}
        """The states after characters at which no match begins: see `Screen.step_over`."""
        self.pieces: dict[str, State] = {}
        """The states after whole pieces of text. One look here costs less than one for each character, in as
        many places of the memory."""

    def __missing__(self, char: str) -> "State | None":
        state = self[char] = self._screen.step(self, char)
        return state


class JointScreen:
    """The screens of some guards, as one."""

    def __init__(self, screens: Sequence[Screen]) -> None:
        self.width = max(1, *(screen.width for screen in screens))
        self._screens = tuple(screens)
        self._states: dict[tuple[Mark, ...], State] = {}
        self._sets: dict[int, int] = {}
        self._num_steps = 0
        self._num_pieces = 0
        self.start = State(self, tuple(screen.start for screen in screens))
        self.anywhere = State(self, tuple(screen.anywhere for screen in screens))

    def step(self, state: State, char: str) -> State | None:
        """The state after `char`. `State` keeps it."""
        self._count_step()
        marks: list[Mark] = []
        for screen, mark in zip(self._screens, state.marks, strict=True):
            stepped = screen.step(mark, char)
            if stepped is None:
                return None
            marks.append(stepped)
        return self._state(tuple(marks))

    def read(self, state: State, text: str) -> State | None:
        """The state after `text`; None: the guards must be called."""
        for char in text:
            after = state[char]
            if after is None:
                return None
            state = after
        return state

    def read_piece(self, state: State, text: str) -> State | None:
        """`read`, which keeps the result in `State.pieces` if the text may come again."""
        after = self.read(state, text)
        if after is not None and 1 < len(text) <= _LONGEST_PIECE:
            self._num_pieces += 1
            if self._num_pieces > MAX_PIECES:
                self._num_pieces = 1
                for known in (self.start, self.anywhere, *self._states.values()):
                    known.pieces.clear()
            state.pieces[text] = after
        return after

    def read_over(self, state: State, text: str) -> State:
        """The state after `text`, in which the guards have decided that no match begins that may be open."""
        for char in text:
            over = state.over.get(char)
            if over is None:
                self._count_step()
                pairs = zip(self._screens, state.marks, strict=True)
                over = self._state(tuple([screen.step_over(mark, char) for screen, mark in pairs]))
                state.over[char] = over
            state = over
        return state

    def decided(self, state: State) -> State:
        """The state at the same place when the guards have decided that no match is open there."""
        return self._state(tuple([Mark(0, mark.before) for mark in state.marks]))

    def _state(self, marks: tuple[Mark, ...]) -> State:
        state = self._states.get(marks)
        if state is None:
            marks = self._with_shared_sets(marks)
            state = self._states[marks] = State(self, marks)
        return state

    def _with_shared_sets(self, value: Any) -> Any:
        """The value with one object for each set of rules. A screen writes such a set as a whole number of
        thousands of bits, and makes it anew at each step: most of the memory of all states."""
        if isinstance(value, int):
            return self._sets.setdefault(value, value) if value.bit_length() > _WORD else value
        if not isinstance(value, tuple):
            return value
        make = getattr(type(value), "_make", tuple)  # a named tuple's own
        return make(map(self._with_shared_sets, value))

    def _count_step(self) -> None:
        self._num_steps += 1
        if self._num_steps > MAX_STEPS:
            states, self._states, self._sets, self._num_steps = self._states, {}, {}, 0
            for state in (self.start, self.anywhere, *states.values()):
                state.clear()
                state.over.clear()
                state.pieces.clear()
