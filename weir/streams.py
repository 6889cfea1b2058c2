"""Guarded streams: what the hooks release of a source, piece by piece."""

import inspect
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Callable,
    Generator,
    Iterable,
    Iterator,
)
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from engine.protocol import Delta
from hooks.api.decision import Decision
from weir.feeding import Feeding, Item

T = TypeVar("T")


class _Guarded(Generic[T]):
    """The result of a stream, so far."""

    def __init__(self, answer: Feeding, source: Any, of: Callable[[Delta], T | None]) -> None:
        """`of`: makes the stream's pieces of released deltas; None: the delta has none."""
        self.answer = answer
        self._source = source
        self._of = of
        self._has_begun = False

    @property
    def decisions(self) -> list[Decision]:
        """The hooks' decisions on the answer so far, and on its prompt."""
        return self.answer.decisions

    @property
    def stop_reason(self) -> str | None:
        """The reason of the hook that ended the answer. None: no hook did."""
        return self.answer.stop_reason


class GuardedStream(_Guarded[T], AsyncIterator[T]):
    """An async stream, guarded. Iterate it once; `async with` closes it.

    It closes its source in every case: at its end, when a hook ends the answer or fails, when the source
    raises, and when it is closed itself, or the task that reads it is cancelled.
    """

    def __init__(self, answer: Feeding, source: AsyncIterable[Item], of: Callable[[Delta], T | None]) -> None:
        super().__init__(answer, source, of)
        self._pieces = self._read(source)

    async def __anext__(self) -> T:
        return await self._pieces.__anext__()

    def __aiter__(self) -> AsyncIterator[T]:
        return self._pieces

    async def _read(self, source: AsyncIterable[Item]) -> AsyncGenerator[T, None]:
        self._has_begun = True
        answer, of = self.answer, self._of
        try:
            async for item in source:
                for delta in await answer.afeed(item):
                    if piece := of(delta):
                        yield piece
                if answer.is_over:
                    return
            for delta in await answer.aend():
                if piece := of(delta):
                    yield piece
        finally:
            await self._close()

    async def _close(self) -> None:
        try:
            await _aclose(self._source)
        finally:
            await self.answer.aclose()

    async def aclose(self) -> None:
        """Close the source, and give the hooks their last calls (contract 2.6). Closing twice is fine."""
        await self._pieces.aclose()
        if not self._has_begun:
            self._has_begun = True
            await self._close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class GuardedIterator(_Guarded[T], Iterator[T]):
    """A stream without an event loop, guarded. As `GuardedStream`; `with` closes it."""

    def __init__(self, answer: Feeding, source: Iterable[Item], of: Callable[[Delta], T | None]) -> None:
        super().__init__(answer, source, of)
        self._pieces = self._read(source)

    def __next__(self) -> T:
        return next(self._pieces)

    def __iter__(self) -> Iterator[T]:
        return self._pieces

    def _read(self, source: Iterable[Item]) -> Generator[T, None, None]:
        self._has_begun = True
        answer, of = self.answer, self._of
        try:
            for item in source:
                for delta in answer.feed(item):
                    if piece := of(delta):
                        yield piece
                if answer.is_over:
                    return
            for delta in answer.end():
                if piece := of(delta):
                    yield piece
        finally:
            self._close()

    def _close(self) -> None:
        try:
            if (close := getattr(self._source, "close", None)) is not None:
                close()
        finally:
            self.answer.close()

    def close(self) -> None:
        """As `GuardedStream.aclose`."""
        self._pieces.close()
        if not self._has_begun:
            self._has_begun = True
            self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


async def _aclose(source: Any) -> None:
    close = getattr(source, "aclose", None) or getattr(source, "close", None)
    if close is not None:
        closing = close()
        if inspect.isawaitable(closing):
            await closing
