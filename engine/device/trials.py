"""Times several ways to compute the same on this machine, and keeps the times for later starts.

No list of processors says which way is the fastest: the first start with a model tries them.
"""

import contextlib
import hashlib
import json
import logging
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import torch
from pydantic import PositiveFloat, TypeAdapter, ValidationError

from engine.device.kernels.cpu import native_levels, native_library
from engine.protocol.cache_folder import cache_folder

logger = logging.getLogger("weir.engine")

Times = Mapping[str, Mapping[int, float]]
"""Seconds, by the name of each way and by the number of rows."""

FEWEST, ROUNDS, ENOUGH = 5, 20, 0.5
"""Fewest and most rounds of a trial, and seconds after which no other round begins."""
SETTLED = 1.05
"""A way needs no more rounds if its two least times differ by less: nothing disturbed either of them."""
SLOW = 4.0
"""A way that takes this many times as long as the fastest in the first round is not tried again."""
SETTINGS = ("CC", "ONEDNN_MAX_CPU_ISA")
"""Environment variables that decide which instructions the ways use."""
MOST_PREEMPTIONS, FEW = 60.0, 5
"""A second, and in a short trial: how often other programs may take a core from a trial whose times are kept.
A busy core changes hands a hundred times a second or more. A trial on a busy machine finds fewer threads
better than they are."""
_Kept = TypeAdapter(dict[str, dict[str, dict[int, PositiveFloat]]])


def least_seconds(ways: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """The least time of each. They take turns, so that other load on the machine meets all of them."""
    begin = time.perf_counter()
    for run in ways.values():
        run()
    times = {name: [_seconds(run)] for name, run in ways.items()}
    limit = SLOW * min(first for (first,) in times.values())
    tried = [name for name, (first,) in times.items() if first < limit]
    for num_rounds in range(1, ROUNDS):
        is_settled = num_rounds >= FEWEST and all(_is_settled(times[name]) for name in tried)
        if is_settled or time.perf_counter() - begin > ENOUGH:
            break
        for name in tried:
            times[name].append(_seconds(ways[name]))
    return {name: min(taken) for name, taken in times.items()}


def _is_settled(times: list[float]) -> bool:
    least, second = sorted(times)[:2]
    return second < SETTLED * least


def relative_slowness(times: Mapping[int, float], best: Mapping[int, float]) -> float:
    """How many times as long as the best it takes: the geometric mean over the numbers of rows."""
    return statistics.geometric_mean([times[rows] / best[rows] for rows in best])


class TrialRecord:
    """The times in one file, for one processor, one build of torch, and one version of the kernels."""

    def __init__(self, path: Path | None) -> None:
        """None: nothing is kept."""
        self._path = path
        self._kept = _read(path) if path else {}
        self._disturbed: dict[str, dict[str, dict[int, float]]] = {}
        """Times that serve this process only."""

    @classmethod
    def open(cls) -> "TrialRecord":
        settings = " ".join(
            [
                torch.__version__,
                torch.backends.cpu.get_cpu_capability(),
                *(os.environ.get(name, "") for name in SETTINGS),
            ]
        )
        parts = [*native_levels.sources(), native_library.processor(), settings.encode()]
        digest = hashlib.sha256(b"\0".join(parts)).hexdigest()[:24]
        try:
            return cls(cache_folder() / f"trials-{digest}.json")
        except OSError:
            return cls(None)

    def times(
        self, what: str, names: Iterable[str], rows: Iterable[int], measure: Callable[[], Times]
    ) -> Times:
        """The times of all `names` for all `rows`: the kept ones, or else those that `measure` gives."""
        kept = self._disturbed.get(what) or self._kept.get(what, {})
        if set(kept) == set(names) and all(set(by_rows) == set(rows) for by_rows in kept.values()):
            return kept
        begin, num_before = time.perf_counter(), _num_preemptions()
        times = {name: dict(by_rows) for name, by_rows in measure().items()}
        if _num_preemptions() - num_before <= MOST_PREEMPTIONS * (time.perf_counter() - begin) + FEW:
            self._kept[what] = times
            self._save()
        else:
            self._disturbed[what] = times
            logger.info("other programs disturbed the trial of %s: it is not kept", what)
        return times

    def _save(self) -> None:
        if self._path is None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", dir=self._path.parent, delete=False) as file:
                json.dump(self._kept, file, indent=1)
            os.replace(file.name, self._path)  # atomic: another process may read or write it now
        except OSError as error:
            logger.info("the times of the kernels are not kept: %s", error)


def _num_preemptions() -> int:
    """How often the system has taken a core from a thread of this process that had work to do."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw


def _read(path: Path) -> dict[str, dict[str, dict[int, float]]]:
    """Empty if the file is missing or is not one that `TrialRecord` wrote."""
    with contextlib.suppress(OSError, ValidationError):
        return _Kept.validate_json(path.read_bytes())
    return {}


def _seconds(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin
