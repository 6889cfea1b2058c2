"""How many threads of the CPU compute a step.

A step that waits for memory or for arithmetic is faster on more cores. The service needs a core as well, from
time to time: all cores must therefore save more than it loses. A trial at load says how long steps take.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch

from engine.device.trials import Times, TrialRecord, least_seconds

ROWS = (1, 16, 64, 256, 1024)
"""Numbers of tokens in the steps that are timed."""
SERVICE = 0.0005
"""Seconds that a step on all cores loses to the service."""
MARGIN = 1.05
"""More threads must be so many times as fast."""
_DEFAULT = torch.get_num_threads()
"""torch's own choice, read before any engine changes it: the setting belongs to the process."""


@dataclass(frozen=True, slots=True)
class Threads:
    """The number of threads for a step of so many tokens."""

    by_tokens: tuple[tuple[int, int], ...]
    """The most tokens of a step, and its threads, ascending. Longer steps use the last number, too."""

    @classmethod
    def fixed(cls, num_threads: int | None) -> "Threads | None":
        """`num_threads` for every step, or else `OMP_NUM_THREADS`. None if neither is set."""
        if num_threads is None and "OMP_NUM_THREADS" in os.environ:
            num_threads = _DEFAULT
        return cls(((1, num_threads),)) if num_threads is not None else None

    @classmethod
    def all_cores(cls) -> "Threads":
        return cls(((1, min(_DEFAULT, _num_cores())),))

    @classmethod
    def by_trial(cls, run: Callable[[int], object], what: str, record: TrialRecord) -> "Threads":
        """`run` computes a step of so many tokens of the model that `what` describes."""
        cores = min(_DEFAULT, _num_cores())
        counts = sorted({cores, max(1, cores - 1), *(2**i for i in range(cores.bit_length()))})
        by_tokens: list[tuple[int, int]] = []
        for rows in ROWS:
            measure = partial(_measured, run, rows, counts)
            times = record.times(f"a step of {rows} rows, {what}", map(str, counts), (rows,), measure)
            by_tokens.append((rows, best({n: times[str(n)][rows] for n in counts})))
            if by_tokens[-1][1] == cores:
                break  # longer steps use all cores, too
        return cls(tuple(by_tokens))

    def use(self, num_tokens: int) -> None:
        """Set the threads of the calling thread's next operators, for a step of so many tokens."""
        torch.set_num_threads(
            next((n for most, n in self.by_tokens if num_tokens <= most), self.by_tokens[-1][1])
        )


def best(times: Mapping[int, float]) -> int:
    """The number of threads to use, from the seconds that a step takes by the number of threads. The largest
    number is that of the cores."""
    cores = max(times)
    costs = {n: seconds + SERVICE * (n == cores) for n, seconds in times.items()}
    return min(n for n, cost in costs.items() if cost <= MARGIN * min(costs.values()))


def _measured(run: Callable[[int], object], rows: int, counts: list[int]) -> Times:
    before = torch.get_num_threads()
    try:
        seconds = least_seconds({str(n): partial(_run, run, rows, n) for n in counts})
    finally:
        torch.set_num_threads(before)
    return {n: {rows: least} for n, least in seconds.items()}


def _run(run: Callable[[int], object], rows: int, num_threads: int) -> None:
    torch.set_num_threads(num_threads)
    run(rows)


def _num_cores() -> int:
    """The cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):  # on Linux
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
