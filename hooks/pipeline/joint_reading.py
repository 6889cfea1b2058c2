"""A joint screen reads one stream for guards that stand side by side.

While the screen reads, none of the guards is called. The first guard holds all text that any of them would
hold. Where the screen gives up, each guard goes on from the text that the screen has cleared, and is called.
The screen reads again once only the first guard holds text. If a guard has changed the text, the guards have
seen different texts; then the screen waits until the change is out of reach.
"""

from time import monotonic

from hooks.pipeline.failure import BadVerdictError, HookFailure
from hooks.pipeline.joint_screen import JointScreen, ScreenError, State
from hooks.pipeline.piece import Piece
from hooks.pipeline.stage import HookStage

MOST_READ = 256
"""Most characters of a chunk that a screen reads. A guard reads a longer one faster."""

ENOUGH = 16
"""Chunks that a screen must read to be worth it."""
MOST_WAIT = 64
"""Most chunks that a screen waits."""


class JointReading:
    """One stream, and the guards of a run."""

    __slots__ = (
        "_ahead",
        "_base",
        "_first",
        "_num_ahead",
        "_num_to_wait",
        "_others",
        "_screen",
        "_seconds",
        "_shown",
        "_stages",
        "_state",
        "_tallies",
        "_unknown",
        "_verdicts",
        "_wait",
        "end",
        "failed",
    )

    def __init__(self, screen: JointScreen, stages: list[HookStage], end: int) -> None:
        """`end`: the place of the hook behind the run."""
        self.end = end
        self.failed: HookStage | None = None
        """The guard that fails the request, because its screen failed: its `failure` says how."""
        self._screen = screen
        self._stages = stages
        self._first, *self._others = stages
        self._tallies = [stage.tally for stage in stages]
        self._verdicts: dict[tuple[bool, ...], int] = {}
        """The chunks that were read, by whether each guard held text. The tallies do not have them yet."""
        self._seconds = 0.0
        """The time that these chunks took."""
        self._state: State | None = None
        """The state behind all text that was shown to the first guard. None: the guards are called."""
        # The place that the reading goes on from: all guards were shown the text before it.
        self._base = screen.start
        """The state `_num_ahead` characters behind this place, in which no match is open."""
        self._num_ahead = 0
        self._ahead = ""
        """The text behind the place that only the first guard was shown by then."""
        self._shown = [0] * len(stages)
        """For each guard, the pieces of text that it was shown by then."""
        self._unknown = 0
        """Characters until `_base` is exact."""
        self._wait = 1
        """Chunks to wait before the screen reads again: many if it gave up often."""
        self._num_to_wait = 1
        """Chunks left to wait. Each guard is called with the first one, and makes its state."""

    def take(self, piece: Piece) -> bool:
        """Read the piece in place of the guards. What is left of it is what they would release. False: the
        guards must be called, or one of them has `failed`."""
        started = monotonic()
        if not piece.is_read:
            piece.read()
        text = piece.text
        state = self._read(text)
        if state is None:
            return False
        first = self._first
        if text:
            first.pieces.append(text)
        if state.held or first.held.pieces is not None:
            piece.become(first.held.hold_back(state.held, text, piece.fragments))
        self._count(state, monotonic() - started)
        return True

    def _read(self, text: str) -> State | None:
        """The state behind the stream's next text."""
        state = self._state
        if state is None and self._num_to_wait:
            self._num_to_wait -= 1
            return None
        self._screen.seconds = None
        try:
            if state is None and (state := self._entered()) is None:
                return None
            if len(text) > MOST_READ:
                state = None
            else:
                for char in text:
                    state = state[char]
                    if state is None:
                        break
        except ScreenError as error:
            self._fail(error)
            state = None
        if state is None:
            self._leave()
        self._state = state
        return state

    def _fail(self, error: ScreenError) -> None:
        if self.failed is None:
            self.failed = self._stages[error.place]
            self.failed.failure = HookFailure(error.__cause__ or error)

    def _count(self, state: State, seconds: float) -> None:
        """Count a verdict of each guard. They share the time. `leave` adds it to their tallies."""
        self._verdicts[state.holds] = self._verdicts.get(state.holds, 0) + 1
        self._seconds += seconds

    def _add_to_tallies(self) -> None:
        share = self._seconds / len(self._tallies)
        for tally in self._tallies:
            tally.seconds += share
        for holds, num_chunks in self._verdicts.items():
            for tally, is_held in zip(self._tallies, holds, strict=True):
                if is_held:
                    tally.num_holds += num_chunks
                else:
                    tally.num_emitted += num_chunks
        self._verdicts, self._seconds = {}, 0.0

    def leave(self) -> None:
        """The guards are called from now on, unless one of them has `failed`."""
        self._screen.seconds = None
        self._leave()

    def _leave(self) -> None:
        if self._verdicts:
            self._add_to_tallies()
        state, self._state = self._state, None
        if state is None:
            return
        first = self._first
        self._wait_for_more(len(first.pieces) - self._shown[0])
        text = self._ahead + "".join(first.pieces[self._shown[0] :])
        num_pending = first.held.num_characters
        decided, pending = text[: len(text) - num_pending], text[len(text) - num_pending :]
        for place, stage in enumerate(self._stages):
            if stage is first:
                before = _end_of(stage.pieces, self._screen.width + num_pending)
                self._skip(place, before[: len(before) - num_pending], pending)
            else:
                if decided:
                    stage.pieces.append(decided)
                self._skip(place, _end_of(stage.pieces, self._screen.width), "")
        self._go_on_from(self._screen.decided(state), pending, num_pending)

    def _skip(self, place: int, before: str, pending: str) -> None:
        state = self._stages[place].context.state
        try:
            self._screen.ask(place, self._screen.screens[place].skip, state, before, pending)
        except ScreenError as error:
            self._fail(error)

    def _may_skip(self, place: int) -> bool:
        screen = self._screen
        may_skip = screen.ask(place, screen.screens[place].may_skip, self._stages[place].context.state)
        if not isinstance(may_skip, bool):
            raise ScreenError(place) from BadVerdictError("its may_skip gave neither True nor False")
        return may_skip

    def _wait_for_more(self, num_read: int) -> None:
        """The screen has given up after `num_read` chunks."""
        self._wait = 1 if num_read >= ENOUGH else min(2 * self._wait, MOST_WAIT)
        self._num_to_wait = self._wait - 1

    def _go_on_from(self, base: State, ahead: str, num_ahead: int) -> None:
        self._base, self._ahead, self._num_ahead = base, ahead, num_ahead
        self._shown = [len(stage.pieces) for stage in self._stages]

    def _entered(self) -> State | None:
        """The state behind all text that was shown to the first guard, if the screen may read on there."""
        first = self._first
        num_pending = first.held.num_characters
        if num_pending > MOST_READ:
            return None
        for stage in self._others:
            if stage.held.pieces is not None or stage.is_closed:
                return None
        if not all(map(self._may_skip, range(len(self._stages)))):
            return None
        text = self._ahead + "".join(first.pieces[self._shown[0] :])
        end = len(text) - num_pending
        if end < self._num_ahead:
            return None
        decided, pending = text[:end], text[end:]
        for stage, num_shown in zip(self._others, self._shown[1:], strict=True):
            if "".join(stage.pieces[num_shown:]) != decided:
                self._wait_for_more(0)
                self._unknown = self._screen.width
                self._go_on_from(self._screen.anywhere, pending, 0)
                return None
        new, width = decided[self._num_ahead :], self._screen.width
        self._unknown = max(0, self._unknown - len(new))
        base = self._base if len(new) < width else self._screen.anywhere
        self._go_on_from(self._screen.read_over(base, new[-width:]), pending, 0)
        return None if self._unknown else self._screen.read(self._base, pending)


def _end_of(pieces: list[str], length: int) -> str:
    """The last `length` characters of the pieces or, if that is less, all."""
    first = len(pieces)
    while first and length > 0:
        first -= 1
        length -= len(pieces[first])
    return "".join(pieces[first:])[max(0, -length) :]
