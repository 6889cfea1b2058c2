"""Calls of hooks: deadlines, cancellation, and whatever async and plain hooks raise (contract 4.1)."""

import asyncio
import contextlib
import time
from typing import Any, cast

import pytest

from engine.protocol import Delta, QueueFullError, RequestError
from hooks import Chunk, Verdict, emit, hold
from hooks.decisions.failure import HookError
from hooks.pipeline import driver
from hooks.pipeline.ask import Step
from hooks.pipeline.driver import GuardDriver, in_own_words
from tests.helpers import Script, Source, guard_all, make_deltas, make_request, opened, pipeline_of


@pytest.mark.parametrize("error", [KeyboardInterrupt, asyncio.CancelledError, GeneratorExit, RecursionError])
@pytest.mark.parametrize("kind", ["plain", "async", "waits"])
async def test_whatever_a_hook_raises_fails_its_request_alone(
    error: type[BaseException], kind: str, caplog: pytest.LogCaptureFixture
) -> None:  # contract 4.1
    class Plain:
        def __call__(self, chunk: Chunk) -> Verdict:
            raise error

    class Async:
        async def __call__(self, chunk: Chunk) -> Verdict:
            raise error

    class Waits:
        async def __call__(self, chunk: Chunk) -> Verdict:
            await asyncio.sleep(0)
            raise error

    with pytest.raises(HookError):
        await guard_all(
            pipeline_of({"plain": Plain, "async": Async, "waits": Waits}[kind]()), make_deltas(["a"])
        )
    assert f"{__file__}:" in caplog.text, "the log names the line that raised it"


async def test_a_deadline_fails_the_request_closed() -> None:  # contract 4.1
    class Hangs:
        async def __call__(self, chunk: Chunk) -> Verdict:
            if "b" in chunk.text and not chunk.aborted:
                await asyncio.Event().wait()
            return emit(chunk.pending)

    source = Source(make_deltas(["a", "b", "c"]))
    with pytest.raises(HookError):
        await guard_all(pipeline_of(Hangs(), hook_timeout=0.02), source)
    assert source.closed_early


async def test_a_plain_hook_past_its_deadline_fails_the_request_closed() -> None:  # contract 4.1
    slow = Script(lambda c: time.sleep(0.03) or emit(c.pending))
    with pytest.raises(HookError):
        await guard_all(pipeline_of(slow, hook_timeout=0.02), make_deltas(["a"]))


async def test_a_hook_that_catches_being_interrupted_is_late_all_the_same() -> None:  # contract 4.1, 4.3
    class Stubborn:
        async def __call__(self, chunk: Chunk) -> Verdict:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            return emit(chunk.pending)

    with pytest.raises(HookError):
        await guard_all(pipeline_of(Stubborn(), hook_timeout=0.02), make_deltas(["a"]))


class Stubborn:
    """Whatever is done to it, it goes on until it is let go."""

    def __init__(self) -> None:
        self.let_go = asyncio.Event()
        self.calls: list[bool] = []
        """Whether each call was the last of its stream."""

    async def __call__(self, chunk: Chunk) -> Verdict:
        self.calls.append(chunk.is_final)
        while not self.let_go.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await self.let_go.wait()
        return emit(chunk.pending)


async def test_a_hook_that_will_not_be_cancelled_has_a_deadline_all_the_same(
    caplog: pytest.LogCaptureFixture,
) -> None:  # contract 4.1
    hook = Stubborn()
    pipeline = pipeline_of(hook, hook_timeout=0.02)
    source = Source(make_deltas(["a", "b"]))
    with pytest.raises(HookError):
        await guard_all(pipeline, source)
    assert source.closed_early
    await pipeline.aclose()
    assert "hook0 goes on past its deadline" in caplog.text
    assert "hook0 does not end" in caplog.text
    (late,) = pipeline.hooks[0].late
    hook.let_go.set()
    await late
    assert not pipeline.hooks[0].late
    await pipeline.aclose()


async def test_no_last_call_comes_while_another_call_goes_on() -> None:  # contract 2.3
    hook = Stubborn()
    pipeline = pipeline_of(hook, hook_timeout=0.02)
    async with opened(pipeline, make_request()) as guard:
        feeding = asyncio.get_running_loop().create_task(cast(Any, guard.feed(make_deltas("a")[0])))
        while not hook.calls:
            await asyncio.sleep(0)
        feeding.cancel()  # the client left
        with pytest.raises((asyncio.CancelledError, HookError)):
            await feeding
        await guard.close()
        assert hook.calls == [False]
        hook.let_go.set()
        await asyncio.gather(*pipeline.hooks[0].late)
    assert hook.calls == [False]


async def test_a_hook_may_take_its_time_to_clean_up_when_the_client_leaves() -> None:
    steps: list[str] = []

    class Cleans:
        async def __call__(self, chunk: Chunk) -> Verdict:
            if chunk.aborted:
                steps.append("last call")
                return emit(chunk.pending)
            try:
                steps.append("call")
                await asyncio.Event().wait()
            finally:
                for _ in range(5):
                    await asyncio.sleep(0)
                steps.append("cleaned up")
            raise AssertionError

    async with opened(pipeline_of(Cleans()), make_request()) as guard:
        feeding = asyncio.get_running_loop().create_task(cast(Any, guard.feed(make_deltas("a")[0])))
        while not steps:
            await asyncio.sleep(0)
        feeding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await feeding
        await guard.close()
    assert steps == ["call", "cleaned up", "last call"]


async def test_an_async_hook_that_blocks_past_its_deadline_fails_the_request() -> None:  # contract 4.1
    class Blocks:
        async def __call__(self, chunk: Chunk) -> Verdict:
            time.sleep(0.03)  # noqa: ASYNC251
            return emit(chunk.pending)

    with pytest.raises(HookError):
        await guard_all(pipeline_of(Blocks(), hook_timeout=0.02), make_deltas(["a"]))


@pytest.mark.parametrize(
    "error",
    [
        RequestError(
            "theirs", param="seed", status=422, unquoted=RequestError("ours", param="seed", status=422)
        ),
        QueueFullError("theirs", retry_after=7, unquoted=QueueFullError("ours", retry_after=7)),
    ],
    ids=["refused", "full"],
)
async def test_an_upstream_s_own_words_stay_inside_however_often_they_are_asked_for(
    error: RequestError | QueueFullError,
) -> None:  # contract 5.3
    async with opened(pipeline_of(Script(lambda c: emit(c.pending))), make_request()) as guard:
        for _ in range(2):
            own = in_own_words(error, guard)
            assert str(own) == "ours"
            assert own.__dict__ == error.__dict__ | {"unquoted": None}


async def test_plain_hooks_answer_in_the_same_turn() -> None:
    async with opened(pipeline_of(Script(lambda c: emit(c.pending))), make_request()) as guard:
        if isinstance(guard, GuardDriver):
            assert isinstance(guard.feed(Delta(text="a")), Step)


def test_a_late_plain_hook_fails_its_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contract 4.1: a call that takes longer than its deadline fails the request."""
    times = iter([0.0, 11.0])
    monkeypatch.setattr(driver, "monotonic", lambda: next(times, 11.0))
    guard = pipeline_of(Script(lambda c: emit(c.pending)), hook_timeout=10.0).open(make_request())
    with pytest.raises(HookError) as caught:
        guard.feed(Delta(text="a"))
    assert isinstance(caught.value.__cause__, TimeoutError)


def test_a_hook_that_raises_late_fails_with_its_own_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Contract 4.1: the log names the line that raised, not the deadline."""

    def raises(chunk: Chunk) -> Verdict:
        raise ValueError

    times = iter([0.0, 11.0])
    monkeypatch.setattr(driver, "monotonic", lambda: next(times, 11.0))
    guard = pipeline_of(Script(raises), hook_timeout=10.0).open(make_request())
    with pytest.raises(HookError) as caught:
        guard.feed(Delta(text="a"))
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_hook_is_not_counted_the_time_that_another_ones_verdict_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times = iter([0.0, 0.0, 1.0, 5.0, 7.0])
    monkeypatch.setattr(driver, "monotonic", lambda: next(times))
    pipeline = pipeline_of(Script(lambda c: hold(1)), Script(lambda c: hold(0)))
    pipeline.open(make_request(), listener=lambda _: None).feed(Delta(text="bc"))
    assert [tally.seconds for tally in pipeline.tallies.values()] == [1.0, 2.0]
