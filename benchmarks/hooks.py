"""What guarding a stream costs: `make bench NAME=hooks`.

One run measures everything, in turn, and prints medians: quote the ratios. The times are CPU time in this
process, and wall time with hook workers. `benchmarks.relay` measures the whole service.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import ahocorasick

from benchmarks.machine import processor
from engine.protocol import Delta, Deltas, GenerationRequest, Token
from engine.streams.feeding import feed_given
from engine.streams.flow import Stage, StagedFlow
from hooks import Chunk, Verdict, emit, hold, redact, terminate
from hooks.loading.loader import HookSpec, LoadedHook
from hooks.pipeline.driver import Guarding
from hooks.pipeline.open_guard import GuardFactory
from hooks.pipeline.pipeline import Pipeline
from hooks.workers.pool import WorkerPool

MESSAGES = ({"role": "user", "content": "Hello?"},)
REQUEST = GenerationRequest(request_id="bench", model="m", endpoint="chat", messages=MESSAGES)
PATH = "/v1/chat/completions"
BODY = {"model": "m", "messages": list(MESSAGES), "stream": True}


class PassThrough:
    """Looks at nothing."""

    def __call__(self, chunk: Chunk) -> Verdict:
        return emit(chunk.text_diff)


class Holds:
    """Holds the last characters of every chunk, as guards do that wait for the end of a word."""

    def __call__(self, chunk: Chunk) -> Verdict:
        return emit(chunk.pending) if chunk.is_final else hold(min(5, len(chunk.pending)))


class Redacts:
    """Replaces the first character of every chunk, and holds the last ones."""

    def __call__(self, chunk: Chunk) -> Verdict:
        length = len(chunk.pending)
        if chunk.is_final or length < 6:
            return emit(chunk.pending) if chunk.is_final else hold()
        return redact([(0, 1, "#")], hold=5)


class Burn:
    """Burns 5 ms of CPU a chunk."""

    def __call__(self, chunk: Chunk) -> Verdict:
        end = time.process_time() + 0.005
        while time.process_time() < end:
            pass
        return emit(chunk.text_diff)


class Phrases:
    """Ends at any of many phrases, holding exactly what could still become one."""

    def __init__(self, num_phrases: int = 10) -> None:
        self.automaton = ahocorasick.Automaton()
        for i in range(num_phrases):
            phrase = f"forbidden phrase {i:06d}"
            self.automaton.add_word(phrase, len(phrase))
        self.automaton.make_automaton()
        self.longest = len("forbidden phrase 000000")

    def __call__(self, chunk: Chunk) -> Verdict:
        text = chunk.pending
        for end, length in self.automaton.iter(text):
            return terminate("phrase", after=end + 1 - length)
        if chunk.is_final:
            return emit(text)
        for n in range(min(self.longest - 1, len(text)), 0, -1):
            if self.automaton.match(text[-n:]):
                return hold(n)
        return emit(text)


def deltas(count: int) -> list[Delta]:
    texts = [" the", " cat", " forbids", " a", " phrase"]
    tokens = [Token(i % 5, texts[i % 5], texts[i % 5].encode(), -0.5) for i in range(count)]
    return [Delta(text=token.text, tokens=(token,)) for token in tokens]


async def source(items: Iterable[Delta]) -> Deltas:
    for item in items:
        yield item
    yield Delta(finish_reason="stop")


class Nowhere(Stage):
    """The end of a flow that nobody reads."""

    def feed(self, delta: Delta) -> None:
        pass


def pipeline(*hooks: Callable[..., Any], fused: bool = True) -> Pipeline:
    loaded = [LoadedHook.of(f"h{i}", hook) for i, hook in enumerate(hooks)]
    return Pipeline(loaded if fused else [replace(hook, screened=None) for hook in loaded])


def cpu_per_chunk(
    hooks: Sequence[Callable[..., Any]], items: list[Delta], request: GenerationRequest = REQUEST
) -> float:
    """Microseconds, with these hooks."""
    guard = Guarding(pipeline(*hooks).open(request))
    flow = StagedFlow(partial(feed_given, [*items, Delta(finish_reason="stop")]), guard=[guard])
    started = time.process_time()
    asyncio.run(flow.run(Nowhere()))
    return (time.process_time() - started) / len(items) * 1e6


def medians_of(measures: dict[str, Callable[[], float]], repetitions: int) -> dict[str, float]:
    """Medians of measures taken in turn, so that what else the machine does hits all alike."""
    taken: dict[str, list[float]] = {name: [] for name in measures}
    for _ in range(repetitions):
        for name, measure in measures.items():
            taken[name].append(measure())
    return {name: statistics.median(values) for name, values in taken.items()}


def chunks(repetitions: int) -> None:
    items, passing = deltas(10_000), PassThrough()
    measures: dict[str, Callable[[], float]] = {}
    for count in (0, 1, 3, 10):
        measures[f"{count} pass-through hooks"] = partial(cpu_per_chunk, [passing] * count, items)
    for count in (1, 3):
        measures[f"{count} hooks that hold 5 characters"] = partial(cpu_per_chunk, [Holds()] * count, items)
    measures["1 hook that redacts and holds"] = partial(cpu_per_chunk, [Redacts()], items)
    for size in (10, 1_000, 100_000):
        measures[f"a phrase guard, {size:,} phrases"] = partial(cpu_per_chunk, [Phrases(size)], items)
    medians = medians_of(measures, repetitions)
    none = medians["0 pass-through hooks"]
    print("\nCPU a chunk, hooks in process                  µs  over none")
    for name, value in medians.items():
        print(f"  {name:<38} {value:8.2f} {value - none:10.2f}")
    for count in (3, 10):
        each = (medians[f"{count} pass-through hooks"] - medians["1 pass-through hooks"]) / (count - 1)
        print(f"  each further one, up to {count:<2}              {each:8.2f}")


def flatness(repetitions: int) -> None:
    """Around the 100th and around the 30,000th chunk of one stream: a thousand chunks each."""
    items = deltas(31_000)

    async def ratio(hook: Callable[..., Any]) -> float:
        guard = pipeline(hook, hook, hook).open(REQUEST)
        marks: dict[int, float] = {}
        for i, item in enumerate(items):
            if i in (100, 1_100, 29_500, 30_500):
                marks[i] = time.process_time()
            await guard.feed(item)
        await guard.close()
        return (marks[30_500] - marks[29_500]) / (marks[1_100] - marks[100])

    hooks: dict[str, Callable[..., Any]] = {
        "3 pass-through hooks": PassThrough(),
        "3 phrase guards": Phrases(1_000),
    }
    print("\nCPU a chunk, the 30,000th over the 100th")
    for name, hook in hooks.items():
        ratios = [asyncio.run(ratio(hook)) for _ in range(repetitions)]
        print(f"  {name:<38} {statistics.median(ratios):8.2f}")


async def workers(repetitions: int) -> None:
    """What a worker costs, and what a hook that burns 5 ms a chunk does to requests that do not use it."""
    passing = HookSpec(f"{__file__}:PassThrough", name="pass")
    burning = HookSpec(f"{__file__}:Burn", name="burn")
    burner = GenerationRequest(request_id="b", model="m", endpoint="chat", messages=MESSAGES, hooks=("burn",))
    items = deltas(300)

    async def feed(opener: GuardFactory, request: GenerationRequest, more: Callable[[], bool]) -> None:
        guard = opener.open(request)
        while more():
            await guard.feed(items[0])
            await asyncio.sleep(0)
        await guard.close()

    async def per_chunk(opener: GuardFactory, *, beside: bool) -> float:
        done = False
        async with asyncio.TaskGroup() as tasks:
            if beside:
                tasks.create_task(feed(opener, burner, lambda: not done))
                await asyncio.sleep(0.05)
            left = iter(items)
            started = time.perf_counter()
            await feed(opener, REQUEST, lambda: next(left, None) is not None)
            took = time.perf_counter() - started
            done = True
        return took / len(items) * 1e6

    openers: dict[str, GuardFactory] = {
        "in process, 1 hook": await Pipeline.load([passing], [burning]),
        "2 workers, 1 hook": WorkerPool(2, [passing], [burning]),
        "1 worker, no hook of its own": WorkerPool(1, [], [burning]),
    }
    print("\nOne stream, wall time a chunk            alone    beside a hook that burns 5 ms a chunk")
    for name, opener in openers.items():
        await opener.start()
        alone = [await per_chunk(opener, beside=False) for _ in range(repetitions)]
        beside = [await per_chunk(opener, beside=True) for _ in range(repetitions)]
        print(f"  {name:<32} {statistics.median(alone):8.1f} µs {statistics.median(beside):10.1f} µs")
        await opener.aclose()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=7)
    options = parser.parse_args()
    print(processor())
    chunks(options.repetitions)
    flatness(options.repetitions)
    asyncio.run(workers(options.repetitions))


if __name__ == "__main__":
    main()
