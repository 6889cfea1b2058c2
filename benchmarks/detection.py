"""How well the guards that ship find what they are for: `make bench-detection`.

Each entity has made texts with a value of it, and as many near misses (see `samples`). A value is found if
what is cut is just that value, under its own name. What is cut as an entity anywhere else, among its near
misses or in the texts of all other entities, is a false alarm. `--seed` draws other texts: the rules were
written with seed 1. `--cut` also runs every text through the guard as a stream: in characters, and cut at
random.
"""

import argparse
import asyncio
import random
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

from benchmarks import pii_samples, secret_samples
from benchmarks.hooks import REQUEST, pipeline, source
from benchmarks.machine import processor
from benchmarks.samples import Kind, Sample, near_misses, positives
from engine.protocol import Delta
from hooks.builtin.pii import Pii
from hooks.builtin.secrets import Secrets
from hooks.detect.detector import Detector
from hooks.detect.span_guard import SpanGuard
from hooks.testing.play import vetted

Found = tuple[int, int, str]


def cut_by(detector: Detector, text: str) -> list[Found]:
    """What the guard cuts: matches that overlap are one, named as the first of them."""
    found: list[Found] = []
    matches, _ = detector.scan(text)
    for start, end, entity, _ in sorted(matches, key=lambda match: (match.start, -match.end, match.rule)):
        if not found or start >= found[-1][1]:
            found.append((start, end, entity))
        else:
            found[-1] = (found[-1][0], max(end, found[-1][1]), found[-1][2])
    return found


def samples_of(kinds: Iterable[Kind], seed: int, count: int) -> list[tuple[Kind, Sample]]:
    made: list[tuple[Kind, Sample]] = []
    for kind in kinds:
        rng = random.Random(f"{seed} {kind.entity}")
        made += [(kind, sample) for sample in (*positives(kind, rng, count), *near_misses(kind, rng, count))]
    return made


class Score:
    """Counts by entity."""

    def __init__(self) -> None:
        self.values: Counter[str] = Counter()
        self.found: Counter[str] = Counter()
        self.false_alarms: Counter[str] = Counter()
        self.wrong: list[tuple[str, str, str]] = []
        """(entity, missed or false, text)."""

    def add(self, kind: Kind, sample: Sample, found: list[Found]) -> None:
        wanted = (sample.start, sample.end, sample.entity)
        if sample.entity is not None:
            self.values[sample.entity] += 1
            self.found[sample.entity] += wanted in found
            if wanted not in found:
                self.wrong.append((sample.entity, "missed", f"{sample.text!r} {found}"))
        for one in found:
            if one != wanted and (sample.entity is not None or one[2] == kind.entity):
                self.false_alarms[one[2]] += 1
                self.wrong.append((one[2], "false", f"{sample.text!r} {one}"))

    def recall(self, entity: str) -> float:
        return self.found[entity] / self.values[entity]

    def precision(self, entity: str) -> float:
        return self.found[entity] / max(1, self.found[entity] + self.false_alarms[entity])


def measure(detector: Detector, kinds: Iterable[Kind], seed: int, count: int) -> Score:
    score = Score()
    for kind, sample in samples_of(kinds, seed, count):
        score.add(kind, sample, cut_by(detector, sample.text))
    return score


def redacted(text: str, found: Iterable[Found]) -> str:
    for start, end, entity in sorted(found, reverse=True):
        text = f"{text[:start]}[{entity}]{text[end:]}"
    return text


async def streamed(guard: SpanGuard, pieces: Iterable[str]) -> str:
    deltas = [Delta(text=piece) for piece in pieces]
    released = vetted(pipeline(guard).open(REQUEST), lambda _: source(deltas))
    return "".join([delta.text async for delta in released])


async def differing(guard: SpanGuard, kinds: Iterable[Kind], seed: int, count: int) -> list[str]:
    """The texts that come out otherwise in pieces than whole."""
    texts: list[str] = []
    for _, sample in samples_of(kinds, seed, count):
        rng = random.Random(f"{seed} {sample.text}")
        expected = redacted(sample.text, cut_by(guard.detector, sample.text))
        size = rng.choice((2, 4, 9, 30))
        places = [0, *(i for i in range(1, len(sample.text)) if rng.randrange(size) == 0), len(sample.text)]
        ways = (list(sample.text), [sample.text[a:b] for a, b in pairwise(places)])
        texts += [sample.text for pieces in ways if await streamed(guard, pieces) != expected]
    return texts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--count", type=int, default=500, help="texts with a value; as many near misses")
    parser.add_argument("--wrong", action="store_true", help="show what was missed, and false alarms")
    parser.add_argument("--cut", action="store_true", help="run them as streams too; takes minutes")
    options = parser.parse_args()
    print(processor())
    guards: tuple[tuple[str, SpanGuard, tuple[Kind, ...]], ...] = (
        ("pii", Pii(), pii_samples.KINDS),
        ("secrets", Secrets(), secret_samples.KINDS),
    )
    for name, guard, kinds in guards:
        score = measure(guard.detector, kinds, options.seed, options.count)
        title = f"{name}, seed {options.seed}, {options.count} + {options.count} texts each"
        print(f"\n{title:<46} recall  precision")
        for kind in kinds:
            recall, precision = score.recall(kind.entity), score.precision(kind.entity)
            print(f"  {kind.entity:<40} {recall:12.3f} {precision:10.3f}")
        for wrong in score.wrong if options.wrong else ():
            print(*wrong)
        if options.cut:
            differ = asyncio.run(differing(guard, kinds, options.seed, options.count))
            print(
                f"  {len(differ)} come out otherwise when they are cut", *map(repr, differ[:3]), sep="\n    "
            )


if __name__ == "__main__":
    main()
