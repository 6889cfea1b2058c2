"""The time to the first text of a held stream, and the unjudged text of a released one.

One stream at a time, and all ways to answer take turns: a ratio is the median of the ratios of neighbours.
Times are CPU times of the process, which other programs disturb little.
"""

import random
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.guard_models.setups import Setup
from benchmarks.guard_models.streams import made_text

WINDOWS = (1, 4, 16)
WAYS: dict[str, dict[str, Any]] = {f"hold {window}": {"window": window} for window in WINDOWS}
WAYS |= {f"release {window}": {"window": window, "mode": "release"} for window in WINDOWS}
MAX_TOKENS = 48


@dataclass
class Firsts:
    """One way to answer, with an entry for each turn."""

    seconds: list[float] = field(default_factory=list)
    max_unjudged: int = 0


async def first_text(setups: Mapping[str, Setup], num_words: int, rounds: int) -> dict[str, Firsts]:
    """`num_words`: of each prompt."""
    rng = random.Random(0)
    results = {name: Firsts() for name in setups}
    for i in range(rounds + 1):
        names = [*setups]
        for name in names if i % 2 else reversed(names):
            setup = setups[name]
            (stream,) = await setup.answer([made_text(rng, num_words)], MAX_TOKENS)
            if i:  # in the first round, memory and code are touched for the first time
                results[name].seconds.append(stream.first_cpu)
                results[name].max_unjudged = max(results[name].max_unjudged, stream.max_unjudged)
    return results


def report(num_words: int, results: Mapping[str, Firsts]) -> str:
    bare = results["nothing"].seconds
    lines = []
    for name, firsts in results.items():
        ratio = statistics.median(a / b for a, b in zip(firsts.seconds, bare, strict=True))
        lines.append(
            f"{num_words:7} {name:>18}{1e3 * statistics.median(firsts.seconds):10.1f}{ratio:8.2f}"
            f"{firsts.max_unjudged:12}"
        )
    return "\n".join(lines)


def header() -> str:
    return f"{'prompt':>7} {'guard':>18}{'first, ms':>10}{'ratio':>8}{'unjudged':>12}"
