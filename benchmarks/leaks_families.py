"""Does a value of any family get out of `pii` or `secrets`? A part of `make bench-leaks`.

Random texts hold values of every family of the two guards, drawn from the rules' own patterns, plain or in
typographic dress, also of JSON and cut within a value. Each text goes through the guard in random pieces.
What is released must be what the guard releases of the whole text. No value that is found in the whole text
may get out, and where a client cut the output, no beginning that could still become a match.
"""

import asyncio
import json
import os
import random
import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from benchmarks.cases.dress import DRESSES
from benchmarks.cases.finders import Span, cut_by
from benchmarks.families import Family, every_entity, families
from benchmarks.hooks import REQUEST, pipeline, source
from engine.protocol import Delta, Deltas
from hooks.builtin.secrets import Secrets
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
_KEPT = 60
"""Values of a family that are drawn. Streams take one of them: to draw is slow."""


@dataclass(frozen=True)
class Guarded:
    """A guard, and for each of its families texts that it finds."""

    name: str
    guard: SpanGuard
    values: dict[str, list[tuple[str, str]]]
    """(text before a value, value), by the family's entity and number."""


def guarded_of(rng: random.Random, num_values: int) -> list[Guarded]:
    made: list[Guarded] = []
    for name, guard in (("pii", every_entity()), ("secrets", Secrets())):
        values = {
            f"{family.rule.entity} {i}": list(_drawn(family, rng, num_values))
            for i, family in enumerate(families(guard))
        }
        made.append(Guarded(name, guard, {family: some for family, some in values.items() if some}))
    return made


def _drawn(family: Family, rng: random.Random, count: int) -> Iterator[tuple[str, str]]:
    for _ in range(count):
        try:
            yield family.text(rng)
        except ValueError:
            continue


def random_text(rng: random.Random, guarded: Guarded, seen: Counter[str]) -> str:
    """A few words with one to three values. `seen` counts families and dresses."""
    parts: list[str] = []
    for _ in range(rng.randint(1, 3)):
        family = rng.choice(list(guarded.values))
        before, value = rng.choice(guarded.values[family])
        dress = rng.choice((None, None, *DRESSES))
        dressed = DRESSES[dress](value, rng) if dress and len(value) > 1 else None
        seen[family] += 1
        seen[dress or "plain"] += dress is None or dressed is not None
        parts += [" ".join(rng.choices(_WORDS, k=rng.randint(0, 5))), before + (dressed or value)]
        parts.append(rng.choice((" ", ". ", ", ", '"', "\n", "")))
    text = "".join(parts)
    if rng.random() < 0.1:
        text = json.dumps({"a": text}, ensure_ascii=rng.random() < 0.5)
    return text


def pieces_of(rng: random.Random, text: str) -> Iterator[str]:
    most = rng.choice((1, 2, 4, 9, 40))
    place = 0
    while place < len(text):
        size = rng.randint(1, most)
        yield text[place : place + size]
        place += size


def redacted(text: str, spans: list[Span]) -> str:
    for start, end, entity in reversed(spans):
        text = f"{text[:start]}[{entity}]{text[end:]}"
    return text


async def released(guard: SpanGuard, pieces: list[str], *, is_cut: bool) -> str:
    async def cut(deltas: list[Delta]) -> Deltas:
        for delta in deltas:
            yield delta
        yield Delta(finish_reason="length")

    deltas = [Delta(text=piece) for piece in pieces]
    out = vetted(pipeline(guard).open(REQUEST), lambda _: cut(deltas) if is_cut else source(deltas))
    return "".join([delta.text async for delta in out])


async def problem(rng: random.Random, guarded: Guarded, text: str) -> str | None:
    """Return what is wrong with the streams of a text; None: nothing is."""
    detector = guarded.guard.detector
    spans = cut_by(detector, text)
    out = await released(guarded.guard, list(pieces_of(rng, text)), is_cut=False)
    if out != redacted(text, spans):
        return f"streamed {out!r}, whole {redacted(text, spans)!r}"
    place = rng.randint(1, len(text))
    shown = text[:place]
    out = await released(guarded.guard, list(pieces_of(rng, shown)), is_cut=True)
    _, undecided = detector.scan(shown, 0, False)
    spans = [span for span in cut_by(detector, shown) if span[0] < undecided]
    expected = redacted(shown[:undecided], [(a, min(b, undecided), name) for a, b, name in spans])
    # What replaces a value that begins in the undecided text may or may not follow.
    if _TEMPLATES.sub("", out) != _TEMPLATES.sub("", expected):
        return f"cut {shown!r}: released {out!r}, expected {expected!r}"
    return None


async def run(num_streams: int, seed: int) -> Counter[str]:
    """Run so many texts, each whole and cut short. Returns how often each family and dress was in them.
    Raises `AssertionError`."""
    rng = random.Random(seed)
    guards = guarded_of(rng, min(_KEPT, max(3, num_streams // 500)))
    seen: Counter[str] = Counter()
    for i in range(num_streams):
        guarded = guards[i % len(guards)]
        text = random_text(rng, guarded, seen)
        wrong = await problem(rng, guarded, text)
        assert wrong is None, f"{guarded.name}, {text!r}: {wrong}"
    return seen


def summary(seen: Counter[str]) -> str:
    dresses = sum(seen[name] for name in DRESSES)
    least = min((count, name) for name, count in seen.items() if name not in (*DRESSES, "plain"))
    num_families = len(seen.keys() - {*DRESSES, "plain"})
    return f"{num_families} families, {dresses:,} values in dress; fewest: {least[1]}, {least[0]:,}"


def run_one(num_streams: int, seed: int) -> Counter[str]:
    return asyncio.run(run(num_streams, seed))


def run_all(num_streams: int, seed: int) -> Counter[str]:
    """Run the texts in as many processes as there are cores."""
    num_processes = min(
        os.process_cpu_count() if hasattr(os, "process_cpu_count") else os.cpu_count() or 1, 8
    )
    share = -(-num_streams // num_processes)
    seeds = [seed * 1000 + i for i in range(num_processes)]
    with ProcessPoolExecutor(num_processes) as pool:
        return sum(pool.map(run_one, [share] * num_processes, seeds), Counter())
