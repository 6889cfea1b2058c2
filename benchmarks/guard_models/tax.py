"""The time that guards take from the streams that they guard, in the same process.

All ways to answer take turns. A ratio is the median of the ratios of neighbours. A gap is the time between
the ends of two steps of the served model, while all streams run: each gets a token in every step. On a CPU it
is CPU time of the engine thread, which computes one model's step after the other.
"""

import random
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from benchmarks.guard_models.setups import Setup
from benchmarks.guard_models.streams import made_text, run_many

WAYS = {"probe": {}, "hold": {"window": 16}, "release": {"window": 16, "mode": "release"}}
"""A probe, and stream guards by their modes."""


@dataclass
class Gaps:
    """One way to answer, in seconds: an entry for each turn, but for `all`."""

    medians: list[float] = field(default_factory=list)
    means: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    """CPU time of the process, from the requests to the end of all answers."""
    all: list[float] = field(default_factory=list)

    @property
    def p99(self) -> float:
        return statistics.quantiles(self.all, n=100)[-1]


async def tax(setups: Mapping[str, Setup], num_streams: int, rounds: int, max_tokens: int) -> dict[str, Gaps]:
    rng = random.Random(0)
    results = {name: Gaps() for name in setups}
    for i in range(rounds + 1):
        names = [*setups]
        for name in names if i % 2 else reversed(names):
            setup = setups[name]
            prompts = [made_text(rng, 64) for _ in range(num_streams)]
            setup.engine.ends.clear()
            began = time.process_time()
            streams = await run_many(setup.pipeline, setup.engine, prompts, max_tokens)
            whole = time.process_time() - began
            if not i:
                continue  # memory and code are touched for the first time
            since = max(stream.first for stream in streams)
            until = min(stream.ended for stream in streams)
            ends = [at for when, at in setup.engine.ends if since <= when <= until]
            gaps = [after - before for before, after in pairwise(ends)]
            if not gaps:
                raise ValueError("the first stream ended before the last one began: give more --max-tokens")
            results[name].medians.append(statistics.median(gaps))
            results[name].means.append(statistics.mean(gaps))
            results[name].whole.append(whole)
            results[name].all += gaps
    return results


def report(num_streams: int, results: Mapping[str, Gaps]) -> str:
    bare = results["nothing"]
    lines = []
    for name, gaps in results.items():
        lines.append(
            f"{num_streams:7} {name:>10}"
            f"{1e3 * statistics.median(gaps.medians):10.2f}{_ratio(gaps.medians, bare.medians):8.3f}"
            f"{1e3 * statistics.median(gaps.means):10.2f}{_ratio(gaps.means, bare.means):8.3f}"
            f"{1e3 * gaps.p99:10.2f}{gaps.p99 / bare.p99:8.2f}"
            f"{statistics.median(gaps.whole):10.2f}{_ratio(gaps.whole, bare.whole):8.3f}"
        )
    return "\n".join(lines)


def header() -> str:
    numbers = "".join(f"{name:>10}{'ratio':>8}" for name in ("p50 ms", "mean ms", "p99 ms", "CPU s"))
    return f"{'streams':>7} {'guard':>10}{numbers}"


def _ratio(values: Sequence[float], others: Sequence[float]) -> float:
    return statistics.median(a / b for a, b in zip(values, others, strict=True))
