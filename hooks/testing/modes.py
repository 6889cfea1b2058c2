"""Every way in which hooks may be run on a stream, wherever it is cut."""

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

from engine.recording import Recording
from hooks.loading.loader import LoadedHook
from hooks.pipeline.pipeline import GuardFactory
from hooks.testing.cuts import Cut, Places, smallest
from hooks.testing.play import Released, closing, opened, play_once
from hooks.testing.streams import cut

MODES = (
    (True, False, "streaming"),
    (False, False, "not streaming"),
    (True, True, "streaming, in a worker"),
)
"""Whether the client asked for a stream, and whether the hooks are behind the workers' protocol."""


@dataclass(frozen=True)
class Mode:
    opener: GuardFactory
    stream: Recording
    whole: Recording
    """The same, not cut at all."""
    streaming: bool
    where: str
    """The mode in words."""

    async def play(self, places: Cut) -> Released:
        # What is whole is cut sooner than what came in many deltas.
        stream = self.stream if places is None else cut(self.whole, places)
        return await play_once(self.opener, stream, streaming=self.streaming)

    async def smallest(self, places: Cut, is_wrong: Callable[[Released], object]) -> Cut:
        """Without those that it is wrong without as well."""

        async def fails(fewer: Places) -> object:
            return is_wrong(await self.play(fewer))

        return places and await smallest(places, fails)


async def modes(hooks: list[LoadedHook], stream: Recording) -> AsyncGenerator[Mode]:
    """Closes the hooks behind the last."""
    whole = cut(stream, ())
    async with closing(hooks):
        for streaming, in_worker, where in MODES:
            async with opened(hooks, in_worker=in_worker) as opener:
                yield Mode(opener, stream, whole, streaming, where)
