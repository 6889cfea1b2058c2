"""The limit of a caller's requests, over several processes and while the state does not answer."""

import asyncio
import logging
import random
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from proxy.service import running as under_way
from proxy.service.running import RequestLimits
from proxy.settings.storage import StateOptions
from proxy.storage.connect import make_state
from proxy.storage.query import StateError
from proxy.storage.shared.protocol import State
from tests.helpers import until


@pytest.fixture
async def state() -> AsyncIterator[State]:
    state = make_state(StateOptions())
    await state.start()
    yield state
    await state.aclose()


@asynccontextmanager
async def process(limit: int, state: State | None, name: str) -> AsyncIterator[RequestLimits]:
    limits = RequestLimits(limit, state, name)
    running = asyncio.get_running_loop().create_task(limits.run())
    try:
        yield limits
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_caller_has_one_limit_over_all_processes(state: State) -> None:
    async with process(3, state, "p1") as one, process(3, state, "p2") as other:
        assert await one.enter("a")
        assert await other.enter("a")
        assert await one.enter("a")
        assert not await other.enter("a")
        assert not await one.enter("a")
        assert await other.enter("b")
        one.leave("a")
        while not await other.enter("a"):
            pass


async def test_no_process_admits_too_many_and_all_counts_return_to_zero(state: State) -> None:
    """Though callers leave at any time, also while their requests wait to be admitted."""
    rng = random.Random(7)
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()

    async def request(limits: RequestLimits, caller: str) -> None:
        if not await limits.enter(caller):
            return
        running[caller] += 1
        most[caller] = max(most[caller], running[caller])
        try:
            await asyncio.sleep(0)
        finally:
            running[caller] -= 1
            limits.leave(caller)

    async with AsyncExitStack() as stack:
        processes = [await stack.enter_async_context(process(3, state, f"p{i}")) for i in range(3)]
        for _ in range(20):
            tasks = [
                asyncio.get_running_loop().create_task(request(rng.choice(processes), rng.choice("ab")))
                for _ in range(20)
            ]
            for _ in range(rng.randrange(30)):
                await asyncio.sleep(0)
            for task in rng.sample(tasks, 5):
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        assert most.keys() == {"a", "b"}
        assert max(most.values()) <= 3
        while (await state.count("asks", {"a": 0, "b": 0})) != {"a": 0, "b": 0}:
            await asyncio.sleep(0)


class Unreachable:
    """A state that answers when it is told to."""

    def __init__(self) -> None:
        self.answers = False
        self.calls: list[dict[str, int]] = []

    async def count(self, process: str, requests: Mapping[str, int]) -> dict[str, int]:
        self.calls.append(dict(requests))
        await asyncio.sleep(0)
        if not self.answers:
            raise StateError("Redis does not answer (TimeoutError)")
        return dict(requests)


async def test_without_the_state_a_process_counts_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(under_way, "RETRY", 0.001)
    state = Unreachable()
    async with process(2, state, "p") as limits:  # type: ignore[arg-type]
        assert [await limits.enter("a") for _ in range(3)] == [True, True, False]
        await until(lambda: len(state.calls) > 3)
        limits.leave("a")
        assert await limits.enter("a")
        (record,) = [one for one in caplog.records if one.levelno >= logging.WARNING]
        assert record.message.startswith("Redis does not answer (TimeoutError): ")
        state.answers = True
        await until(lambda: limits._answers)
        assert state.calls[-1] == {"a": 2}, "what it could not say before"
        assert not await limits.enter("a")
        limits.leave("a")
        assert await limits.enter("a")


async def test_a_state_that_answers_again_learns_of_callers_that_came_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(under_way, "RETRY", 0.001)
    state = Unreachable()
    async with process(2, state, "p") as limits:  # type: ignore[arg-type]
        assert await limits.enter("a")
        assert await limits.enter("b")
        state.answers = True
        await until(lambda: limits._answers)
        assert state.calls[-1] == {"a": 1, "b": 1}


async def test_counts_are_said_again_now_and_then(state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a state that lost them has them again."""
    monkeypatch.setattr(under_way, "RENEWAL", 0.01)
    async with process(5, state, "p") as limits:
        assert await limits.enter("a")
        await state.forget("p")
        while (await state.count("asks", {"a": 0}))["a"] != 1:
            await asyncio.sleep(0.001)
