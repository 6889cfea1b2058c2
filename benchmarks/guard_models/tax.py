"""The time that guards take from the streams that they guard, in the same process.

All ways to answer take turns on one engine. A gap is the time between the ends of two steps of the served
model. It counts if all streams get a token in both steps. A ratio compares all gaps of a way with all gaps
without a guard. All turns have the same prompts, which the cache keeps. A machine's speed changes from second
to second, so many short turns measure better than few long ones, unless a guard is asked about long texts.
"""

import random
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from benchmarks.guard_models.setups import Setup, StepEnd
from benchmarks.guard_models.streams import made_text

WAYS: dict[str, dict[str, Any]] = {
    "again": {},
    "probe": {},
    "hold": {"window": 16},
    "release": {"window": 16, "mode": "release"},
}
"""No guard once more, which shows how far two equal ways differ; a probe; stream guards by their modes."""
PROMPT = 8
"""Words of each prompt."""


@dataclass
class Gaps:
    """One way to answer, in seconds."""

    seconds: list[float] = field(default_factory=list)
    """Each gap."""
    cpu_seconds: list[float] = field(default_factory=list)
    """The engine thread's CPU time of each gap, which other programs disturb little."""
    whole: list[float] = field(default_factory=list)
    """The process's CPU time of each turn, from the requests to the end of all answers."""

    def add(self, ends: Sequence[StepEnd], num_streams: int, whole: float) -> None:
        """A turn. Raises `ValueError` if no two steps have a token for each stream."""
        pairs = [(a, b) for a, b in pairwise(ends) if a.num_decoding == b.num_decoding == num_streams]
        if not pairs:
            raise ValueError("the first stream ended before the last one began: give more --max-tokens")
        self.seconds += (b.seconds - a.seconds for a, b in pairs)
        self.cpu_seconds += (b.cpu_seconds - a.cpu_seconds for a, b in pairs)
        self.whole.append(whole)

    @property
    def figures(self) -> tuple[float, ...]:
        """In the order of `header`."""
        return (
            statistics.median(self.seconds),
            statistics.median(self.cpu_seconds),
            statistics.mean(self.seconds),
            statistics.quantiles(self.seconds, n=100, method="inclusive")[-1],
            statistics.median(self.whole),
        )


async def tax(setups: Mapping[str, Setup], num_streams: int, rounds: int, max_tokens: int) -> dict[str, Gaps]:
    rng = random.Random(0)
    prompts = [made_text(rng, PROMPT) for _ in range(num_streams)]
    results = {name: Gaps() for name in setups}
    for i in range(rounds + 1):
        names = [*setups]
        for name in names if i % 2 else reversed(names):
            setup = setups[name]
            setup.engine.ends.clear()
            began = time.process_time()
            await setup.answer(prompts, max_tokens if i else 1)
            whole = time.process_time() - began
            if i:  # in the first round, the prompts are computed
                results[name].add(setup.engine.ends, num_streams, whole)
    return results


def report(num_streams: int, results: Mapping[str, Gaps]) -> str:
    bare = results["nothing"].figures
    lines = []
    for name, gaps in results.items():
        line = f"{num_streams:7} {name:>10}"
        for figure, other in zip(gaps.figures, bare, strict=True):
            line += f"{1e3 * figure:10.2f}{figure / other:8.3f}"
        lines.append(line)
    return "\n".join(lines)


def header() -> str:
    numbers = ("p50 ms", "p50 CPU", "mean ms", "p99 ms", "all CPU")
    return f"{'streams':>7} {'guard':>10}" + "".join(f"{name:>10}{'ratio':>8}" for name in numbers)
