"""When requests are sent."""

import asyncio
import itertools
import statistics
from typing import Any

import pytest
from aiohttp import web

from tests.weir_bench.conftest import Scripted, hello, plan_for
from weir_bench.load import arrival_times, closed_loop, open_loop
from weir_bench.plan import Level, Plan, Target
from weir_bench.prompts import WordPrompts
from weir_bench.runner import Runner


class VirtualTime:
    """Passes only while something sleeps."""

    def __init__(self) -> None:
        self.time = 0.0

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)  # whatever was due until now
        self.time += seconds


async def test_a_closed_loop_keeps_as_many_streams_open_as_asked_and_never_more(scripted: Scripted) -> None:
    all_there = asyncio.Barrier(5)

    async def answer(request: web.Request, body: Any) -> web.StreamResponse:
        await all_there.wait()  # nothing ends before five are open
        return await hello(request, body)

    server = await scripted(answer)
    runner = Runner(plan_for(server, levels=[Level(concurrency=5)], num_prompts=20))
    await runner.run()
    assert server.most_open == 5
    assert (len(server.bodies), len(runner.runs[0].records)) == (20, 20)
    assert not runner.runs[0].open


async def test_a_closed_loop_sends_each_body_once() -> None:
    sent: list[bytes] = []

    async def send(body: bytes, due: float | None) -> None:
        assert due is None
        sent.append(body)
        await asyncio.sleep(0)

    await closed_loop(send, iter([b"%d" % i for i in range(10)]), 3)
    assert sorted(sent) == [b"%d" % i for i in range(10)]


async def test_a_closed_loop_without_a_number_of_requests_ends_with_its_duration(scripted: Scripted) -> None:
    server = await scripted(hello)
    runner = Runner(plan_for(server, duration=0.3))
    await runner.run()
    (run,) = runner.runs
    assert run.duration >= 0.3
    assert 0 < len(server.bodies) == len(run.records)


async def test_an_open_loop_sends_at_its_arrivals_whatever_is_still_open() -> None:
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


async def test_an_open_loop_may_have_a_limit_on_what_is_open() -> None:
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


async def test_open_loop_requests_reach_the_server(scripted: Scripted) -> None:
    server = await scripted(hello)
    plan = plan_for(server, levels=[Level(request_rate=float("inf"))], num_prompts=25)
    runner = Runner(plan)
    await runner.run()
    (run,) = runner.runs
    assert len(server.bodies) == 25
    assert [record.due for record in run.records] == [0.0] * 25
    assert all(record.sent >= record.due for record in run.records)


def test_arrivals_are_a_poisson_process() -> None:
    times = arrival_times(rate=4.0, seed=7, num_requests=20_000)
    gaps = [after - before for before, after in itertools.pairwise([0.0, *times])]
    mean = statistics.fmean(gaps)
    # Of an exponential distribution, which the seed has them drawn from: within 4 standard errors.
    assert mean == pytest.approx(1 / 4, rel=4 / 20_000**0.5)
    assert statistics.stdev(gaps) == pytest.approx(mean, rel=0.03)
    assert sum(gap > mean for gap in gaps) / len(gaps) == pytest.approx(0.3679, abs=0.014)


def test_arrivals_follow_their_seed() -> None:
    assert arrival_times(3.0, 1, num_requests=50) == arrival_times(3.0, 1, num_requests=50)
    assert arrival_times(3.0, 1, num_requests=50) != arrival_times(3.0, 2, num_requests=50)


def test_less_burstiness_comes_in_bursts() -> None:
    def spread(burstiness: float) -> float:
        times = arrival_times(5.0, 3, burstiness=burstiness, num_requests=5_000)
        gaps = [after - before for before, after in itertools.pairwise(times)]
        return statistics.stdev(gaps) / statistics.fmean(gaps)

    # Of a gamma distribution: 1 / sqrt(shape).
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


def test_targets_take_turns_with_the_same_prompts_and_arrivals() -> None:
    plan = Plan(
        targets=[Target("a", "http://a"), Target("b", "http://b")],
        levels=[Level(request_rate=2.0), Level(request_rate=4.0)],
        prompts=WordPrompts(seed=1, num_words=3),
        seed=1,
        repetitions=3,
        num_prompts=5,
    )
    order = [
        (number, str(level), repetition, target.name) for number, level, repetition, target in plan.order()
    ]
    assert [name for *_, name in order] == list("abbaab" * 2)
    assert [number for number, *_ in order] == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6]
    assert {level for _, level, *_ in order[:6]} == {"2 requests/s"}
    first, second = (plan.arrivals(plan.levels[0], number) for number in (1, 2))
    assert first == plan.arrivals(plan.levels[0], 1)
    assert first != second
