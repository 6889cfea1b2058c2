"""The places of hooks' decisions in a text as it was asked about.

A hook after another one is shown the text that the other released. So a decision's place counts the
characters of that text, and is moved back through the changes of the hooks before it.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hooks.api.decision import Decision
from proxy.wire.guard_api.check import JudgedText


class Finding(NamedTuple):
    """A part of a text that a hook does not let pass as it is."""

    start: int
    end: int
    decision: Decision


def findings_in(text: str, judged: JudgedText, hooks: Sequence[str]) -> Iterator[Finding]:
    """The findings in `text`, in order. `hooks`: all hooks, in the order in which they are shown the text."""
    found = sorted(judged.findings, key=lambda one: (hooks.index(one.hook), one.offset))
    for decision in sorted(found, key=lambda one: one.offset):
        before = [one for one in found if hooks.index(one.hook) < hooks.index(decision.hook)]
        start = min(_moved_back(decision.offset, before, hooks), len(text))
        # A terminated text ends there, wherever the piece ended that the hook was shown.
        is_end = decision.action == "terminate"
        end = len(text) if is_end else _moved_back(decision.offset + decision.num_withheld, before, hooks)
        yield Finding(start, max(start, min(end, len(text))), decision)


def _moved_back(place: int, changes: Sequence[Decision], hooks: Sequence[str]) -> int:
    for hook in reversed(hooks):
        place = _before(place, [change for change in changes if change.hook == hook])
    return place


def _before(place: int, changes: Sequence[Decision]) -> int:
    """The place before one hook made its changes. One inside a replacement is at its beginning."""
    moved = 0
    for change in changes:
        start = change.offset - moved
        if place <= start:
            break
        if place < start + change.num_released:
            return change.offset
        moved += change.num_withheld - change.num_released
    return place + moved
