"""Reports on hooks in shadow mode: how often each would have acted, on whom, how long it would have
held text, and its cost.

The report says what can be counted without any text. It adds examples only where the setting
`keep_withheld_text` has kept them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from hooks.decisions.tally import HELD_SECONDS
from proxy.storage.operator import decisions, hook_hours
from proxy.storage.operator.hook_hours import HookWork
from proxy.storage.query import Row, Steps
from proxy.storage.records import DecisionRecord

Report = dict[str, Any]

MAX_EXAMPLES = 5
"""Examples of each hook."""
_EXAMPLES_READ = 500
"""The newest records that examples are taken from."""


def report(
    equal: Mapping[str, str],
    *,
    since: float | None = None,
    until: float | None = None,
    with_examples: bool = False,
) -> Steps[list[Report]]:
    """One report for each policy and hook in shadow mode. `equal`: `policy` and `hook`, to have only theirs.
    `since`, `until`: seconds since 1970."""
    equal = {**equal, "mode": "shadow"}
    works = yield from hook_hours.find(equal, since, until)
    hook = "policy", "hook"
    summary = yield from decisions.sums((*hook, "action", "reason"), equal, since, until)
    askers = yield from decisions.sums((*hook, "tenant", "key"), equal, since, until)
    records: list[DecisionRecord] = []
    if with_examples:
        records = (yield from decisions.find(equal, since=since, until=until, limit=_EXAMPLES_READ)).records
    by_hook = {(one.policy, one.hook): one for one in works}
    names = sorted({*by_hook, *((policy, hook) for policy, hook, *_ in summary)})
    return [_report(name, by_hook.get(name), summary, askers, records) for name in names]


def _report(
    name: tuple[str, str],
    work: HookWork | None,
    summary: Iterable[Row],
    askers: Iterable[Row],
    records: Iterable[DecisionRecord],
) -> Report:
    work = work or HookWork(*name, "shadow", 0)
    reasons = [
        {"action": action, "reason": reason, **_counts(*counts)}
        for *of, action, reason, num, num_requests, num_withheld in summary
        if tuple(of) == name
        for counts in [(num, num_requests, num_withheld)]
    ]
    made: Report = {
        "policy": work.policy,
        "hook": work.hook,
        "seen": {
            "requests": work.num_requests,
            "streams": work.num_streams,
            "characters": work.num_characters,
        },
        "would_have": reasons,
        "for": [
            {"tenant": tenant, "key": key, **_counts(*counts)}
            for *of, tenant, key, num, num_requests, num_withheld in askers
            if tuple(of) == name
            for counts in [(num, num_requests, num_withheld)]
        ],
        "held_seconds": held(work.held),
        "seconds_per_1000_characters": (
            1000 * work.seconds / work.num_characters if work.num_characters else None
        ),
    }
    examples = [
        one.json(with_text=True) for one in records if (one.policy, one.hook) == name and one.withheld
    ]
    if examples:
        made["examples"] = examples[:MAX_EXAMPLES]
    return made


def _counts(num: int, num_requests: int, num_withheld: int) -> dict[str, int]:
    return {"decisions": num, "requests": num_requests, "characters": num_withheld}


def held(counts: Counter[int]) -> dict[str, Any]:
    """The number of holds, and the times in seconds within which half of them, 99 in 100 and all ended. A
    time is the upper end of a bucket of `HELD_SECONDS`; None: the holds are longer than the last."""
    total = counts.total()
    ends = [*HELD_SECONDS, None]

    def within(share: float) -> float | None:
        place, reached = 0, counts[0]
        while reached < share * total:
            place += 1
            reached += counts[place]
        return ends[place]

    shares = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {"holds": total, **({name: within(share) for name, share in shares.items()} if total else {})}
