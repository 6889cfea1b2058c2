"""A cut at which a hook returns something else, and the difference in words."""

from collections.abc import Iterator
from dataclasses import dataclass

from engine.streams.recording import Recording
from hooks.testing.play import Released
from hooks.testing.run_modes import Cut
from hooks.testing.streams import cut

CONTEXT = 30
"""Characters to show on either side of a difference."""
MAX_PLACES = 10
"""Places to name."""


@dataclass(frozen=True)
class Difference:
    """A cut with another outcome than the whole text in one chunk."""

    stream: Recording
    places: Cut
    where: str
    whole: Released
    got: Released

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"{cut_at(self.places)} ({self.where}):"
        yield from _chunks(cut(self.stream, self.places))
        whole, got = self.whole.outcome, self.got.outcome
        if whole == got:
            yield "  run again, it was as the whole: the hook does not always say the same"
        for key in whole.texts | got.texts:
            expected, found = whole.texts.get(key, ""), got.texts.get(key, "")
            if expected != found:
                index, channel, *_ = key
                start = num_shared(expected, found)
                yield f"  {channel} of output {index}, from character {start} on"
                yield f"  whole   {_excerpt(expected, start)}"
                yield f"  cut     {_excerpt(found, start)}"
        for index in whole.finishes | got.finishes:
            finishes = whole.finishes.get(index), got.finishes.get(index)
            if finishes[0] != finishes[1]:
                yield f"  finish of output {index}: whole {finishes[0]}, cut {finishes[1]}"
        if whole.failed != got.failed:
            yield f"  whole: {failure_of(self.whole)}; cut: {failure_of(self.got)}"


def cut_at(places: Cut) -> str:
    if places is None:
        return "as it was recorded"
    more = ", …" if len(places) > MAX_PLACES else ""
    return f"cut at {', '.join(map(str, places[:MAX_PLACES]))}{more}" if places else "not cut"


def num_shared(one: str, other: str) -> int:
    """Length of the longest text that both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


def failure_of(released: Released) -> str:
    error = released.failure
    cause = error.__cause__ if error else None
    if error is None:
        return "no failure"
    return f"{type(cause).__name__}: {cause}" if cause else str(error)


def _chunks(stream: Recording) -> Iterator[str]:
    streams: dict[str, list[str]] = {}
    for delta in (timed.delta for timed in stream.deltas if timed.delta.text):
        call = f" {delta.tool_call.index}" if delta.tool_call else ""
        # A chunk's ends show where it was cut.
        is_long = len(delta.text) > 2 * CONTEXT
        text = f"{delta.text[:CONTEXT]}…{delta.text[-CONTEXT:]}" if is_long else delta.text
        streams.setdefault(f"output {delta.index}, {delta.channel}{call}", []).append(repr(text))
    for name, chunks in streams.items():
        of = f" of {name}:" if len(streams) > 1 else ""
        yield f"  chunks{of}  {' | '.join(chunks)}"


def _excerpt(text: str, position: int) -> str:
    start, end = max(0, position - CONTEXT), position + CONTEXT
    return repr(("…" if start else "") + text[start:end] + ("…" if end < len(text) else ""))
