"""The ways to run hooks on a stream: cut at any place, streaming or not, in this process or in a worker.

A hook must say the same in all of them.
"""

import logging
import math
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from engine.streams.recording import Recording
from hooks.loading.loader import LoadedHook
from hooks.pipeline.open_guard import GuardFactory
from hooks.testing.play import Released, opened, play_once, started
from hooks.testing.streams import cut, is_interleaved, num_places, token_places

Places = tuple[int, ...]
"""See `hooks.testing.streams`."""

Cut = Places | None
"""None: the stream as it was recorded."""

MODES = ((True, False, "streaming"), (False, False, "not streaming"), (True, True, "streaming, in a worker"))
"""Whether the client asked for a stream, and whether the hooks are behind the workers' protocol."""

MAX_RANDOM_PLACES = 12
MAX_IN_TWO = 400
"""The most places at which a stream is cut in two, one after another."""


def named_cuts(stream: Recording) -> Iterator[tuple[str, Places]]:
    """Cut the stream into tokens, into characters, and in two at every place.

    If there are more than `MAX_IN_TWO` places, evenly spread ones are used.
    """
    places, ends = range(1, num_places(stream) + 1), token_places(stream)
    yield "cut into tokens", tuple(ends)
    yield "cut into characters", tuple(places)
    is_long = len(places) > MAX_IN_TWO
    for place in sorted({*_thinned(places), *_thinned(ends)}) if is_long else places:
        yield f"cut at {place}", (place,)


def all_cuts(stream: Recording, *, num_random: int = 0, seed: int = 0) -> Iterator[Cut]:
    """No cut, all named cuts (fewest places first), random cuts, and an interleaved stream as recorded."""
    yield ()
    yield from sorted((places for _, places in named_cuts(stream)), key=len)
    places = range(1, num_places(stream) + 1)
    rng = random.Random(seed)
    for _ in range(num_random if places else 0):
        yield tuple(sorted(rng.sample(places, rng.randint(1, min(len(places), MAX_RANDOM_PLACES)))))
    if is_interleaved(stream):
        yield None


def _thinned(places: Sequence[int]) -> Sequence[int]:
    return places[:: math.ceil(len(places) / (MAX_IN_TWO // 2)) or 1]


async def smallest(cut: Places, fails: Callable[[Places], Awaitable[object]]) -> Places:
    """The failing `cut` without the places that it does not need to fail."""
    size = len(cut) // 2
    while size:
        start = 0
        while start < len(cut):
            fewer = cut[:start] + cut[start + size :]
            if await fails(fewer):
                cut = fewer
            else:
                start += size
        size //= 2
    return cut


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
    async with started(hooks):
        for streaming, in_worker, where in MODES:
            async with opened(hooks, in_worker=in_worker) as opener:
                yield Mode(opener, stream, whole, streaming, where)


@contextmanager
def logged_once() -> Iterator[None]:
    """Inside, while hooks are run again and again, no line about them is logged twice."""
    seen: set[str] = set()

    def is_new(record: logging.LogRecord) -> bool:
        line = record.getMessage()
        is_new = line not in seen
        seen.add(line)
        return is_new

    logger = logging.getLogger("weir.hooks")
    logger.addFilter(is_new)
    try:
        yield
    finally:
        logger.removeFilter(is_new)
