"""What the guards that ship cost: `make bench NAME=guards`.

`call`: wall time of a call of the hook. `chunk`: CPU time of a chunk through the pipeline, with what holding
and cutting costs there, over that of a hook that lets all through. `ratio`: `chunk` divided by the CPU time
of that hook, which travels between machines. `flat`: CPU time around the 20,000th chunk
of one stream over that around the 200th. All are medians of runs taken in turn.

Further tables: a chunk with every other rule of a guard and with all of them, a chunk of text that is all
escapes, a chunk of guards that are fused and that are not, and whole texts. `--worst` searches texts that
take long instead (see `guards_worst`)."""

import argparse
import asyncio
import json
import random
import re
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import pii_samples, secret_samples
from benchmarks.cases import files
from benchmarks.families import halves_and_all, rules_of
from benchmarks.guards_worst import print_worst, seconds_of
from benchmarks.hooks import MESSAGES, REQUEST, PassThrough, cpu_per_chunk, medians_of, pipeline
from benchmarks.machine import processor
from benchmarks.samples import Kind, Sample, near_misses, positives
from engine.protocol import Delta, GenerationRequest, Token
from hooks import Chunk, Verdict
from hooks.builtin.phrases import Phrases
from hooks.builtin.pii import Pii
from hooks.builtin.prompt_leak import LeakDetector, PromptLeak
from hooks.builtin.repetition import Repetition
from hooks.builtin.secrets import Secrets
from hooks.pipeline.pipeline import Pipeline

ROOT = Path(__file__).parents[1]
PROSE = """\
The harbour was quiet in the early morning, and a heron stood at the weir and waited; nobody hurried it. By
10:30 the first of 3 boats had come in, with 48 crates of fish that were sold for 12.50 each before the market
closed. “That is not bad,” said the older man, who had seen worse, and wrote it down in his book. In 2024 it
had rained for most of the summer, so they mended nets, drank tea and told long stories about ships that
nobody else remembered. It's a living, they would say, and then they would laugh.

"""


def chunked(text: str, sizes: tuple[int, ...], seed: int) -> list[Delta]:
    """`text` in tokens of `sizes` characters, one a chunk."""
    return [Delta(text=token.text, tokens=(token,)) for token in tokens(text, sizes, random.Random(seed))]


def tokens(text: str, sizes: tuple[int, ...], rng: random.Random) -> Iterator[Token]:
    position = 0
    while position < len(text):
        piece = text[position : position + rng.choice(sizes)]
        position += len(piece)
        yield Token(len(piece), piece, piece.encode(), -0.5)


def phrase_list(count: int, seed: int) -> list[str]:
    """Phrases of two to four words, of which the first is often one that prose has."""
    rng = random.Random(seed)
    words = PROSE.split() + ["".join(rng.choices("etaoinshrdlu", k=rng.randint(3, 9))) for _ in range(3000)]
    return [" ".join(rng.choices(words, k=rng.randint(2, 4))) for _ in range(count)]


def full_of(kinds: tuple[Kind, ...], make: Callable[[Kind, random.Random, int], Iterator[Sample]]) -> str:
    """Texts with a value each, or with what only looks like one."""
    rng = random.Random(1)
    return "\n".join(sample.text for kind in kinds for sample in make(kind, rng, 20))


def started(count: int) -> tuple[Phrases, float]:
    phrases = phrase_list(count, seed=count)
    began = time.process_time()
    guard = Phrases(phrases)
    return guard, time.process_time() - began


def prompted(num_words: int) -> tuple[GenerationRequest, float]:
    """A request with a long system prompt, and how long that takes to be made ready."""
    prompt = " ".join(phrase_list(num_words, seed=5)[: num_words // 3])
    request = replace(REQUEST, messages=({"role": "system", "content": prompt}, *MESSAGES))
    began = time.process_time()
    LeakDetector([prompt], 8)
    return request, time.process_time() - began


class Timed:
    """A hook, and how long its calls took."""

    def __init__(self, hook: Any) -> None:
        self.hook = hook
        self.seconds = 0.0

    def __call__(self, chunk: Chunk) -> Verdict:
        began = time.perf_counter()
        verdict: Verdict = self.hook(chunk)
        self.seconds += time.perf_counter() - began
        return verdict


def call_time(hooks: Sequence[Any], items: list[Delta], request: GenerationRequest) -> float:
    """Microseconds."""
    timed = [Timed(hook) for hook in hooks]
    cpu_per_chunk(timed, items, request)
    return sum(hook.seconds for hook in timed) / len(items) * 1e6


async def flat(hooks: Sequence[Any], items: list[Delta], request: GenerationRequest) -> float:
    """CPU time of 2,000 chunks from the 20,000th on or later, over that of the same from the 200th on."""
    guard = pipeline(*hooks).open(request)
    late = 200 + len(items) * -(-20_000 // len(items))
    marks: dict[int, float] = {}
    for i in range(late + 2_001):
        if i in (200, 2_200, late, late + 2_000):
            marks[i] = time.process_time()
        await guard.feed(items[i % len(items)])
    await guard.close()
    return (marks[late + 2_000] - marks[late]) / (marks[2_200] - marks[200])


def print_families(repetitions: int) -> None:
    """Print what a chunk of prose costs with every other rule, and with all."""
    items = chunked(PROSE * 40, (4,), seed=1)
    measures: dict[str, Callable[[], float]] = {"none": partial(cpu_per_chunk, [PassThrough()], items)}
    for name, halves, every in halves_and_all():
        for i, half in enumerate(halves):
            measures[f"{name} {i}"] = partial(cpu_per_chunk, [half], items)
        measures[f"{name} all"] = partial(cpu_per_chunk, [every], items)
    medians = medians_of(measures, repetitions)
    # A rule that wakes often is in one of the halves: the mean of both shows what the number of rules costs.
    print(f"\n{'Microseconds for a chunk of 4 characters':<40} each half      all    ratio to their mean")
    for name, _, every in halves_and_all():
        first, second, cost = (medians[f"{name} {part}"] - medians["none"] for part in (0, 1, "all"))
        title = f"{name}, {len(rules_of(every))} rules"
        ratio = 2 * cost / (first + second)
        print(f"  {title:<36} {first:6.1f} {second:5.1f} {cost:8.1f} {ratio:8.2f}")


def print_escapes(repetitions: int) -> None:
    """Print what a chunk of a text costs that is all escapes."""
    written = {
        r"\uXXXX": "".join(rf"\u{ord(char):04x}" for char in PROSE),
        r"\xXX": "".join(rf"\x{ord(char) % 128:02x}" for char in PROSE),
        "percent signs": "".join(f"%{ord(char) % 128:02X}" for char in PROSE),
        "%%%%": "%" * 2000,
        "HTML entities": "".join(f"&#{ord(char)};" for char in PROSE),
        "zero-width spaces": "\u200b".join(PROSE),
    }
    guards: dict[str, Any] = {"pii": Pii(), "secrets": Secrets()}
    measures: dict[str, Callable[[], float]] = {
        f"{name}, {kind}": partial(cpu_per_chunk, [guard], chunked(text[:4000], (4,), seed=1))
        for name, guard in guards.items()
        for kind, text in written.items()
    }
    print("\nMilliseconds for a chunk of 4 characters of escapes")
    for name, cost in medians_of(measures, min(repetitions, 3)).items():
        print(f"  {name:<40} {cost / 1000:8.3f}")


def texts_of(kind: str) -> list[list[Delta]]:
    """Forty texts of 12,000 characters, in chunks of 4 to 6."""
    if kind == "JSON":
        whole = json.dumps(
            [{"id": i, "name": name, "ok": True} for i, name in enumerate(phrase_list(20_000, 2))]
        )
    else:
        folder, pattern = ("docs", "*.md") if kind == "Markdown" else ("proxy", "*.py")
        found = sorted((ROOT / folder).rglob(pattern))
        random.Random(1).shuffle(found)
        whole = "".join(file.read_text() for file in found)
    whole = re.sub("[^A-Za-z ]+", " ", whole) if kind == "words" else whole
    pieces = [whole[i : i + 12_000] for i in range(0, 480_000, 12_000)]
    return [[Delta(text=one.text) for one in tokens(text, (4, 5, 6), random.Random(1))] for text in pieces]


async def warm_chunk(guards: Pipeline, texts: list[list[Delta]]) -> float:
    """Microseconds for a chunk of the last ten texts: the automaton has learned from the others."""
    times: list[float] = []
    for items in texts:
        guard = guards.open(REQUEST)
        started = time.process_time()
        for item in items:
            await guard.feed(item)
        times.append((time.process_time() - started) / len(items) * 1e6)
        await guard.close()
    return statistics.median(times[-10:])


def print_fused() -> None:
    """Print what a chunk costs three guards, fused and each called with each chunk."""
    guards = [Phrases(phrase_list(1000, seed=1)), Pii(), Secrets()]
    print("\nMicroseconds for a chunk of 4 to 6 characters    lets through    fused    apart")
    for kind in ("words", "Markdown", "code", "JSON"):
        texts = texts_of(kind)
        pipelines = pipeline(PassThrough()), pipeline(*guards), pipeline(*guards, fused=False)
        none, fused, apart = (asyncio.run(warm_chunk(one, texts)) for one in pipelines)
        print(f"  phrases, pii and secrets, {kind:<18} {none:14.1f} {fused:8.1f} {apart:8.1f}")


def print_whole(repetitions: int) -> None:
    """Print how fast whole prompts are read."""
    prose = PROSE * (1_000_000 // len(PROSE))
    real = "\n".join(case.text for case in list(files.cases())[::6])
    print("\nMB/s of a whole prompt                          prose   real files")
    for name, guard in (("pii", Pii(prompt="redact")), ("secrets", Secrets(prompt="redact"))):
        speeds = []
        for text in (prose, real):
            seconds = statistics.median(seconds_of(guard, text) for _ in range(min(repetitions, 3)))
            speeds.append(len(text) / seconds / 1e6)
        print(f"  {name:<42} {speeds[0]:8.2f} {speeds[1]:12.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--worst", action="store_true", help="search the texts of 1 MB that take longest")
    parser.add_argument("--further", action="store_true", help="only the further tables")
    options = parser.parse_args()
    repetitions = options.repetitions
    print(processor())
    if options.worst:
        guards = {"pii": Pii(prompt="redact"), "secrets": Secrets(prompt="redact")}
        raise SystemExit(not print_worst(guards))
    print_families(repetitions)
    print_escapes(repetitions)
    print_fused()
    print_whole(repetitions)
    if not options.further:
        print_costs(repetitions)


def print_costs(repetitions: int) -> None:
    fours = chunked(PROSE * 40, (4,), seed=1)
    cases: dict[str, tuple[Sequence[Any], list[Delta], GenerationRequest]] = {}
    for count in (10, 1_000, 100_000):
        guard, seconds = started(count)
        print(f"phrases, {count:,}: ready after {seconds:.2f} s")
        cases[f"phrases, {count:,}"] = [guard], fours, REQUEST
    fives = partial(chunked, sizes=(4, 5, 6), seed=1)
    for name, made, kinds in (
        ("pii", Pii(), pii_samples.KINDS),
        ("secrets", Secrets(), secret_samples.KINDS),
    ):
        cases[f"{name}, prose"] = [made], fives(PROSE * 40), REQUEST
        cases[f"{name}, text full of it"] = [made], fives(full_of(kinds, positives)), REQUEST
        cases[f"{name}, text full of near misses"] = [made], fives(full_of(kinds, near_misses)), REQUEST
    cases["phrases, 100,000, prose"] = [guard], fives(PROSE * 40), REQUEST
    three = [guard, Pii(), Secrets()]
    cases["phrases, 100,000, pii and secrets, prose"] = three, fives(PROSE * 40), REQUEST
    request, seconds = prompted(10_000)
    print(f"prompt_leak, 10,000 words: ready after {seconds:.3f} s")
    prompt = request.messages[0]["content"]
    cases["prompt_leak, prose"] = [PromptLeak()], fives(PROSE * 40), request
    cases["prompt_leak, the prompt itself"] = [PromptLeak()], fives(prompt[:20_000]), request
    cases["repetition, prose"] = [Repetition(action="suppress")], fives(prompt[:20_000]), REQUEST
    cases["repetition, a loop"] = [Repetition(action="suppress")], fives(PROSE * 40), REQUEST
    measures: dict[str, Callable[[], float]] = {}
    for name, (hooks, items, request) in cases.items():
        measures[f"call {name}"] = partial(call_time, hooks, items, request)
        measures[f"chunk {name}"] = partial(cpu_per_chunk, hooks, items, request)
        measures[f"none {name}"] = partial(cpu_per_chunk, [PassThrough()], items, request)
    medians = medians_of(measures, repetitions)
    print(f"\n{'Microseconds':<43}    call    chunk    ratio     flat")
    for name, (hooks, items, request) in cases.items():
        growth = statistics.median(asyncio.run(flat(hooks, items, request)) for _ in range(3))
        none = medians[f"none {name}"]
        chunk = medians[f"chunk {name}"] - none
        print(f"  {name:<41} {medians[f'call {name}']:7.1f} {chunk:8.1f} {chunk / none:8.1f} {growth:8.2f}")


if __name__ == "__main__":
    main()
