"""Loops send requests at the right times."""

import asyncio
import itertools
import statistics

import pytest

from weir_bench.load import arrival_times, closed_loop, open_loop


class VirtualTime:
    """A clock that moves only during `sleep`."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)  # let everything that is due run
        self.time += seconds


async def test_a_closed_loop_sends_each_body_once() -> None:
    sent: list[bytes] = []

    async def send(body: bytes, due: float | None) -> None:
        assert due is None
        sent.append(body)
        await asyncio.sleep(0)

    await closed_loop(send, iter([b"%d" % i for i in range(10)]), 3)
    assert sorted(sent) == [b"%d" % i for i in range(10)]


async def test_an_open_loop_sends_at_its_arrivals_even_if_earlier_requests_are_open() -> None:
    clock, never = VirtualTime(), asyncio.Event()
    sent: list[tuple[float, float | None]] = []

    async def send(body: bytes, due: float | None) -> None:
        sent.append((clock.now(), due))
        if len(sent) == 4:
            never.set()
        await never.wait()

    arrivals = [0.5, 1.25, 1.25, 7.0]
    await open_loop(send, itertools.repeat(b""), arrivals, clock.now, sleep=clock.sleep)
    assert [due for _, due in sent] == arrivals
    assert [at for at, _ in sent] == arrivals


async def test_an_open_loop_may_limit_its_open_requests() -> None:
    clock = VirtualTime()
    gates: asyncio.Queue[asyncio.Event] = asyncio.Queue()
    num_open = 0

    async def send(body: bytes, due: float | None) -> None:
        nonlocal num_open
        num_open += 1
        assert num_open <= 2
        gate = asyncio.Event()
        gates.put_nowait(gate)
        await gate.wait()
        num_open -= 1

    async def open_gates() -> None:
        for _ in range(6):
            (await gates.get()).set()

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(open_gates())
        tasks.create_task(
            open_loop(send, itertools.repeat(b""), [0.0] * 6, clock.now, max_concurrency=2, sleep=clock.sleep)
        )
    assert num_open == 0


def test_arrivals_are_a_poisson_process() -> None:
    times = arrival_times(rate=4.0, seed=7, num_requests=20_000)
    gaps = [after - before for before, after in itertools.pairwise([0.0, *times])]
    mean = statistics.fmean(gaps)
    # The gaps are drawn from an exponential distribution. The tolerance is 4 standard errors.
    assert mean == pytest.approx(1 / 4, rel=4 / 20_000**0.5)
    assert statistics.stdev(gaps) == pytest.approx(mean, rel=0.03)
    assert sum(gap > mean for gap in gaps) / len(gaps) == pytest.approx(0.3679, abs=0.014)


def test_arrivals_follow_their_seed() -> None:
    assert arrival_times(3.0, 1, num_requests=50) == arrival_times(3.0, 1, num_requests=50)
    assert arrival_times(3.0, 1, num_requests=50) != arrival_times(3.0, 2, num_requests=50)


def test_arrivals_come_in_bursts_at_a_low_burstiness() -> None:
    def spread(burstiness: float) -> float:
        times = arrival_times(5.0, 3, burstiness=burstiness, num_requests=5_000)
        gaps = [after - before for before, after in itertools.pairwise(times)]
        return statistics.stdev(gaps) / statistics.fmean(gaps)

    # The spread of a gamma distribution is 1 / sqrt(shape).
    assert spread(0.25) == pytest.approx(2.0, rel=0.1)
    assert spread(4.0) == pytest.approx(0.5, rel=0.1)


def test_arrivals_end_with_their_number_or_their_duration() -> None:
    times = arrival_times(10.0, 1, duration=30.0)
    assert times == sorted(times)
    assert times[0] > 0
    assert times[-1] < 30.0
    assert arrival_times(10.0, 1, duration=30.0, num_requests=3) == times[:3]
    assert arrival_times(float("inf"), 1, num_requests=4) == [0.0] * 4
    with pytest.raises(ValueError, match="duration"):
        arrival_times(float("inf"), 1, duration=1.0)
