"""An answer as it comes, and the stages that change it.

    engine ─► echo ─► rewindable ─► parsers ─► the guard        deltas
    engine ◄─ echo ◄─ rewindable ◄─ parsers ◄─ the guard        `rewind` and `aclose`

A stage wraps a `Generation` and changes only what it changes. Two things travel backwards: a rewind of
an output, and closing.

A reader gets deltas by iteration. While it waits for one, it may also get them by a call (`hand_to`).
"""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from typing import Generic, TypeVar

from engine.protocol import Delta, Deltas, EngineError, Rewind, Take
from engine.protocol.deltas import first_tokens, join

Made = TypeVar("Made")


class Generation:
    """The deltas of one request. Iterate over it, and close it (`contextlib.aclosing`)."""

    __slots__ = ("_can_hand_over", "_deltas", "_sent")

    def __init__(self, deltas: Deltas, *, can_hand_over: bool = False) -> None:
        """`deltas`: of `Engine.generate`. `can_hand_over`: as `ModelInfo` has it."""
        self._deltas = deltas
        self._can_hand_over = can_hand_over
        self._sent: Rewind | Take | None = None

    @classmethod
    def of(cls, deltas: "Deltas | Generation") -> "Generation":
        return deltas if isinstance(deltas, Generation) else cls(deltas)

    def __aiter__(self) -> AsyncIterator[Delta]:
        return self

    def __anext__(self) -> Awaitable[Delta]:
        sent, self._sent = self._sent, None
        return self._deltas.asend(sent)

    def rewind(self, rewind: Rewind) -> None:
        """Rewind the output whose delta came last. Its next deltas continue behind the kept tokens. An engine
        that cannot rewind ignores it."""
        self._sent = rewind

    def hand_to(self, take: Take) -> None:
        """Have deltas given to `take` while the reader waits for the next one. Call it once, behind the first
        delta. A delta that `take` does not take comes by iteration, and so does the last of each output.
        Without effect if the engine or a stage cannot do it.

        `take` runs in the context of the caller, as if the reader itself ran.
        """
        if self._can_hand_over:
            self._sent = partial(copy_context().run, take)  # type: ignore[call-arg]

    async def aclose(self) -> None:
        """Cancel the engine's work. Closing twice is fine."""
        await self._deltas.aclose()


class Stage(Generation):
    """The deltas of `source`, changed. Closing the stage closes `source`."""

    __slots__ = ("_changed", "source")

    def __init__(
        self, source: Generation, change: Callable[[Generation], AsyncGenerator[Delta, None]]
    ) -> None:
        """`change` closes `source` however it ends."""
        self.source = source
        self._changed = change(source)

    def __aiter__(self) -> AsyncIterator[Delta]:
        return self._changed

    def __anext__(self) -> Awaitable[Delta]:
        return self._changed.__anext__()

    def rewind(self, rewind: Rewind) -> None:
        self.source.rewind(rewind)

    def hand_to(self, take: Take) -> None:
        """Without effect: deltas are handed through an `InstantStage` alone."""

    async def aclose(self) -> None:
        await self._changed.aclose()


class InstantStage(Stage, Generic[Made]):
    """A stage that can change a delta without waiting. Deltas can be handed through it."""

    __slots__ = ("_make", "_untaken")

    def __init__(
        self,
        source: Generation,
        make: Callable[[Delta], Made],
        change: Callable[[Generation], AsyncGenerator[Delta, None]] | None = None,
    ) -> None:
        """`make`: the delta, or a new list of deltas, that a delta becomes. Anything else comes by iteration
        alone, and needs a `change` of its own, which gets it from `made_of`."""
        super().__init__(source, change or self._deltas_of)
        self._make = make
        self._untaken: tuple[Delta, Made | BaseException] | None = None
        """A delta that a reader could not take all of, and what `make` made of it. It comes next."""

    def hand_to(self, take: Take) -> None:
        self.source.hand_to(partial(self._take, take))

    def _take(self, take: Take, delta: Delta) -> bool:
        try:
            made = self._make(delta)
        except BaseException as error:  # noqa: BLE001 - `made_of` raises it
            self._untaken = delta, error
            return False
        if isinstance(made, Delta):
            if take(made):
                return True
        elif isinstance(made, list):
            while made and take(made[0]):
                del made[0]
            if not made:
                return True
        self._untaken = delta, made
        return False

    def made_of(self, delta: Delta) -> Made:
        """The result of `make` for the next delta. If a reader took a part of it, the part that is left.

        Raises the error of `make`, and `EngineError` if another delta comes than the one that was not taken.
        """
        if self._untaken is None:
            return self._make(delta)
        (untaken, made), self._untaken = self._untaken, None
        if untaken is not delta:  # nobody has looked at it, and `made` stands for other text
            raise EngineError("The engine yielded another delta than the one that was not taken.")
        if isinstance(made, BaseException):
            raise made
        return made

    async def _deltas_of(self, source: Generation) -> AsyncGenerator[Delta, None]:
        async with aclosing(source):
            async for delta in source:
                made = self.made_of(delta)
                for one in made if isinstance(made, list) else (made,):
                    assert isinstance(one, Delta)
                    yield one


class Rewindable(Stage):
    """The same deltas, with positions on their tokens, for readers that keep state, such as parsers.

    After a rewind, an engine continues behind the tokens that are kept. A reader that keeps state of the
    output would have to rewind its state too. So this stage first yields the kept tokens again, from the
    output's beginning, and every reader behind it starts this output anew. Nobody may rewind an output
    while this stage repeats its kept tokens. The stage stores all deltas that it yields.
    """

    __slots__ = ("_counts", "_rewound", "_yielded")

    def __init__(self, source: Generation) -> None:
        super().__init__(source, self._placed)
        self._yielded: dict[int, list[Delta]] = {}
        self._counts: dict[int, int] = {}
        self._rewound: Rewind | None = None

    def rewind(self, rewind: Rewind) -> None:
        self._rewound = rewind
        self.source.rewind(rewind)

    async def _placed(self, source: Generation) -> AsyncGenerator[Delta, None]:
        yielded, counts = self._yielded, self._counts
        async with aclosing(source):
            async for delta in source:
                if self._rewound is not None:
                    for kept in self._kept(self._rewound):
                        yield replace(kept, usage=None)
                    self._rewound = None
                delta = _numbered(delta, counts.get(delta.index, 0))
                counts[delta.index] = counts.get(delta.index, 0) + delta.num_output_tokens
                yielded.setdefault(delta.index, []).append(delta)
                yield delta

    def _kept(self, rewind: Rewind) -> list[Delta]:
        kept = join(first_tokens(self._yielded[rewind.index], rewind.num_tokens))
        self._yielded[rewind.index] = kept
        self._counts[rewind.index] = rewind.num_tokens
        return kept


def _numbered(delta: Delta, position: int) -> Delta:
    if not delta.num_output_tokens:
        return delta
    tokens = tuple(t._replace(position=i) for i, t in enumerate(delta.tokens, position))
    return replace(delta, tokens=tokens)
