"""Spending within a minute, in one process and in several that share a state."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hypothesis import given
from hypothesis import strategies as st

from proxy.service.rates import Rates
from proxy.storage.query import StateError
from tests.proxy.storage.shared.conftest import Place


class Clock:
    def __init__(self) -> None:
        self.now = 600.0

    def __call__(self) -> float:
        return self.now


def test_the_last_minute_moves_on() -> None:
    clock = Clock()
    rates = Rates(clock=clock)
    rates.spend("a", 10)
    clock.now += 59
    assert rates.used("a") == 10
    clock.now += 16  # 15 seconds into the next minute
    assert rates.used("a") == 7.5
    rates.spend("a", 1)
    assert (rates.used("a"), rates.used("b")) == (8.5, 0)
    clock.now += 120
    assert rates.used("a") == 0


@given(st.lists(st.tuples(st.floats(0, 90), st.integers(0, 20)), max_size=12), st.integers(0, 30))
def test_after_the_seconds_that_it_tells_no_more_than_that_is_used(
    spent: list[tuple[float, int]], most: int
) -> None:
    clock = Clock()
    rates = Rates(clock=clock)
    for wait, amount in spent:
        clock.now += wait
        rates.spend("a", amount)
    clock.now += rates.seconds_until("a", most) + 1e-6
    assert rates.used("a") <= most + 1e-3


@asynccontextmanager
async def processes(place: Place, number: int) -> AsyncIterator[tuple[list[Rates], Clock]]:
    clock = Clock()
    async with place.connect() as state:
        rates = [Rates(state, clock) for _ in range(number)]
        async with asyncio.TaskGroup() as group:
            running = [group.create_task(one.run()) for one in rates]
            yield rates, clock
            for one in running:
                one.cancel()


async def test_all_processes_know_what_each_has_spent(place: Place) -> None:
    await place.wipe()
    async with processes(place, 2) as ((one, two), clock):
        for _ in range(3):
            one.spend("a", 2)
            two.spend("a", 1)
            await asyncio.gather(one.settle(), two.settle())
        two.spend("a", 0)
        await two.settle()
        assert two.used("a") == 9
        clock.now += 75
        one.spend("a", -2)
        await one.settle()
        assert one.used("a") == 9 * 0.75 - 2


async def test_without_the_state_a_process_counts_alone_and_says_it_later() -> None:
    said: list[dict[str, int]] = []

    class Away:
        answers = False

        async def spend(self, minute: int, amounts: dict[str, int]) -> dict[str, tuple[int, int]]:
            if not self.answers:
                raise StateError("away")
            said.append(dict(amounts))
            return {subject: (0, amount) for subject, amount in amounts.items()}

    state = Away()
    rates = Rates(state, Clock())  # type: ignore[arg-type]
    rates.spend("a", 3)
    running = asyncio.get_running_loop().create_task(rates.run())
    await rates.settle()
    await rates.settle()  # waits for nothing now
    rates.spend("a", 1)
    assert rates.used("a") == 4
    state.answers = True
    while not said:
        await asyncio.sleep(0)
    running.cancel()
    assert said == [{"a": 4}]
