"""The hooks' work in each hour: one row for each policy and hook. All processes of a service add to it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from hooks.decisions.tally import HELD_SECONDS, Tally
from proxy.storage.operator.decisions import conditions
from proxy.storage.query import Query, Steps

HOUR = 3600

_HELD = [f"held_{i}" for i in range(len(HELD_SECONDS) + 1)]
"""How often text was held, by the bucket's place in `HELD_SECONDS`."""
_COUNTS = ["num_requests", "num_streams", "num_characters", "seconds", *_HELD]

TABLES = (
    "CREATE TABLE IF NOT EXISTS weir_hook_hours (hour DOUBLE PRECISION, policy TEXT, hook TEXT, mode TEXT, "
    + ", ".join(
        f"{name} {'DOUBLE PRECISION' if name == 'seconds' else 'BIGINT'} NOT NULL" for name in _COUNTS
    )
    + ", PRIMARY KEY (hour, policy, hook, mode))",
)


@dataclass(frozen=True, slots=True)
class HookWork:
    policy: str
    hook: str
    mode: str
    num_requests: int
    """Requests of the policy."""
    num_streams: int = 0
    num_characters: int = 0
    seconds: float = 0.0
    """Wall time of the hook's calls."""
    held: Counter[int] = field(default_factory=Counter)
    """As `Tally.held`."""

    @classmethod
    def of(cls, policy: str, hook: str, mode: str, num_requests: int, tally: Tally) -> "HookWork":
        return cls(
            policy,
            hook,
            mode,
            num_requests,
            tally.num_streams,
            tally.num_characters,
            tally.seconds,
            tally.held,
        )

    @property
    def is_idle(self) -> bool:
        return not (self.num_requests or self.num_streams or self.held)


def add(now: float, works: Iterable[HookWork]) -> Steps[None]:
    """Add to the hour of `now`, in seconds since 1970."""
    hour = now // HOUR * HOUR
    marks = ", ".join(f"${i}" for i in range(1, 5 + len(_COUNTS)))
    more = ", ".join(f"{name} = weir_hook_hours.{name} + ${i}" for i, name in enumerate(_COUNTS, start=5))
    rows = tuple(
        (
            *(hour, one.policy, one.hook, one.mode),
            *(one.num_requests, one.num_streams, one.num_characters, one.seconds),
            *(one.held[i] for i in range(len(_HELD))),
        )
        for one in works
    )
    yield Query(
        f"INSERT INTO weir_hook_hours VALUES ({marks}) ON CONFLICT (hour, policy, hook, mode)"
        f" DO UPDATE SET {more}",
        many=rows,
    )


def find(equal: Mapping[str, str], since: float | None, until: float | None) -> Steps[list[HookWork]]:
    """Each hook's work in the hours that begin within this time, and in the hour of `since`."""
    since = None if since is None else since // HOUR * HOUR
    where, values = conditions(equal, since, until, time="hour")
    sums = ", ".join(
        f"CAST(SUM({name}) AS {'DOUBLE PRECISION' if name == 'seconds' else 'BIGINT'})" for name in _COUNTS
    )
    rows = yield Query(
        f"SELECT policy, hook, mode, {sums} FROM weir_hook_hours WHERE {' AND '.join(where)}"
        " GROUP BY policy, hook, mode ORDER BY policy, hook, mode",
        tuple(values),
    )
    works = []
    for policy, hook, mode, num_requests, num_streams, num_characters, seconds, *held in rows:
        counts = Counter({i: num for i, num in enumerate(held) if num})
        works.append(HookWork(policy, hook, mode, num_requests, num_streams, num_characters, seconds, counts))
    return works


def prune(before: float) -> Steps[None]:
    yield Query("DELETE FROM weir_hook_hours WHERE hour < $1", (before - HOUR,))
