"""However it is spread over time, processes and restarts, all that is spent is counted, once."""

import asyncio
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count, pairwise

from hypothesis import given
from hypothesis import strategies as st

from proxy.service.periods import Period
from proxy.service.rates import Count, Rates
from proxy.settings.storage import StateOptions
from proxy.storage.connect import make_state
from tests.helpers import examples

DAY, MONTH = Count("tokens_per_day", Period.DAY), Count("tokens_per_month", Period.MONTH)
START = 1_793_000_000.0
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("spend"), st.integers(0, 2), st.integers(0, 1000)),
        st.tuples(st.just("wait"), st.just(0), st.integers(0, 20 * 24 * 3600)),
        st.tuples(st.just("restart"), st.integers(0, 2), st.just(0)),
    ),
    max_size=25,
)


@given(STEPS)
@examples(60)
async def test_a_days_and_a_months_sums_are_those_of_all_that_was_spent_in_them(
    steps: list[tuple[str, int, int]],
) -> None:
    now, numbers = START, count()
    state = make_state(StateOptions())
    await state.start()

    def begin() -> tuple[Rates, asyncio.Task[None]]:
        rates = Rates(state, lambda: now, f"process {next(numbers)}")
        return rates, asyncio.get_running_loop().create_task(rates.run())

    async def end(process: tuple[Rates, asyncio.Task[None]]) -> None:
        rates, running = process
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        await rates.aclose()

    processes, spent = [begin() for _ in range(3)], Counter[str]()
    try:
        for what, which, amount in steps:
            moment = datetime.fromtimestamp(now, UTC)
            if what == "wait":
                for rates, _ in processes:
                    await rates.settle()  # a server that runs says what it knows within milliseconds
                now += amount
            elif what == "restart":
                await end(processes[which])
                processes[which] = begin()
            else:
                rates, _ = processes[which]
                rates.spend(DAY, amount)
                rates.spend(MONTH, amount)
                spent[f"{moment:%Y-%m-%d}"] += amount
                spent[f"{moment:%Y-%m}"] += amount
        for rates, _ in processes:
            await rates.settle()
        moment = datetime.fromtimestamp(now, UTC)
        for rates, _ in processes:
            rates.spend(DAY, 0)
            rates.spend(MONTH, 0)
            await rates.settle()
            assert rates.used(DAY) == spent[f"{moment:%Y-%m-%d}"]
            assert rates.used(MONTH) == spent[f"{moment:%Y-%m}"]
            until = now + rates.seconds_until(MONTH, -1)
            assert datetime.fromtimestamp(until, UTC).day == 1
    finally:
        for process in processes:
            await end(process)
        await state.aclose()


@given(st.integers(0, 10**8), st.sampled_from(Period))
def test_periods_follow_one_another_and_are_the_calendars(minute: int, period: Period) -> None:
    start = period.start(minute)
    end = period.end(start)
    assert start <= minute < end
    assert period.start(end) == end
    assert period.start(end - 1) == start
    names = [f"{datetime.fromtimestamp(60 * one, UTC):%Y-%m-%d %H:%M}" for one in (start, end - 1, end)]
    kept = {Period.MINUTE: 16, Period.DAY: 10, Period.MONTH: 7}[period]
    assert [one == other for one, other in pairwise(name[:kept] for name in names)] == [True, False]


def test_a_clock_that_goes_back_a_little_forgets_nothing() -> None:
    now = START - START % 86400
    rates = Rates(clock=lambda: now)
    rates.spend(DAY, 7)
    now -= 2
    assert rates.used(DAY) == 7
    rates.spend(DAY, 1)
    now += 2
    assert rates.used(DAY) == 8
