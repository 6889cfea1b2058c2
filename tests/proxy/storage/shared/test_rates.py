"""Spending within a minute, a day and a month, in one process and in several that share a state."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.service import rates as module
from proxy.service.periods import Period
from proxy.service.rates import Count, Rates
from proxy.storage.query import StateError
from proxy.storage.reports import Report
from proxy.storage.shared.protocol import Slot
from tests.processes import WAIT_LIMIT
from tests.proxy.storage.shared.conftest import Place

A, B = Count("a", Period.MINUTE), Count("b", Period.MINUTE)


class Clock:
    def __init__(self) -> None:
        self.now = 600.0

    def __call__(self) -> float:
        return self.now


def test_the_last_minute_moves_on() -> None:
    clock = Clock()
    rates = Rates(clock=clock)
    rates.spend(A, 10)
    clock.now += 59
    assert rates.used(A) == 10
    clock.now += 16  # 15 seconds into the next minute
    assert rates.used(A) == 7.5
    rates.spend(A, 1)
    assert (rates.used(A), rates.used(B)) == (8.5, 0)
    clock.now += 120
    assert rates.used(A) == 0


@given(st.lists(st.tuples(st.floats(0, 90), st.integers(0, 20)), max_size=12), st.integers(0, 30))
def test_after_the_seconds_that_it_tells_no_more_than_that_is_used(
    spent: list[tuple[float, int]], most: int
) -> None:
    clock = Clock()
    rates = Rates(clock=clock)
    for wait, amount in spent:
        clock.now += wait
        rates.spend(A, amount)
    clock.now += rates.seconds_until(A, most) + 1e-6
    assert rates.used(A) <= most + 1e-3


@asynccontextmanager
async def processes(place: Place, number: int) -> AsyncIterator[tuple[list[Rates], Clock]]:
    clock = Clock()
    async with place.connect() as state:
        rates = [Rates(state, clock, f"process {i}") for i in range(number)]
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(one.run()) for one in rates]
            yield rates, clock
            for one in running:
                one.cancel()


async def test_all_processes_know_what_each_has_spent(place: Place) -> None:
    await place.wipe()
    async with processes(place, 2) as ((one, two), clock):
        for _ in range(3):
            one.spend(A, 2)
            two.spend(A, 1)
            await asyncio.gather(one.settle(), two.settle())
        two.spend(A, 0)
        await two.settle()
        assert two.used(A) == 9
        clock.now += 75
        one.spend(A, -2)
        await one.settle()
        assert one.used(A) == 9 * 0.75 - 2


async def test_what_is_spent_while_the_state_hangs_is_counted_once(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call without an answer in time is made again. The state may carry out both."""
    await place.wipe()
    monkeypatch.setattr(module, "RETRY", 0.05)
    async with place.connect(state_timeout=1.0) as state, place.connect() as patient:
        rates = Rates(state, Clock(), "one")
        running = asyncio.get_running_loop().create_task(rates.run())
        rates.spend(A, 1)
        await rates.settle()
        with place.hanging():
            rates.spend(A, 10)
            await rates.settle()  # it does not answer
            rates.spend(A, 100)
        slot, report = Slot("a", previous=9, start=10, until=12), Report("two", 0)
        counted = 0
        async with asyncio.timeout(WAIT_LIMIT):
            while counted < 111:
                report = report._replace(number=report.number + 1)
                counted = (await patient.spend(report, 10, {slot: 0}))[slot][1]
        assert counted == 111
        running.cancel()
        await rates.aclose()
        assert (await patient.spend(report._replace(number=report.number + 1), 10, {slot: 0}))[slot][1] == 111


async def test_without_the_state_a_process_counts_alone_and_says_it_later() -> None:
    said: list[dict[Slot, int]] = []
    tried: list[tuple[int, dict[Slot, int]]] = []

    class Away:
        answers = False

        async def spend(
            self, report: Report, minute: int, amounts: dict[Slot, int]
        ) -> dict[Slot, tuple[int, int]]:
            tried.append((report.number, dict(amounts)))
            if not self.answers:
                raise StateError("away")
            said.append(dict(amounts))
            return {slot: (0, amount) for slot, amount in amounts.items()}

    state = Away()
    rates = Rates(state, Clock())  # type: ignore[arg-type]
    rates.spend(A, 3)
    running = asyncio.get_running_loop().create_task(rates.run())
    await rates.settle()
    await rates.settle()  # waits for nothing now
    rates.spend(A, 1)
    assert rates.used(A) == 4
    state.answers = True
    while len(said) < 2:
        await asyncio.sleep(0)
    running.cancel()
    slot = Slot("a", previous=9, start=10, until=12)
    assert said == [{slot: 3}, {slot: 1}]
    assert tried == [(1, {slot: 3}), (1, {slot: 3}), (2, {slot: 1})]
