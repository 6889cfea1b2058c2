"""The metrics of all workers together, by prometheus_client's multiprocess mode.

Each worker copies its values to files that have its number. The files outlive it: a worker that replaces
another one goes on from the values that it finds there, so that no count goes down. Between two copies a
worker counts in its own memory. A worker that is killed loses what it counted since the last copy.
"""

import os
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.mmap_dict import MmapedDict, mmap_key
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead
from prometheus_client.registry import Collector

_FILES = {"counter": "counter", "histogram": "histogram", "gauge": "gauge_livesum"}
"""The names of the files, by type. Gauges are sums, too: the requests that run, for instance."""


FILE_SIZE = 2**20
"""Bytes of a file at first, more than a worker's metrics need."""


def _with_space(path: Path) -> str:
    """The file's name. It takes its whole space at once, which raises `OSError` on a full disk. To write into
    space that a file in memory does not have yet would kill the process."""
    with path.open("ab") as file:
        os.posix_fallocate(file.fileno(), 0, FILE_SIZE)
    return str(path)


def forget_gauges(folder: Path, number: int) -> None:
    """Remove the gauges of a worker that died. Its counts stay."""
    mark_process_dead(number, str(folder))


class CommonMetrics:
    """One worker's part in the metrics of all."""

    def __init__(self, own: Collector, folder: Path, number: int) -> None:
        """`folder`: the same one for all workers."""
        self._own = own
        self._folder = folder
        self._files: dict[str, Any] = {
            kind: MmapedDict(_with_space(folder / f"{name}_{number}.db")) for kind, name in _FILES.items()
        }
        counts = chain(*(self._files[kind].read_all_values() for kind in ("counter", "histogram")))
        self._before = {key: value for key, value, _ in counts}
        """The counts of the worker's predecessors."""

    def write(self) -> None:
        """Copy this worker's values to its files."""
        for family in self._own.collect():
            file = self._files[family.type]
            for key, value in _samples(family):
                file.write_value(key, self._before.get(key, 0.0) + value, 0.0)

    def render(self) -> bytes:
        """The sums of all files, in Prometheus' text format."""
        registry = CollectorRegistry()
        MultiProcessCollector(registry, str(self._folder))
        return generate_latest(registry)

    def close(self) -> None:
        for file in self._files.values():
            file.close()


def _samples(family: Metric) -> Iterator[tuple[str, float]]:
    """Keys and values as the files have them. A bucket's value there is its own, without the lower ones."""
    lower = 0.0
    for sample in family.samples:
        value = sample.value
        if sample.name.endswith("_count") and family.type == "histogram":
            lower = 0.0
            continue  # the sum of the buckets
        if sample.name.endswith("_bucket"):
            value, lower = value - lower, value
        names, labels = list(sample.labels), list(sample.labels.values())
        yield mmap_key(family.name, sample.name, names, labels, family.documentation), value
