"""The hooks' work since it was last written, by the tallies of their pipelines."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import NamedTuple

from hooks.decisions.tally import Tally
from proxy.deployment.deployment import Policy
from proxy.storage.operator.hook_hours import HookWork
from proxy.telemetry.feed import DecisionFeed


class _Source(NamedTuple):
    """A tally that grows, and whose it is."""

    policy: str
    hook: str
    mode: str
    tally: Tally
    taken: Tally
    """Its counts that were taken already."""


class WorkCounts:
    """The work of all hooks that no `take` has returned yet."""

    def __init__(self, policies: Callable[[], Iterable[Policy]], feed: DecisionFeed) -> None:
        """`policies`: those that requests run under now."""
        self._policies = policies
        self._feed = feed
        self._sources: dict[int, _Source] = {}
        """By the tally's id. Tallies of pipelines that are gone are asked once more."""
        self._num_requests: Counter[str] = Counter()
        self._before = self._sources, self._num_requests

    def take(self) -> list[HookWork]:
        """The work since the last time. Hooks without any are left out."""
        self._before = self._sources, self._num_requests
        running = self._running()
        totals: dict[tuple[str, str, str], Tally] = {}
        for source in (self._sources | running).values():
            total = totals.setdefault((source.policy, source.hook, source.mode), Tally())
            total.add(source.tally.since(source.taken))
        requests = self._feed.num_requests - self._num_requests
        self._sources = {at: one._replace(taken=one.tally.copy()) for at, one in running.items()}
        self._num_requests = self._feed.num_requests.copy()
        works = [HookWork.of(*of, requests[of[0]], total) for of, total in totals.items()]
        return [work for work in works if not work.is_idle]

    def give_back(self) -> None:
        """Say that the work taken last was not written. The next `take` returns it again."""
        self._sources, self._num_requests = self._before

    def _running(self) -> dict[int, _Source]:
        return {
            id(tally): self._sources.get(id(tally))
            or _Source(policy.name, hook, policy.pipeline.modes[hook], tally, Tally())
            for policy in self._policies()
            for hook, tally in policy.pipeline.tallies.items()
        }
