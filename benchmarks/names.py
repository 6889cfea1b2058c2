"""How well the guard `names` finds names, beside Presidio: `make bench NAME=names`.

`drawn`: texts that presidio-evaluator draws, with the places of their names; the templates whose number is a
multiple of three chose the threshold, the others are judged. A name is found if a part of it is. A find that
touches no name of its kind is false; a place may also be an address. Presidio runs in an environment of its
own, with spaCy's pipeline `en_core_web_sm`, whose labels are its finds.

`prose`: public English paragraphs that no training has seen, with the people that spaCy labels. spaCy errs,
so `people.txt` says by hand which of all people that either program finds there are people. `cost`: CPU time
of a piece of 4 characters, and of a late one over an early one. `streamed`: drawn texts cut at random, and in
characters, that come out otherwise than whole.
"""

import argparse
import asyncio
import json
import os
import random
import statistics
import subprocess
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.cases.finders import cut_by
from benchmarks.detection import redacted, streamed
from benchmarks.guards import PROSE, chunked, flat
from benchmarks.hooks import REQUEST, PassThrough, cpu_per_chunk, medians_of
from benchmarks.machine import processor
from hooks.builtin.name_model.model import KINDS
from hooks.builtin.names import THRESHOLD, Names
from tools.names import prose
from tools.names.templates import TEMPLATES

Span = tuple[int, int, str]
_PROGRAM = "benchmarks/cases/programs/presidio_names.py"
_SEED, _PROSE_SEED = 2, 1
PEOPLE = Path(__file__).parent / "cases/people.txt"
"""The people in the public prose, one a line, as a program found them."""


class Drawn(NamedTuple):
    text: str
    spans: list[Span]


class Counted(NamedTuple):
    """Names of a kind, those found in part and whole, and false finds."""

    names: int
    found: int
    whole: int
    false: int


def run(python: Path, *arguments: str, texts: Iterable[str] = ()) -> list[dict[str, Any]]:
    lines = "".join(json.dumps(text) + "\n" for text in texts)
    command = [str(python), _PROGRAM, *arguments]
    alike = {**os.environ, "PYTHONHASHSEED": "0"}  # else a seed draws other texts in each process
    done = subprocess.run(command, input=lines, text=True, capture_output=True, check=True, env=alike)
    return [json.loads(line) for line in done.stdout.splitlines()]


def drawn(python: Path, seed: int, count: int, part: str) -> list[Drawn]:
    return [
        Drawn(row["text"], [(start, end, kind) for start, end, kind in row["spans"]])
        for row in run(python, "draw", str(seed), str(count), part)
    ]


def counted(texts: Sequence[Drawn], found: Sequence[Sequence[Span]], kind: str) -> Counted:
    names = hit = whole = false = 0
    for (_, spans), finds in zip(texts, found, strict=True):
        of_kind = [find for find in finds if find[2] == kind]
        for start, end, of in spans:
            if of == kind:
                covered = {i for a, b, _ in of_kind for i in range(max(a, start), min(b, end))}
                names += 1
                hit += bool(covered)
                whole += len(covered) == end - start
        right = {kind, "ADDRESS"} if kind == "LOCATION" else {kind}
        real = [(start, end) for start, end, of in spans if of in right]
        false += sum(not any(a < end and start < b for start, end in real) for a, b, _ in of_kind)
    return Counted(names, hit, whole, false)


def megabytes(texts: Iterable[str]) -> float:
    return sum(len(text.encode()) for text in texts) / 1e6


def found_by_weir(texts: Iterable[str], threshold: float) -> list[list[Span]]:
    detector = Names(entities=KINDS, threshold=threshold).detector
    return [cut_by(detector, text) for text in texts]


def print_drawn(texts: Sequence[Drawn], finders: dict[str, list[list[Span]]]) -> None:
    size = megabytes(one.text for one in texts)
    print(f"\n{len(texts)} drawn texts, {size:.2f} MB      names   found   whole   false finds a MB")
    for kind in KINDS:
        for name, found in finders.items():
            names, hit, whole, false = counted(texts, found, kind)
            shares = f"{hit / names:7.1%} {whole / names:7.1%}"
            print(f"  {kind:<13} {name:<18} {names:5} {shares} {false / size:12.0f}", flush=True)


def print_prose(texts: dict[str, list[str]], python: Path, threshold: float, shows: bool) -> None:
    known = {line for line in PEOPLE.read_text().splitlines() if line}
    print(
        "\nPeople in public prose        size     Presidio's people   false finds a MB    true people found"
    )
    print("                                       that Weir finds     Weir   Presidio     Weir   Presidio")
    for source, paragraphs in texts.items():
        size = megabytes(paragraphs)
        weir = found_by_weir(paragraphs, threshold)
        peer = [row["presidio"] for row in run(python, "find", texts=paragraphs)]
        people = [
            [_people(text, spans) for text, spans in zip(paragraphs, found, strict=True)]
            for found in (weir, peer)
        ]
        agreed = total = 0
        false: list[int] = []
        for ours, theirs in zip(*people, strict=True):
            total += len(theirs)
            agreed += sum(any(a < d and c < b for c, d, _ in ours) for a, b, _ in theirs)
        right = [Counter(p[2] for one in of for p in one) for of in people]
        false = [sum(n for name, n in one.items() if name not in known) for one in right]
        true = [sum(n for name, n in one.items() if name in known) for one in right]
        share = f"{agreed / max(1, total):6.1%} of {total:4}"
        print(
            f"  {source:<18} {size:8.2f} MB {share:>20} {false[0] / size:10.0f} {false[1] / size:9.0f}"
            f" {true[0]:9} {true[1]:9}",
            flush=True,
        )
        if shows:
            for name, one in zip(("Weir", "Presidio"), right, strict=True):
                print(name, json.dumps(sorted(one), ensure_ascii=False))


def _people(text: str, spans: Iterable[Span]) -> list[tuple[int, int, str]]:
    """The people found, each with its name on one line."""
    return [(a, b, " ".join(text[a:b].split())) for a, b, kind in spans if kind == "PERSON"]


def print_cost(texts: Sequence[Drawn], threshold: float, repetitions: int) -> None:
    guard = Names(entities=KINDS, threshold=threshold)
    print("\nMicroseconds for a chunk of 4 characters       chunk    late over early")
    kinds = {"prose": PROSE * 40, "drawn texts": "\n".join(one.text for one in texts)[:60_000]}
    for name, text in kinds.items():
        items = chunked(text, (4,), seed=1)
        medians = medians_of(
            {
                "none": lambda items=items: cpu_per_chunk([PassThrough()], items),  # type: ignore[misc]
                "names": lambda items=items: cpu_per_chunk([guard], items),  # type: ignore[misc]
            },
            repetitions,
        )
        growth = statistics.median(asyncio.run(flat([guard], items, REQUEST)) for _ in range(3))
        print(f"  {name:<40} {medians['names'] - medians['none']:9.1f} {growth:12.2f}", flush=True)


async def differing(guard: Names, texts: Iterable[str], seed: int) -> int:
    """The texts that come out otherwise in pieces than whole."""
    rng = random.Random(seed)
    count = 0
    for text in texts:
        expected = redacted(text, cut_by(guard.detector, text))
        size = rng.choice((2, 4, 9, 30))
        places = [0, *(i for i in range(1, len(text)) if rng.randrange(size) == 0), len(text)]
        ways = (list(text), [text[a:b] for a, b in pairwise(places)])
        count += any([await streamed(guard, pieces) != expected for pieces in ways])
    return count


def check_unseen(judged: Iterable[str], data: Path) -> None:
    """Raises `ValueError` if a text of the training is judged."""
    raw = data / "presidio-evaluator/presidio_evaluator/data_generator/raw_data/templates.txt"
    seen = [*prose.training(data, 7, 500), *(text for texts in TEMPLATES.values() for text in texts)]
    templates = raw.read_text(errors="replace").splitlines()
    both = prose.digests(prose.blanked(seen)) & prose.digests(prose.blanked([*judged, *templates]))
    if both:
        raise ValueError(f"{len(both)} judged texts are training texts")
    print("No judged text is a training text (digests compared).")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, default=Path("build/data"))
    parser.add_argument("--presidio-python", type=Path, default=Path(".venv-presidio/bin/python"))
    parser.add_argument("--count", type=int, default=2000, help="drawn texts")
    parser.add_argument("--prose", type=int, default=400, help="most paragraphs of a source")
    parser.add_argument("--threshold", type=float, default=THRESHOLD)
    parser.add_argument(
        "--thresholds", action="store_true", help="compare thresholds on the part for choosing"
    )
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument(
        "--shown", action="store_true", help="show the people that each program finds in prose"
    )
    options = parser.parse_args()
    python = options.presidio_python
    print(processor())
    if options.thresholds:
        texts = drawn(python, 1, options.count // 2, "chosen")
        given = [one.text for one in texts]
        print_drawn(texts, {str(one): found_by_weir(given, one) for one in (0.3, 0.5, 0.7, 0.8, 0.9, 0.95)})
        return
    texts = drawn(python, _SEED, options.count, "judged")
    given = [one.text for one in texts]
    public = prose.judged(options.data, _PROSE_SEED, options.prose)
    check_unseen([*given, *(text for paragraphs in public.values() for text in paragraphs)], options.data)
    rows = run(python, "find", texts=given)
    finders = {"Weir": found_by_weir(given, options.threshold), "Presidio": [row["presidio"] for row in rows]}
    print_drawn(texts, finders)
    speed = megabytes(one.text for one in texts) / sum(row["seconds"] for row in rows)
    print(f"  Presidio reads {speed:.3f} MB/s, {1e6 * 4 / (speed * 1e6):.0f} microseconds for 4 characters")
    print_prose(public, python, options.threshold, options.shown)
    print_cost(texts, options.threshold, options.repetitions)
    guard = Names(entities=KINDS, threshold=options.threshold)
    differ = asyncio.run(differing(guard, [one.text for one in texts[:500]], 1))
    print(f"\n{differ} of {len(texts[:500])} drawn texts come out otherwise when they are cut")


if __name__ == "__main__":
    main()
