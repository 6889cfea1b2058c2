"""Decisions and hooks' work in the store."""

from collections import Counter

import pytest

from proxy.storage.operator import decisions, hook_hours
from proxy.storage.operator.decisions import Found
from proxy.storage.operator.hook_hours import HookWork
from proxy.storage.operator.store import Store
from proxy.storage.records import DecisionRecord


def record(i: int, **fields: object) -> DecisionRecord:
    values: dict[str, object] = dict.fromkeys(DecisionRecord._fields)
    values |= {"time": 1000.0 + i, "request_id": f"r{i}", "tenant": "acme", "key": "alice"}
    values |= {"policy": "strict", "hook": "pii", "action": "redact", "mode": "enforce"}
    values |= {"offset": i, "num_withheld": 2}
    return DecisionRecord(**{**values, **fields})  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
async def _is_empty(store: Store) -> None:
    await store.run(decisions.prune(1e11, 1))
    await store.run(hook_hours.prune(1e11))


async def ids(store: Store, **equal: str) -> list[str]:
    found = await store.run(decisions.find(equal))
    return [one.request_id for one in found.records]


async def test_what_is_written_is_read_from_the_newest_on(store: Store) -> None:
    records = [record(i, user="ü\ud800", withheld="a\0b" if i else None) for i in range(3)]
    await store.run(decisions.add(records))
    found = await store.run(decisions.find({}))
    assert found.cursor is None
    assert [one.offset for one in found.records] == [2, 1, 0]
    assert found.records[2] == records[0]._replace(user="ü\\ud800")
    assert found.records[0].withheld in ("a\0b", "a\\x00b")


async def test_records_are_found_by_their_fields_and_by_time(store: Store) -> None:
    await store.run(
        decisions.add([record(0), record(1, tenant="bits"), record(2, hook="phrases", mode="shadow")])
    )
    assert await ids(store, tenant="bits") == ["r1"]
    assert await ids(store, hook="phrases", mode="shadow") == ["r2"]
    assert await ids(store, hook="pii") == ["r1", "r0"]
    assert await ids(store, request_id="r0") == ["r0"]
    between = await store.run(decisions.find({}, since=1001.0, until=1002.0))
    assert [one.request_id for one in between.records] == ["r1"]


async def test_a_cursor_goes_on_with_older_ones(store: Store) -> None:
    await store.run(decisions.add([record(i) for i in range(5)]))
    seen: list[int] = []
    found = Found([], None)
    for _ in range(3):
        found = await store.run(decisions.find({}, limit=2, cursor=found.cursor))
        seen += [one.offset for one in found.records]
    assert (seen, found.cursor) == ([4, 3, 2, 1, 0], None)


async def test_old_records_and_those_beyond_the_limit_are_removed(store: Store) -> None:
    await store.run(decisions.add([record(i) for i in range(10)]))
    await store.run(decisions.prune(1003.0, 100))
    assert await ids(store) == [f"r{i}" for i in range(9, 2, -1)]
    await store.run(decisions.prune(0.0, 2))
    assert await ids(store) == ["r9", "r8"]
    await store.run(decisions.prune(2000.0, 2))
    await store.run(decisions.prune(2000.0, 2))
    assert await ids(store) == []


async def test_decisions_are_summed_by_hook_and_by_asker_without_clean_holds(store: Store) -> None:
    some = [record(i, request_id=f"r{i % 2}", reason="EMAIL") for i in range(3)]
    clean = record(7, action="hold", num_withheld=0)
    await store.run(decisions.add([*some, clean, record(8, key="bob", action="terminate", num_withheld=9)]))
    assert await store.run(
        decisions.sums(("policy", "hook", "action", "reason"), {"hook": "pii"}, None, None)
    ) == [("strict", "pii", "redact", "EMAIL", 3, 2, 6), ("strict", "pii", "terminate", None, 1, 1, 9)]
    assert await store.run(decisions.sums(("policy", "hook", "tenant", "key"), {}, None, None)) == [
        ("strict", "pii", "acme", "alice", 3, 2, 6),
        ("strict", "pii", "acme", "bob", 1, 1, 9),
    ]


async def test_hooks_work_is_summed_over_hours(store: Store) -> None:
    work = HookWork("strict", "pii", "shadow", 2, 3, 100, 0.5, Counter({0: 1, 15: 2}))
    for now in (3600.0, 3700.0, 7300.0):
        await store.run(hook_hours.add(now, [work]))
    (both,) = await store.run(hook_hours.find({"mode": "shadow"}, None, None))
    assert both == HookWork("strict", "pii", "shadow", 6, 9, 300, pytest.approx(1.5), Counter({0: 3, 15: 6}))  # type: ignore[arg-type]
    (second,) = await store.run(hook_hours.find({}, 7250.0, None))
    assert second.num_requests == 2
    await store.run(hook_hours.prune(10000.0))
    (left,) = await store.run(hook_hours.find({}, None, None))
    assert left.num_requests == 2
