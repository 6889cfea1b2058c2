"""The counts of engines and hooks. Those of closed ones stay: no count goes back."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from engine.protocol import EngineStats
from engine.upstream.totals import stats_of
from hooks.decisions.tally import Tallies, Tally
from proxy.deployment.deployment import Deployment

_NO_GAUGES: Mapping[str, Any] = {
    **dict.fromkeys(("num_running", "num_waiting", "kv_blocks_used", "kv_blocks"), 0),
    "replicas": {},
}


class Counts:
    """The counts of all deployments of a service."""

    def __init__(self, deployments: Callable[[], Sequence[Deployment]]) -> None:
        """`deployments`: the current one, and those before it that requests still run under."""
        self._deployments = deployments
        self._closed_engines: defaultdict[str, list[EngineStats]] = defaultdict(list)
        """By model: the sum over its closed engines, if there are any."""
        self._closed_hooks: defaultdict[str, Tallies] = defaultdict(dict)

    def stats(self) -> dict[str, EngineStats]:
        """By model, the current ones first."""
        engines: defaultdict[str, dict[int, EngineStats]] = defaultdict(dict)
        for deployment in self._deployments():
            for name, model in deployment.guard_models.all:
                if id(model) not in engines[name]:
                    engines[name][id(model)] = model.stats()
        return {
            # An entry of a closed engine is made by `retire` alone.
            name: _sum([*engines[name].values(), *self._closed_engines.get(name, ())])
            for name in (*engines, *(self._closed_engines.keys() - engines.keys()))
        }

    def tallies(self) -> dict[str, Tallies]:
        """By policy."""
        found = {name: [closed] for name, closed in self._closed_hooks.items()}
        for deployment in self._deployments():
            for name, policy in deployment.policies.items():
                found.setdefault(name, []).append(policy.pipeline.tallies)
        return {name: _total(tallies) for name, tallies in found.items()}

    def retire(self, deployment: Deployment, kept: Sequence[Deployment]) -> None:
        """Keep the counts of its hooks, and of models that none of `kept` has. All of them are closed now."""
        for name, model in deployment.own_models(kept):
            gone = replace(model.stats(), **_NO_GAUGES)
            self._closed_engines[name] = [_sum([*self._closed_engines[name], gone])]
        for name, policy in deployment.policies.items():
            self._closed_hooks[name] = _total([self._closed_hooks[name], policy.pipeline.tallies])


def _sum(stats: Sequence[EngineStats]) -> EngineStats:
    """The newest engine comes first. An upstream that several engines have is counted there."""
    replicas = {name: replica for one in reversed(stats) for name, replica in one.replicas.items()}
    return stats_of(stats, replicas)


def _total(of: Iterable[Tallies]) -> Tallies:
    sums: defaultdict[str, Tally] = defaultdict(Tally)
    for tallies in of:
        for name, tally in tallies.items():
            sums[name].add(tally)
    return dict(sums)
