"""Spans for the parts of a request's work, independent of any tracing system.

The service sets `CURRENT_SPAN`. Code that does a part of the work begins and ends a child span. Without
tracing, all spans are `NO_SPAN`, which does nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol

Value = str | bool | int | float | Sequence[str]


class Span(Protocol):
    """A part of a request's work. It never holds text of a prompt or an answer. Times are in seconds of
    `time.perf_counter`."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers for a server that does this part. Its spans then belong here (W3C Trace Context)."""

    def child(self, name: str, *, is_remote: bool = False, began: float | None = None) -> "Span":
        """Begin a part of this part. `is_remote`: another server does it. `began`: None means now."""

    def rename(self, name: str) -> None: ...

    def set(self, attributes: Mapping[str, Value]) -> None: ...

    def event(self, name: str, attributes: Mapping[str, Value]) -> None:
        """Something happened now."""

    def end(self, error: BaseException | str | None = None, *, ended: float | None = None) -> None:
        """The part is over; only the first call counts. `error`: why it failed,
        or a name for it. `ended`: None means now."""


class NoSpan:
    """A span that is not traced. `headers`: another server gets them nevertheless."""

    def __init__(self, headers: Mapping[str, str] | None = None) -> None:
        self.headers = headers or {}

    def child(self, name: str, *, is_remote: bool = False, began: float | None = None) -> "NoSpan":
        return self

    def rename(self, name: str) -> None:
        pass

    def set(self, attributes: Mapping[str, Value]) -> None:
        pass

    def event(self, name: str, attributes: Mapping[str, Value]) -> None:
        pass

    def end(self, error: BaseException | str | None = None, *, ended: float | None = None) -> None:
        pass


NO_SPAN: Span = NoSpan()

CURRENT_SPAN: ContextVar[Span] = ContextVar("current_span", default=NO_SPAN)
"""The part that the running code belongs to."""


@contextmanager
def current(span: Span) -> Iterator[None]:
    """The code inside belongs to this part. No generator may yield inside."""
    before = CURRENT_SPAN.set(span)
    try:
        yield
    finally:
        CURRENT_SPAN.reset(before)


@contextmanager
def part(name: str) -> Iterator[Span]:
    """The code inside is a part of the current part. No generator may yield inside."""
    span = CURRENT_SPAN.get().child(name)
    try:
        with current(span):
            yield span
    except BaseException as error:
        span.end(error)
        raise
    span.end()
