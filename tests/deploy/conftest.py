"""The metrics that Weir has, for the files that name some."""

from collections.abc import Iterator

import pytest
from prometheus_client.core import Metric

from engine.protocol import EngineStats
from engine.protocol.stats import Histogram, ReplicaStats
from engine.scheduling.metrics import EngineMetrics
from engine.scheduling.step_budget import StepBudget
from proxy.deployment.deployment import Deployment
from proxy.deployment.directory import Directory, PolicyEntry
from proxy.service.metrics import Metrics
from proxy.settings.model import ModelSettings
from proxy.settings.policy import PolicySettings
from tests.helpers import ScriptedEngine, pipeline_of

SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


class Engine(ScriptedEngine):
    """Counts all that any engine counts."""

    def stats(self) -> EngineStats:
        metrics = EngineMetrics(StepBudget())
        replica = ReplicaStats(0, {"finished": 1}, 0, "closed", Histogram([1.0]))
        return EngineStats(
            step_seconds=metrics.step_seconds, histograms=metrics.histograms, replicas={"a": replica}
        )


def exposed() -> Iterator[Metric]:
    """The metrics of a server with several models and policies."""
    names = ("one", "two")
    directory = Directory(
        [ModelSettings(policy=name).named((name,)) for name in names],
        [PolicyEntry(name, PolicySettings()) for name in names],
    )
    deployment = Deployment(
        directory,
        {name: Engine(lambda _: []) for name in names},
        {name: pipeline_of(lambda chunk: chunk) for name in names},
    )
    return Metrics(lambda: [deployment]).collect()


@pytest.fixture(scope="session")
def labels() -> dict[str, set[str]]:
    """The labels of each series, by its name."""
    found = {}
    for family in exposed():
        for suffix in SUFFIXES[family.type]:
            own = {"le"} if suffix == "_bucket" else set()
            found[family.name + suffix] = {*family._labelnames, *own}  # type: ignore[attr-defined]
    return found
