"""Counting the requests of an engine, and ending them."""

import asyncio

import pytest

from engine.protocol import EngineError, ShutdownError, Usage
from engine.upstream.request_tracker import RequestTracker


async def test_a_deadline_ends_the_wait() -> None:
    tracker = RequestTracker()
    with pytest.raises(TimeoutError):
        await tracker.wait(asyncio.Event().wait(), asyncio.get_running_loop().time())
    tracker.close()
    with pytest.raises(EngineError, match="shutting down"):
        await tracker.wait(asyncio.Event().wait(), float("inf"))


async def test_requests_and_their_tokens_are_counted() -> None:
    tracker = RequestTracker()
    with tracker.track() as request:
        assert tracker.stats().num_running == 1
        request.usage = Usage(3, 5)
    stats = tracker.stats()
    assert (stats.num_running, stats.prompt_tokens_total, stats.generation_tokens_total) == (0, 3, 5)
    assert stats.aborted_total == 0


async def test_tokens_count_while_their_requests_run_and_the_totals_never_go_back() -> None:
    tracker = RequestTracker()

    def totals() -> tuple[int, int]:
        stats = tracker.stats()
        return stats.prompt_tokens_total, stats.generation_tokens_total

    with tracker.track() as one, tracker.track() as other:
        one.usage, other.usage = Usage(3, 5), Usage(2, 1)
        assert totals() == (5, 6)
        one.usage = Usage(3, 4)  # the upstream's own count
        assert totals() == (5, 6)
        other.usage = Usage(2, 7)
        assert totals() == (5, 11)
    assert totals() == (5, 11)


@pytest.mark.parametrize("error", [GeneratorExit, asyncio.CancelledError])
async def test_a_request_that_is_closed_or_cancelled_counts_as_aborted(error: type[BaseException]) -> None:
    tracker = RequestTracker()
    with pytest.raises(error), tracker.track():
        raise error
    assert tracker.stats().aborted_total == 1


async def test_a_failure_of_the_engine_is_no_abort() -> None:
    tracker = RequestTracker()
    with pytest.raises(EngineError), tracker.track():
        raise EngineError("broke")
    assert tracker.stats().aborted_total == 0


async def test_closing_ends_waits_and_refuses_requests() -> None:
    tracker = RequestTracker()

    async def wait() -> None:
        with tracker.track():
            await tracker.wait(asyncio.Event().wait())

    waiting = asyncio.get_running_loop().create_task(wait())
    await asyncio.sleep(0)
    tracker.close()
    for work in (waiting, tracker.pause(), tracker.pause(1000.0)):
        with pytest.raises(EngineError) as caught:
            await work
        assert caught.value.status == 503
    with pytest.raises(EngineError), tracker.track():
        pass
    assert tracker.stats().aborted_total == 1


async def test_a_timeout_of_the_work_itself_is_passed_on() -> None:
    async def fail() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        await RequestTracker().wait(fail())


async def test_a_failure_that_the_closing_brings_is_no_failure() -> None:
    tracker = RequestTracker()
    with pytest.raises(ShutdownError), tracker.track():
        tracker.close()
        raise EngineError("The connection to the upstream engine broke.", status=502)
    with pytest.raises(ShutdownError):
        tracker.check()
    assert tracker.stats().aborted_total == 1
