"""The time that guards take from the streams that they guard, in the same process.

All ways to answer take turns. A ratio is the median of the ratios of neighbours. A gap is the time between
the ends of two steps of the served model. It counts if all streams get a token in both steps. All turns have
the same prompts, which the cache keeps.
"""

import random
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from benchmarks.guard_models.setups import Setup, StepEnd
from benchmarks.guard_models.streams import made_text, run_many

WAYS: dict[str, dict[str, Any]] = {
    "probe": {},
    "hold": {"window": 16},
    "release": {"window": 16, "mode": "release"},
}
"""A probe, and stream guards by their modes."""
PROMPT = 8
"""Words of each prompt."""


@dataclass
class Gaps:
    """One way to answer, in seconds: an entry for each turn."""

    medians: list[float] = field(default_factory=list)
    cpu_medians: list[float] = field(default_factory=list)
    """CPU time of the engine thread, which other programs disturb little."""
    means: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    """CPU time of the process, from the requests to the end of all answers."""
    p99: list[float] = field(default_factory=list)

    def add(self, ends: Sequence[StepEnd], num_streams: int, whole: float) -> None:
        """A turn. Raises `ValueError` if no two steps have a token for each stream."""
        pairs = [(a, b) for a, b in pairwise(ends) if a.num_decoding == b.num_decoding == num_streams]
        if not pairs:
            raise ValueError("the first stream ended before the last one began: give more --max-tokens")
        gaps = [b.seconds - a.seconds for a, b in pairs]
        self.medians.append(statistics.median(gaps))
        self.cpu_medians.append(statistics.median(b.cpu_seconds - a.cpu_seconds for a, b in pairs))
        self.means.append(statistics.mean(gaps))
        self.whole.append(whole)
        self.p99.append(statistics.quantiles(gaps, n=100, method="inclusive")[-1])


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
            await run_many(setup.pipeline, setup.engine, prompts, max_tokens if i else 1)
            whole = time.process_time() - began
            if i:  # in the first round, the prompts are computed
                results[name].add(setup.engine.ends, num_streams, whole)
    return results


def report(num_streams: int, results: Mapping[str, Gaps]) -> str:
    bare = results["nothing"]
    lines = []
    for name, gaps in results.items():
        line = f"{num_streams:7} {name:>10}"
        for column in ("medians", "cpu_medians", "means", "p99", "whole"):
            values, others = getattr(gaps, column), getattr(bare, column)
            ratio = statistics.median(a / b for a, b in zip(values, others, strict=True))
            line += f"{1e3 * statistics.median(values):10.2f}{ratio:8.3f}"
        lines.append(line)
    return "\n".join(lines)


def header() -> str:
    numbers = ("p50 ms", "p50 CPU", "mean ms", "p99 ms", "all CPU")
    return f"{'streams':>7} {'guard':>10}" + "".join(f"{name:>10}{'ratio':>8}" for name in numbers)
