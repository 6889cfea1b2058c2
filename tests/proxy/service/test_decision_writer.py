"""Decisions are written in batches, completely, and no request waits."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator

import pytest

from hooks.decisions.tally import Tally
from proxy.deployment.deployment import Policy
from proxy.deployment.directory import PolicyEntry
from proxy.service.operator import decision_writer as writer
from proxy.service.operator.decision_writer import DecisionWriter
from proxy.service.usage import UsageCounts
from proxy.settings.policy import PolicySettings
from proxy.settings.storage import DecisionOptions, StoreOptions
from proxy.storage.operator import decisions, hook_hours, usage
from proxy.storage.operator.store import Store
from proxy.storage.query import StateError
from proxy.storage.records import Account
from proxy.telemetry.feed import DecisionFeed
from tests.helpers import options_with, pipeline_of, until
from tests.proxy.telemetry.test_feed import ASKER, DECISION, heard


class Fragile(Store):
    """A store that does not answer while it is broken, and loses its answers while those are lost."""

    is_broken = False
    loses_answers = False

    async def run(self, steps, *, alone=True):
        if self.is_broken:
            raise StateError("the store does not answer")
        answer = await super().run(steps, alone=alone)
        if self.loses_answers:
            raise StateError("the store's answer is lost")
        return answer


@pytest.fixture
async def store() -> AsyncIterator[Fragile]:
    store = Fragile(StoreOptions(), has_admin_key=False)
    await store.start()
    yield store
    await store.aclose()


def strict() -> Policy:
    return Policy(PolicyEntry("strict", PolicySettings()), pipeline_of(lambda chunk: None))


def make(store: Store, feed: DecisionFeed, *policies: Policy, **options: float) -> DecisionWriter:
    return DecisionWriter(
        store,
        feed,
        options_with(DecisionOptions, **options),
        lambda: policies,
        UsageCounts(time.time, "process"),
    )


async def stored(store: Store) -> int:
    return len((await store.run(decisions.find({}, limit=10_000))).records)


async def test_what_is_told_is_written_in_a_while(store: Fragile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "MAX_IN_MEMORY", 1200)
    feed = DecisionFeed()
    one = make(store, feed)
    one.start()
    await asyncio.sleep(0)
    listener = feed.listener(ASKER)
    assert listener is not None
    for _ in range(1200):
        listener(DECISION)
    while await stored(store) < 1200:
        await asyncio.sleep(0)
    await one.aclose()
    assert feed.listener(ASKER) is None


async def test_a_store_that_does_not_answer_is_tried_again(
    store: Fragile, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(writer, "RETRY", 0.0)
    feed = DecisionFeed()
    store.is_broken = True
    one = make(store, feed)
    one.start()
    await asyncio.sleep(0)
    heard(feed)
    await until(lambda: "decisions cannot be written" in caplog.text)
    store.is_broken = False
    while not await stored(store):
        await asyncio.sleep(0)
    await one.aclose()


async def test_what_does_not_fit_is_counted_and_logged(
    store: Fragile, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(writer, "MAX_WAITING", 2)
    one = make(store, DecisionFeed())
    for _ in range(5):
        one.put(heard(DecisionFeed()))
    with caplog.at_level(logging.ERROR):
        await one.flush()
    assert "3 decisions are lost" in caplog.text
    assert await stored(store) == 2


async def test_old_decisions_are_removed(store: Fragile) -> None:
    old = heard(DecisionFeed())._replace(time=1000.0)
    await store.run(decisions.add([old]))
    await make(store, DecisionFeed(), decisions_max_age=1).flush()
    assert await stored(store) == 0


async def test_hooks_work_is_written_once_and_also_that_of_a_retired_pipeline(store: Fragile) -> None:
    feed = DecisionFeed()
    end = feed.subscribe(lambda record: None)
    policies = [strict()]
    one = DecisionWriter(store, feed, DecisionOptions(), lambda: policies, UsageCounts(time.time, "process"))
    tally = policies[0].pipeline.tallies["hook0"]

    def works(count: int) -> None:
        feed.listener(ASKER)
        tally.add(Tally(num_streams=1, num_characters=count, seconds=0.5))

    works(10)
    await one.flush()
    await one.flush()
    works(5)
    policies[:] = [strict()]
    store.is_broken = True
    with pytest.raises(StateError):
        await one.flush()
    store.is_broken = False
    await one.flush()
    await one.flush()
    (work,) = await store.run(hook_hours.find({}, None, None))
    end()
    assert (work.policy, work.hook, work.mode) == ("strict", "hook0", "enforce")
    assert (work.num_requests, work.num_streams, work.num_characters, work.seconds) == (2, 2, 15, 1.0)


@pytest.mark.parametrize("fault", ["is_broken", "loses_answers"])
async def test_usage_counts_once_although_a_write_seems_to_fail(store: Fragile, fault: str) -> None:
    """Nobody knows whether a store whose answer is lost has written."""
    feed, counts = DecisionFeed(), UsageCounts(time.time, "process")
    one = DecisionWriter(store, feed, DecisionOptions(), lambda: (), counts)
    used = counts.begin(Account("acme", "alice", "default", "m"))
    for _ in range(2):
        setattr(store, fault, True)
        for _ in range(2):
            used.add(4, 6, is_estimated=False)
            with pytest.raises(StateError):
                await one.flush()
        setattr(store, fault, False)
        await one.flush()
    await one.flush()
    (row,) = await store.run(usage.report(["key"], {}))
    assert [row[name] for name in usage.COUNTS] == [1, 16, 24, 0]
