"""Runs drawn texts through the guard `links`, at many cuts, and asks the readers what is left."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from benchmarks.leaks_families import pieces_of, released
from benchmarks.link_readers.readers import Read, readers, wrong
from benchmarks.link_readers.texts import drawn
from hooks.builtin.links import Links

_PART = 500


def guard() -> Links:
    return Links(allow=["ok.example", "*.ok.example"], carries=None)


@dataclass
class Outcome:
    num_texts: int = 0
    num_streams: int = 0
    by_reader: Counter[str] = field(default_factory=Counter)
    """Texts in which a reader finds a wrong address before the guard. Each text counts for its first one."""
    uneven: list[tuple[str, Sequence[str]]] = field(default_factory=list)
    """The texts that another cut changed, with the cut."""
    leaked: list[tuple[str, str, list[Read]]] = field(default_factory=list)
    """The texts, what was released of them, and the wrong addresses in it."""


async def measure(num_texts: int, seed: int, num_cuts: int) -> Outcome:
    """Draw so many texts. Each is streamed whole, by characters, and cut in `num_cuts` random ways."""
    rng = random.Random(seed)
    links = guard()
    outcome = Outcome()
    async with readers() as node:
        for done in range(0, num_texts, _PART):
            texts = [drawn(rng) for _ in range(min(_PART, num_texts - done))]
            given = [await _released(links, rng, text, num_cuts, outcome) for text in texts]
            before, after = await node.read(texts), await node.read(given)
            for text, out, first, left in zip(texts, given, before, after, strict=True):
                outcome.by_reader.update(read.reader for read in wrong(text, first)[:1])
                if leaked := wrong(out, left):
                    outcome.leaked.append((text, out, leaked))
    return outcome


async def _released(links: Links, rng: random.Random, text: str, num_cuts: int, outcome: Outcome) -> str:
    whole = await released(links, [text])
    for pieces in _cuts(rng, text, num_cuts):
        outcome.num_streams += 1
        if await released(links, pieces) != whole:
            outcome.uneven.append((text, pieces))
    outcome.num_texts += 1
    outcome.num_streams += 1
    return whole


def _cuts(rng: random.Random, text: str, num_cuts: int) -> Iterator[list[str]]:
    yield list(text)
    for _ in range(num_cuts):
        yield list(pieces_of(rng, text))
