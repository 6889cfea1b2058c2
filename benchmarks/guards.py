"""What the guards that ship cost: `make bench-guards`.

`call`: wall time of a call of the hook. `chunk`: CPU time of a chunk through the pipeline, with what holding
and cutting costs there, over that of a hook that lets all through. `ratio`: `chunk` divided by the CPU time
of that hook, which travels between machines. `flat`: CPU time around the 20,000th chunk
of one stream over that around the 200th. All are medians of runs taken in turn.
"""

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from benchmarks import pii_samples, secret_samples
from benchmarks.hooks import MESSAGES, REQUEST, PassThrough, cpu_per_chunk, medians_of, pipeline, vet
from benchmarks.machine import processor
from benchmarks.samples import Kind, Sample, near_misses, positives
from engine.protocol import Delta, GenerationRequest, Token
from hooks import Chunk, Verdict
from hooks.builtin.phrases import Phrases
from hooks.builtin.pii import Pii
from hooks.builtin.prompt_leak import LeakDetector, PromptLeak
from hooks.builtin.repetition import Repetition
from hooks.builtin.secrets import Secrets

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
        await vet(guard, items[i % len(items)])
    await guard.close()
    return (marks[late + 2_000] - marks[late]) / (marks[2_200] - marks[200])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=7)
    repetitions = parser.parse_args().repetitions
    print(processor())
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
