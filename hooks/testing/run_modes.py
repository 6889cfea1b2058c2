"""The ways to run hooks on a stream: streaming or not, in this process or in a worker."""

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

from engine.recording import Recording
from hooks.loading.loader import LoadedHook
from hooks.pipeline.pipeline import GuardFactory
from hooks.testing.cuts import Cut, Places, smallest
from hooks.testing.play import Released, closing, opened, play_once
from hooks.testing.streams import cut

MODES = ((True, False, "streaming"), (False, False, "not streaming"), (True, True, "streaming, in a worker"))
"""Whether the client asked for a stream, and whether the hooks are behind the workers' protocol."""


@dataclass(frozen=True)
class Mode:
    opener: GuardFactory
    stream: Recording
    whole: Recording
    """The stream without a cut."""
    streaming: bool
    where: str
    """The mode in words."""

    async def play(self, places: Cut) -> Released:
        # A whole stream is quicker to cut than one of many deltas.
        stream = self.stream if places is None else cut(self.whole, places)
        return await play_once(self.opener, stream, streaming=self.streaming)

    async def smallest(self, places: Cut, is_wrong: Callable[[Released], object]) -> Cut:
        """The places that the run needs to be wrong."""

        async def fails(fewer: Places) -> object:
            return is_wrong(await self.play(fewer))

        return places and await smallest(places, fails)


async def modes(hooks: list[LoadedHook], stream: Recording) -> AsyncGenerator[Mode]:
    """Each mode in turn. Closes the hooks after the last."""
    whole = cut(stream, ())
    async with closing(hooks):
        for streaming, in_worker, where in MODES:
            async with opened(hooks, in_worker=in_worker) as opener:
                yield Mode(opener, stream, whole, streaming, where)
