"""Texts that train a detector of injections, and harmless ones that choose its thresholds."""

import random
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from hooks.builtin.injection_model.model import WINDOWS, Kind
from tools.injection import rows
from tools.injection.orders import harmless_lines, orders
from tools.injection.rows import Row
from tools.injection.split import Shingles, third

_ORDERS = 5000
_CUTS = (10, 18, 35, 70, 140, 280, 600)


class Harmless(NamedTuple):
    """Harmless texts that stand around orders, of all three parts (`third`)."""

    requests: Sequence[Row]
    documents: Sequence[Row]

    @classmethod
    def load(cls, *folders: Path) -> Self:
        """`folders`: those of installed packages."""
        documents = (
            rows.documents() + rows.modules(*folders) + rows.readmes(*folders) + rows.agent_prompts(*folders)
        )
        return cls(rows.requests(), documents)

    def training(self, kind: Kind) -> list[str]:
        """Users ask for texts; what agents read are documents of all kinds."""
        return _of(0, self.requests if kind == "prompt" else [*self.documents, *self.requests])


class Examples(NamedTuple):
    positive: list[str]
    """Texts with an order."""
    negative: list[str]
    given: list[str]
    """The strangers' texts that the others are made of."""

    @classmethod
    def draw(cls, kind: Kind, harmless: Harmless, judging: Shingles, chance: random.Random) -> Self:
        """What trains, without near copies of rows that judge."""
        train = [row for row in _rows("train", kind) if not judging.has_near(row.text)]
        around = harmless.training(kind)
        given = [row.text for row in train if row.is_injection]
        made, lines = list(orders(_ORDERS, chance)), list(harmless_lines(_ORDERS, chance))
        within = [text for text in given if len(text) < 400 and " " in text] + made
        positive = [_cut(text, WINDOWS[-1], chance) for text in given] + made
        positive += [_put_into(chance.choice(around), text, chance) for text in within]
        negative = [row.text for row in train if not row.is_injection] + lines
        negative += [_put_into(chance.choice(around), text, chance) for text in lines[: _ORDERS // 2]]
        negative += [_cut(text, size, chance) for text in around for size in (*WINDOWS, WINDOWS[0])]
        return cls(positive, negative, [row.text for row in train] + around)


def calm(kind: Kind, harmless: Harmless, chance: random.Random) -> list[str]:
    """Harmless texts that choose thresholds."""
    texts = [row.text for row in _rows("validation", kind) if not row.is_injection and kind == "prompt"]
    return [*texts, *_cuts(_of(1, harmless.requests if kind == "prompt" else harmless.documents), chance)]


def _of(part: int, harmless: Sequence[Row]) -> list[str]:
    return [row.text for row in harmless if third(row.text) == part]


def _cuts(texts: Iterable[str], chance: random.Random) -> Iterator[str]:
    return (_cut(text, size, chance) for text in texts for size in (*_CUTS, 10**6))


def _rows(part: rows.Part, kind: Kind) -> list[Row]:
    """Questions about a system prompt, which s-labs has many of, are no orders in a document."""
    slabs = [row for row in rows.slabs(part) if kind == "prompt" or not row.is_injection]
    return slabs + rows.neuralchemy(part, *rows.TRAINED)


def _cut(text: str, size: int, chance: random.Random) -> str:
    """So many words of the text, from any place."""
    starts = [found.start() for found in re.finditer(r"\S+", text)]
    if len(starts) <= size:
        return text
    first = chance.randrange(len(starts) - size)
    return text[starts[first] : starts[first + size]]


def _put_into(document: str, text: str, chance: random.Random) -> str:
    words = _cut(document, chance.randrange(4, WINDOWS[-1]), chance).split(" ")
    place, between = chance.randrange(len(words) + 1), chance.choice((" ", "\n", "\n\n"))
    return between.join([" ".join(words[:place]), text, " ".join(words[place:])])
