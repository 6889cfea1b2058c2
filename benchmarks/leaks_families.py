"""Does a value of any family get out of `pii` or `secrets`? A part of `make bench NAME=leaks`.

Random texts hold values of every family of the two guards, drawn from the rules' own patterns, plain or in
one dress or two: typographic signs, escapes, percent-encoding, line breaks. The texts may be JSON. Each text
goes through the guard in random pieces, once whole and once cut short. What is released must be what the
guard releases of the whole text. No value that is found in the whole text may get out, and where a client
cut the output, no beginning that could still become a match.
"""

import asyncio
import json
import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from benchmarks.cases.dress import DRESSES
from benchmarks.cases.finders import Span, cut_by
from benchmarks.families import every_entity, families
from benchmarks.hooks import REQUEST, pipeline, source
from engine.protocol import Delta, Deltas
from hooks.builtin.secrets import Secrets
from hooks.detect.detector import Detector, Match, going_on
from hooks.detect.span_guard import SpanGuard
from hooks.testing.play import vetted

_WORDS = (
    "it was",
    "the 2nd",
    "May,",
    "17 names:",
    "see a/b",
    "(or c.d)",
    '"more"',
    "and",
    "=",
    "+",
    r"x\n",
    "\n",
)
_TEMPLATES = re.compile(r"(?:\[[A-Z0-9_]+\])*\Z")
_NUM_VALUES = 8
"""Values of each family that are drawn."""
PLAIN = "plain"
_NAMES = tuple(DRESSES)


@dataclass(frozen=True)
class Guarded:
    """A guard, and for each of its families texts that it finds."""

    name: str
    guard: SpanGuard
    values: dict[str, list[tuple[str, str, str]]]
    """(text before a value, value, text after it), by the family's entity and number."""

    @cached_property
    def families(self) -> list[str]:
        return list(self.values)


def guarded_of(rng: random.Random) -> list[Guarded]:
    made: list[Guarded] = []
    for name, guard in (("pii", every_entity()), ("secrets", Secrets())):
        values = {
            f"{family.rule.entity} {i}": [family.text(rng) for _ in range(_NUM_VALUES)]
            for i, family in enumerate(families(guard))
        }
        made.append(Guarded(name, guard, values))
    return made


Seen = Counter[tuple[str, str]]
"""How many values of a family were in a dress."""


def random_text(rng: random.Random, guarded: Guarded, seen: Seen) -> str:
    """A value alone, or a few words with one or two values."""
    if rng.random() < 0.1:
        return random_value(rng, guarded, seen)
    parts: list[str] = []
    for _ in range(rng.randint(1, 2)):
        parts += [*rng.choices(_WORDS, k=rng.randint(0, 4)), random_value(rng, guarded, seen)]
    text = "".join(part + rng.choice((" ", " ", ". ", ", ", '"', "\n", "")) for part in parts)
    return json.dumps({"a": text}, ensure_ascii=rng.random() < 0.5) if rng.random() < 0.1 else text


def random_value(rng: random.Random, guarded: Guarded, seen: Seen) -> str:
    """A value with the texts around it. The value is in a dress, seldom also the texts around it."""
    family = rng.choice(guarded.families)
    before, value, after = rng.choice(guarded.values[family])
    if rng.random() < 0.1:
        before, value, after = "", before + value + after, ""
    dresses = []
    for name in rng.sample(_NAMES, rng.choice((0, 1, 1, 1, 1, 2))):
        if len(value) > 1 and (dressed := DRESSES[name](value, rng)):
            value = dressed
            dresses.append(name)
    seen.update((family, name) for name in dresses or [PLAIN])
    return before + value + after


def pieces_of(rng: random.Random, text: str) -> Iterator[str]:
    most = rng.choice((1, 3, 9, 30, 100))
    place = 0
    while place < len(text):
        size = rng.randint(1, most)
        yield text[place : place + size]
        place += size


def redacted(text: str, spans: list[Span]) -> str:
    for start, end, entity in reversed(spans):
        text = f"{text[:start]}[{entity}]{text[end:]}"
    return text


async def released(guard: SpanGuard, pieces: list[str], cut: Delta | None = None) -> str:
    """What a client gets of a stream. `cut`: its last delta, where the client cut it short."""

    async def cut_short(deltas: list[Delta]) -> Deltas:
        for delta in (*deltas, cut):
            if delta is not None:
                yield delta

    deltas = [Delta(text=piece) for piece in pieces]
    out = vetted(pipeline(guard).open(REQUEST), lambda _: cut_short(deltas) if cut else source(deltas))
    return "".join([delta.text async for delta in out])


async def problem(rng: random.Random, guard: SpanGuard, text: str, spans: list[Span]) -> str | None:
    """Return what is wrong with the two streams of a text; None: nothing is. `spans`: what is found in it."""
    out = await released(guard, list(pieces_of(rng, text)))
    if out != redacted(text, spans):
        return f"streamed {out!r}, whole {redacted(text, spans)!r}"
    shown = text[: rng.randint(1, len(text))]
    pieces = list(pieces_of(rng, shown))
    last = pieces.pop() if rng.random() < 0.5 else ""
    out = await released(guard, pieces, Delta(text=last, finish_reason="length"))
    undecided = undecided_from(guard.detector, shown)
    spans = [span for span in cut_by(guard.detector, shown) if span[0] < undecided]
    expected = redacted(shown[:undecided], [(a, min(b, undecided), name) for a, b, name in spans])
    # What replaces a value that begins in the undecided text may or may not follow.
    if _TEMPLATES.sub("", out) != _TEMPLATES.sub("", expected):
        return f"cut {shown!r}: released {out!r}, expected {expected!r}"
    return None


def undecided_from(detector: Detector, text: str) -> int:
    """Return where the text begins that more text may decide. A match may exclude another one that seemed to
    begin within it, so the search goes on after a match until nothing changes."""
    start, taken = -1, list[Match]()
    undecided = 0
    while undecided > start:
        start = undecided
        matches, undecided = detector.scan(text, start, False, taken)
        taken = going_on(taken, matches, undecided)
    return undecided


@dataclass
class Outcome:
    """The streams of some texts."""

    num_found: int = 0
    """Values that a guard found in whole texts."""
    seen: Seen = field(default_factory=Counter)

    def __str__(self) -> str:
        families, dresses = ({pair[i] for pair in self.seen} for i in (0, 1))
        missing = ", ".join({*_NAMES, PLAIN} - dresses) or "none"
        return (
            f"{self.num_found:,} values found, of {len(families)} families in {len(dresses)} readings"
            f" ({len(self.seen):,} pairs of them; readings without a value: {missing})"
        )


async def run(num_texts: int, seed: int) -> Outcome:
    """Run so many texts, each whole and cut short. Raises `AssertionError`."""
    rng = random.Random(seed)
    guards = guarded_of(rng)
    outcome = Outcome()
    for i in range(num_texts):
        guarded = guards[i % len(guards)]
        text = random_text(rng, guarded, outcome.seen)
        spans = cut_by(guarded.guard.detector, text)
        outcome.num_found += len(spans)
        wrong = await problem(rng, guarded.guard, text, spans)
        assert wrong is None, f"{guarded.name}, {text!r}: {wrong}"
    return outcome


def run_one(num_texts: int, seed: int) -> Outcome:
    return asyncio.run(run(num_texts, seed))


def joined(outcomes: Sequence[Outcome]) -> Outcome:
    seen = sum((outcome.seen for outcome in outcomes), Counter[tuple[str, str]]())
    return Outcome(sum(outcome.num_found for outcome in outcomes), seen)
