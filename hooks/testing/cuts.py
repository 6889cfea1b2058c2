"""The ways to cut a stream. A hook must say the same for all of them."""

import math
import random
from collections.abc import Awaitable, Callable, Iterator, Sequence

from engine.recording import Recording
from hooks.testing.streams import is_interleaved, num_places, token_places

Places = tuple[int, ...]
"""See `hooks.testing.streams`."""

Cut = Places | None
"""None: the stream as it was recorded."""

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
    """No cut, all named cuts (the fewest places first), random cuts, and the stream as it was recorded, if
    its outputs are interleaved."""
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
