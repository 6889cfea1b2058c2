"""The plan of a measurement, and the records of a run. Values only."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from weir_bench.client import RequestRecord
from weir_bench.load import arrival_times
from weir_bench.prompts import Endpoint, Prompts


@dataclass(frozen=True, slots=True)
class Target:
    """A server. `url`: its base URL, as a client's `base_url`. `model`: None means the server's first
    model."""

    name: str
    url: str
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Level:
    """One load: a closed loop of `concurrency` streams, or an open loop of `request_rate` requests a
    second."""

    concurrency: int | None = None
    request_rate: float | None = None

    @property
    def load(self) -> float:
        return self.concurrency or self.request_rate or 0.0

    def __str__(self) -> str:
        return f"concurrency {self.concurrency}" if self.concurrency else f"{self.request_rate:g} requests/s"


@dataclass(frozen=True)
class Plan:
    """Each target under each level, `repetitions` times. A run ends with `num_prompts` or `duration`
    (seconds), whichever comes first."""

    targets: Sequence[Target]
    levels: Sequence[Level]
    prompts: Prompts
    seed: int
    endpoint: Endpoint = "chat"
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Fields of every request's body, besides its model and its prompt."""
    num_prompts: int | None = None
    duration: float | None = None
    burstiness: float = 1.0
    max_concurrency: int | None = None
    repetitions: int = 1
    num_warmups: int = 2
    timeout: float = 600.0
    slos: Mapping[str, float] = field(default_factory=dict)
    """Objectives: milliseconds, by metric."""
    api_key: str | None = field(default=None, repr=False)

    def order(self) -> Iterator[tuple[int, "Level", int, Target]]:
        """Runs as number, level, repetition and target. Runs of one number have the same prompts and
        arrivals.

        Targets take turns, in reverse order every second time. A slow change of the machine then affects all
        targets alike.
        """
        number = 0
        for level in self.levels:
            for repetition in range(self.repetitions):
                number += 1
                for target in self.targets[:: -1 if repetition % 2 else 1]:
                    yield number, level, repetition, target

    def num_requests(self, level: Level) -> int | None:
        """The requests of a run; None: as many as there is time for."""
        if self.num_prompts is None and self.duration is None:
            return max(4 * (level.concurrency or 0), 8)
        return self.num_prompts

    def arrivals(self, level: Level, number: int) -> list[float] | None:
        """The arrivals of the run with that number; None in a closed loop, where a request begins when
        another ends. Raises `ValueError` if nothing limits their number."""
        if level.request_rate is None:
            return None
        return arrival_times(
            level.request_rate,
            f"{self.seed} {number}",
            burstiness=self.burstiness,
            num_requests=self.num_prompts,
            duration=self.duration,
        )


@dataclass(eq=False)
class Run:
    """One target under one load, once. `records`: the requests that have ended, in the order of their
    ends."""

    target: Target
    level: Level
    repetition: int = 0
    records: list[RequestRecord] = field(default_factory=list)
    open: set[RequestRecord] = field(default_factory=set)
    duration: float = 0.0
    """Seconds from the beginning to the end of the last request."""
    client_cpu: float = 0.0
    """Cores that this process used. Near 1, this process limits the load."""

    @property
    def num_failed(self) -> int:
        return sum(record.failure is not None for record in self.records)
