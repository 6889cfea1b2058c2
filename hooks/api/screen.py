"""Screens read the text of a stream in place of guards, which are not called meanwhile.

A screen reads a text forward, a character at a time. It knows how many characters at the end could still
become a match, and it gives up where a match may be whole. It may hold more than its guard would, and never
less. So the pipeline needs to call the guard only where the screen gives up.
"""

from typing import Any, NamedTuple, Protocol, runtime_checkable


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
        """As `step`, where the guard has decided that no match begins up to there. No match is open."""


@runtime_checkable
class Screened(Protocol):
    """A hook that may have a screen. It reads only the text of its chunks, and keeps the end of it."""

    @property
    def screen(self) -> Screen | None:
        """None: the hook must be called with each chunk."""

    def may_skip(self, state: dict[Any, Any]) -> bool:
        """Whether the screen may read on in the stream that has this state."""

    def skip(self, state: dict[Any, Any], before: str, pending: str) -> None:
        """Go on in the stream that has this state, of which the screen has read a part. The hook is called
        next with the text after `pending`, which is undecided. `before`: the text before `pending`, or at
        least the last `Screen.width` characters of it."""
