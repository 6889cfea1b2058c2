"""The stage that vets an answer behind the engine."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from copy import copy

from engine.protocol import Delta, QueueFullError, RequestError
from engine.streams.generation import Generation, InstantStage
from hooks.pipeline.ask import HookReply
from hooks.pipeline.open_guard import OpenGuard, PassThrough


def guarded(guard: OpenGuard, source: Generation) -> Generation:
    """The deltas that the guard releases, each at once. Closes `source` and the guard at its end.

    Each output's last delta, and only that, has a finish reason. Raises `HookError` and the errors of
    `source`. An upstream server's own words are replaced, because no hook was shown them (contract 5.3).
    """
    return _Guarded(guard, source)


def in_own_words(error: RequestError | QueueFullError, guard: OpenGuard) -> RequestError | QueueFullError:
    """The error without another server's words, if hooks must see all text first (contract 5.3)."""
    if error.unquoted is None or isinstance(guard, PassThrough):
        return error
    return copy(error.unquoted)  # once raised, it refers to `error`, which must not refer back to it


class _Guarded(InstantStage[Delta | list[Delta] | HookReply | None]):
    __slots__ = ("_guard",)

    def __init__(self, guard: OpenGuard, source: Generation) -> None:
        super().__init__(source, guard.pass_through, self._released)
        self._guard = guard

    async def _released(self, source: Generation) -> AsyncGenerator[Delta, None]:
        guard = self._guard
        try:
            async with aclosing(source):
                async for delta in source:
                    first = self.made_of(delta)
                    if isinstance(first, Delta):
                        yield first
                        continue
                    if isinstance(first, list):
                        for released in first:
                            yield released
                        continue
                    step = await guard.feed(delta, first)
                    for released in step.released:
                        yield released
                    if step.is_over:
                        return
                    if step.rewind is not None:
                        source.rewind(step.rewind)
        except (RequestError, QueueFullError) as error:
            raise in_own_words(error, guard) from None
        finally:
            await guard.close()
