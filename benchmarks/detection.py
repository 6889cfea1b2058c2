"""How well the guards that ship find what they are for: `make bench NAME=detection`.

`made`: each entity has made texts with a value of it, and as many near misses (see `samples`). A value is
found if what is cut is just that value, under its own name. What is cut as an entity anywhere else, among its
near misses or in the texts of all other entities, is a false alarm. `--seed` draws other texts: the rules
were written with seed 1. `--cut` also runs every text through the guard as a stream: in characters, and cut
at random.

`public`: the test strings of gitleaks, Presidio and detect-secrets, and the same values in typographic dress.
git fetches these projects into `build/checkouts`, or the arguments name checkouts. They are no part of Weir.
`words`: passwords and tokens after a word for them. `rates`: numbers and ids that programs write, 12,000 of
each kind, each in several texts; the share that is found, which is false, in the text where most are found.
`files`: real files of this machine, where next to nothing should be found. These are also given to the peers
whose environments are here (`make bench NAME=detection` makes them): gitleaks, detect-secrets, and Presidio's
recognizers of patterns, also all of them.
"""

import argparse
import asyncio
import random
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path

from benchmarks import pii_samples, secret_samples
from benchmarks.cases import dress, files, passwords
from benchmarks.cases.checkouts import KEYS, PERSONAL, cases_of
from benchmarks.cases.finders import Finder, Guards, Span, peers
from benchmarks.cases.finders import cut_by as cut_by
from benchmarks.cases.numbers import NUMBERS, share_found
from benchmarks.cases.tables import print_dresses, print_files, print_groups
from benchmarks.families import every_entity
from benchmarks.hooks import REQUEST, pipeline, source
from benchmarks.machine import processor
from benchmarks.samples import Kind, Sample, near_misses, positives
from engine.protocol import Delta
from hooks.builtin.pii import Pii
from hooks.builtin.secrets import Secrets
from hooks.detect.detector import Detector
from hooks.detect.span_guard import SpanGuard
from hooks.testing.play import vetted


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

    def add(self, kind: Kind, sample: Sample, found: list[Span]) -> None:
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


def redacted(text: str, found: Iterable[Span]) -> str:
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


def print_made(seed: int, count: int, shows_wrong: bool, is_cut: bool) -> None:
    guards: tuple[tuple[str, SpanGuard, tuple[Kind, ...]], ...] = (
        ("pii", every_entity(), pii_samples.KINDS),
        ("secrets", Secrets(), secret_samples.KINDS),
    )
    for name, guard, kinds in guards:
        score = measure(guard.detector, kinds, seed, count)
        title = f"{name}, seed {seed}, {count} + {count} texts each"
        print(f"\n{title:<46} recall  precision")
        for kind in kinds:
            recall, precision = score.recall(kind.entity), score.precision(kind.entity)
            print(f"  {kind.entity:<40} {recall:12.3f} {precision:10.3f}")
        for wrong in score.wrong if shows_wrong else ():
            print(*wrong)
        if is_cut:
            differ = asyncio.run(differing(guard, kinds, seed, count))
            print(
                f"  {len(differ)} come out otherwise when they are cut", *map(repr, differ[:3]), sep="\n    "
            )


def print_public(given: Mapping[str, Path | None], others: dict[str, list[Finder]], num_wrong: int) -> None:
    every, secrets, default = every_entity().detector, Secrets().detector, Pii().detector
    keys, personal = cases_of(KEYS, given), cases_of(PERSONAL, given)
    if keys:
        print_groups("Secrets", keys, [Guards("Weir", secrets), *others["secrets"]], num_wrong)
    if personal:
        finders = [Guards("Weir, all", every), Guards("Weir", default), *others["pii"]]
        print_groups("Personal data", personal, finders, num_wrong)
    if keys or personal:
        dressed = [*dress.cases([*keys, *personal]), *dress.prefixed(personal)]
        print_dresses(dressed, Guards("Weir", every, secrets), num_wrong)


def print_files_found(others: dict[str, list[Finder]], num_wrong: int) -> None:
    found = [*files.cases()]
    print_files(found, [Guards("Weir, pii", Pii().detector)], num_wrong)
    print_files(found, [Guards("Weir, secrets", Secrets().detector), *others["secrets"]], num_wrong)
    if others["pii"]:  # some 0.1 MB/s
        print_files(found[::_SLOW], others["pii"][:1])


def print_rates(seed: int, count: int) -> None:
    """Print the share of numbers and ids that each guard finds, in the text where it finds the most."""
    print(
        f"\n{'Numbers that programs write':<30}     most allowed" + "".join(f"{name:>24}" for name in RATED)
    )
    for kind in NUMBERS:
        columns: list[str] = []
        for detector in RATED.values():
            shares = share_found(detector, kind, seed, count)
            worst = max(shares, key=shares.__getitem__)
            columns.append(f"{shares[worst]:9.3%} {worst if shares[worst] else '':14}")
        print(f"  {kind.name:<32} {kind.most:12.1%}{''.join(columns)}", flush=True)


RATED: dict[str, Detector] = {"pii": Pii().detector, "secrets": Secrets().detector}
_SLOW = 12
"""Presidio reads one real file in so many."""
PARTS = ("made", "public", "words", "rates", "files")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", choices=PARTS, help="a part of it; may be given again")
    for project in (*KEYS, *PERSONAL):
        parser.add_argument(
            f"--{project.name}", dest=project.name, type=Path, help=f"a checkout of {project.url}"
        )
    parser.add_argument("--no-peers", action="store_true", help="measure Weir alone")
    parser.add_argument("--seed", type=int, default=3)
    parser.add_argument("--count", type=int, default=500, help="made texts with a value; as many near misses")
    parser.add_argument("--rate-count", type=int, default=12_000, help="numbers of each kind")
    parser.add_argument("--wrong", action="store_true", help="show what was missed, and false alarms")
    parser.add_argument("--cut", action="store_true", help="run made texts as streams too; takes minutes")
    options = parser.parse_args()
    parts = options.only or PARTS
    num_wrong = 10 if options.wrong else 0
    others = peers(Path() if not options.no_peers else Path("/dev/null"))
    print(processor())
    if "made" in parts:
        print_made(options.seed, options.count, options.wrong, options.cut)
    if "words" in parts:
        finders = [Guards("Weir", Secrets().detector), *others["secrets"]]
        print_groups("Passwords and tokens", passwords.cases(options.seed), finders, num_wrong)
    if "public" in parts:
        print_public(vars(options), others, num_wrong)
    if "rates" in parts:
        print_rates(options.seed, options.rate_count)
    if "files" in parts:
        print_files_found(others, num_wrong)


if __name__ == "__main__":
    main()
