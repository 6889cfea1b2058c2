"""A pool of engines: who gets a request, what becomes of failures, and what is counted."""

import asyncio
from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import (
    CallerLimitError,
    Delta,
    EngineError,
    GenerationRequest,
    LogitsProcessorError,
    ModelInfo,
    QueueFullError,
    RequestError,
    Rewind,
    ShutdownError,
)
from engine.protocol.fields.support import FieldSupport
from engine.upstream.pool.breaker import FAILURES
from engine.upstream.pool.engine import PoolEngine
from engine.upstream.pool.replica import Replica
from engine.upstream.pool.routing import LeastOutstanding
from tests.engine.upstream.pool.conftest import MakePool, Pool
from tests.helpers import ScriptedEngine, Teller, make_deltas, make_request, text_of, until

REQUEST = make_request()


def well(request: GenerationRequest) -> Iterable[Any]:
    return make_deltas(["Hel", "lo"])


def failing(error: Exception) -> Any:
    return lambda request: [error]


def hanging(request: GenerationRequest) -> Iterable[Any]:
    return [asyncio.Event()]


def breaking(request: GenerationRequest) -> Iterable[Any]:
    return [*make_deltas(["Hel"])[:1], EngineError("It broke.", status=502)]


def asked_first(pool: Pool, name: str) -> GenerationRequest:
    """A request that affinity sends to this replica."""
    requests = (
        replace(REQUEST, messages=({"role": "user", "content": f"question {i}"},)) for i in range(1000)
    )
    candidates = list(pool.replicas.values())
    routing = pool._routing
    return next(r for r in requests if routing.choose(routing.keys(r), candidates).name == name)


async def collect(pool: PoolEngine, request: GenerationRequest = REQUEST) -> list[Delta]:
    async with aclosing(pool.generate(request)) as deltas:
        return [delta async for delta in deltas]


UNREACHABLE = EngineError("It cannot be reached.", status=503)
RETRIED = [
    UNREACHABLE,
    QueueFullError("full"),
    EngineError("bad gateway", status=502),
    EngineError("slow", status=504),
    EngineError("failed"),
]


@pytest.mark.parametrize("error", RETRIED, ids=lambda e: f"{type(e).__name__} {e.status}")
async def test_another_replica_answers_if_one_fails_before_its_first_delta(
    make_pool: MakePool, error: EngineError
) -> None:
    pool = await make_pool(a=failing(error), b=well)
    assert text_of(await collect(pool, asked_first(pool, "a"))) == "Hello"
    assert pool.asked == {"a": 1, "b": 1}
    assert pool.outstanding == {"a": 0, "b": 0}
    assert pool.stats().replicas["a"].retries_total == 1
    assert pool.outcomes("b") == {"finished": 1}


async def test_a_replica_that_is_silent_before_its_first_delta_is_given_up(make_pool: MakePool) -> None:
    pool = await make_pool(a=hanging, b=well, first_token_timeout=0.01)
    assert text_of(await collect(pool, asked_first(pool, "a"))) == "Hello"
    assert (pool.outcomes("a"), pool.engines["a"].running) == ({"failed": 1}, 0)


async def test_silence_after_the_first_delta_is_the_engines_own_matter(make_pool: MakePool) -> None:
    free = asyncio.Event()
    pool = await make_pool(a=lambda r: [*make_deltas(["a"])[:1], free, Delta(finish_reason="stop")])
    pool._first_token_timeout = 0.01
    async with aclosing(pool.generate(REQUEST)) as deltas:
        await anext(deltas)
        following = asyncio.get_running_loop().create_task(anext(deltas))
        done, _ = await asyncio.wait([following], timeout=0.05)
        assert not done
        free.set()
        assert (await following).finish_reason == "stop"


@pytest.mark.parametrize(
    "error", [RequestError("no"), CallerLimitError("too many"), LogitsProcessorError("p")], ids=repr
)
async def test_the_callers_faults_are_not_retried(make_pool: MakePool, error: Exception) -> None:
    pool = await make_pool(a=failing(error), b=well)
    with pytest.raises(type(error)):
        await collect(pool, asked_first(pool, "a"))
    assert pool.asked == {"a": 1, "b": 0}
    assert pool.states == {"a": "closed", "b": "closed"}


async def test_after_the_first_delta_a_failure_ends_the_request(make_pool: MakePool) -> None:
    pool = await make_pool(a=breaking, b=well)
    released = []
    with pytest.raises(EngineError, match="It broke"):
        async for delta in pool.generate(asked_first(pool, "a")):
            released.append(delta)
    assert text_of(released) == "Hel"
    assert pool.asked == {"a": 1, "b": 0}
    assert pool.outstanding == {"a": 0, "b": 0}


@pytest.mark.parametrize("retries", [0, 1, 2])
async def test_no_replica_gets_a_request_twice_and_no_more_than_allowed(
    make_pool: MakePool, retries: int
) -> None:
    pool = await make_pool(**dict.fromkeys("abcde", failing(UNREACHABLE)), retries=retries)
    with pytest.raises(EngineError, match="cannot be reached"):
        await collect(pool)
    assert sorted(pool.asked.values()) == [0] * (4 - retries) + [1] * (1 + retries)


async def test_if_all_queues_are_full_the_caller_is_told_so(make_pool: MakePool) -> None:
    pool = await make_pool(**dict.fromkeys("ab", failing(QueueFullError("full"))))
    with pytest.raises(QueueFullError, match="full"):
        await collect(pool)
    assert pool.states == {"a": "closed", "b": "closed"}
    assert pool.outcomes("a") == {"full": 1}


async def test_the_stats_say_whether_the_last_request_failed(make_pool: MakePool) -> None:
    pool = await make_pool(a=well)

    def has_failed() -> bool:
        return pool.stats().replicas["a"].last_request_failed

    assert not has_failed()
    pool.scripts["a"] = failing(UNREACHABLE)
    with pytest.raises(EngineError):
        await collect(pool)
    assert has_failed()
    pool.scripts["a"] = failing(QueueFullError("full"))  # this says nothing of the engine
    with pytest.raises(QueueFullError):
        await collect(pool)
    assert has_failed()
    pool.scripts["a"] = failing(RequestError("The request is wrong."))
    with pytest.raises(RequestError):
        await collect(pool)
    assert not has_failed()
    pool.scripts["a"] = failing(UNREACHABLE)
    with pytest.raises(EngineError):
        await collect(pool)
    pool.scripts["a"] = well
    async with aclosing(pool.generate(REQUEST)) as deltas:
        await anext(deltas)  # the engine answers
        assert not has_failed()
    assert not has_failed()


async def test_outstanding_requests_are_counted_until_they_end(make_pool: MakePool) -> None:
    pool = await make_pool(a=hanging, routing=LeastOutstanding())
    stream = pool.generate(REQUEST)
    assert pool.outstanding == {"a": 0}
    task = asyncio.get_running_loop().create_task(anext(stream))
    await until(lambda: pool.outstanding == {"a": 1})
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert pool.outstanding == {"a": 0}
    assert pool.outcomes("a") == {"closed": 1}


async def test_a_reader_that_stops_early_is_counted_out(make_pool: MakePool) -> None:
    pool = await make_pool(a=well)
    async with aclosing(pool.generate(REQUEST)) as deltas:
        await anext(deltas)
        assert pool.outstanding == {"a": 1}
    assert pool.outstanding == {"a": 0}
    assert (pool.outcomes("a"), pool.engines["a"].aborted) == ({"closed": 1}, 1)


async def test_requests_that_the_server_ends_say_nothing_about_an_upstream(make_pool: MakePool) -> None:
    def ends(_: GenerationRequest) -> list[Any]:
        return [Delta(text="a"), ShutdownError()]

    pool = await make_pool(a=well)
    async for _ in pool.generate(REQUEST):
        pass
    pool.scripts["a"] = ends
    for _ in range(2 * FAILURES):
        with pytest.raises(ShutdownError):
            async for _ in pool.generate(REQUEST):
                pass
    assert pool.outcomes("a") == {"finished": 1, "shutdown": 2 * FAILURES}
    assert pool.states == {"a": "closed"}
    assert not pool.stats().replicas["a"].last_request_failed


async def test_a_rewind_reaches_the_engine_that_answers() -> None:
    class Engine(Teller):
        info = ModelInfo(can_rewind=True)
        fields = FieldSupport()
        tokenizer = None

    engine: Any = Engine(lambda said: ["b", "a"] if not said else [""])
    pool = PoolEngine([Replica("a", engine)])
    assert pool.info.can_rewind
    async with aclosing(pool.generate(REQUEST)) as deltas:
        assert (await anext(deltas)).text == "b"
        assert (await deltas.asend(Rewind(0, 0))).text == "a"
        assert [delta.finish_reason async for delta in deltas] == ["stop"]


class TestBreaker:
    async def test_a_replica_that_fails_three_times_is_left_out_for_a_while(
        self, make_pool: MakePool, caplog: pytest.LogCaptureFixture
    ) -> None:
        pool = await make_pool(a=failing(UNREACHABLE), b=well)
        request = asked_first(pool, "a")
        for _ in range(10):
            await collect(pool, request)
        assert (pool.asked, pool.states) == ({"a": 3, "b": 10}, {"a": "open", "b": "closed"})
        assert "upstream a fails" in caplog.text

    async def test_one_request_tries_a_replica_that_was_left_out(self, make_pool: MakePool) -> None:
        free = asyncio.Event()
        pool = await make_pool(a=failing(UNREACHABLE), b=well)
        request = asked_first(pool, "a")
        for _ in range(3):
            await collect(pool, request)
        pool.clock.now += 1.0
        pool.scripts["a"] = lambda r: [free, *make_deltas(["back"])]
        async with asyncio.TaskGroup() as group:
            trial = group.create_task(collect(pool, request))
            await until(lambda: pool.asked["a"] == 4)
            assert text_of(await collect(pool, request)) == "Hello"
            assert pool.states["a"] == "half_open"
            free.set()
        assert text_of(trial.result()) == "back"
        assert pool.states["a"] == "closed"
        assert text_of(await collect(pool, request)) == "back"

    async def test_a_request_is_a_trial_once_at_most(self, make_pool: MakePool) -> None:
        pool = await make_pool(**dict.fromkeys("abc", failing(UNREACHABLE)), retries=0)
        for _ in range(30):
            with pytest.raises(EngineError):
                await collect(pool)
        assert set(pool.states.values()) == {"open"}
        pool.clock.now += 60
        pool._retries = 2
        before = sum(pool.asked.values())
        with pytest.raises(EngineError):
            await collect(pool)
        assert sum(pool.asked.values()) == before + 1

    async def test_if_no_other_is_left_one_that_was_left_out_is_tried(self, make_pool: MakePool) -> None:
        """A pool of one, for instance: to refuse a request unasked would be worse than to try."""
        pool = await make_pool(a=failing(UNREACHABLE))
        for _ in range(5):
            with pytest.raises(EngineError, match="cannot be reached"):
                await collect(pool)
        pool.scripts["a"] = well
        assert text_of(await collect(pool)) == "Hello"
        assert pool.states == {"a": "closed"}

    async def test_a_request_that_no_replica_can_answer_leaves_none_out(self, make_pool: MakePool) -> None:
        def poisoned(request: GenerationRequest) -> Iterable[Any]:
            return [EngineError("It failed.", status=502)] if request.user == "mallory" else well(request)

        pool = await make_pool(a=poisoned, b=poisoned)
        for _ in range(10):
            with pytest.raises(EngineError):
                await collect(pool, replace(REQUEST, user="mallory"))
        assert pool.states == {"a": "closed", "b": "closed"}
        assert text_of(await collect(pool)) == "Hello"

    async def test_failures_that_another_replica_makes_up_for_count(self, make_pool: MakePool) -> None:
        pool = await make_pool(a=failing(EngineError("It failed.", status=502)), b=well)
        request = asked_first(pool, "a")
        for _ in range(5):
            await collect(pool, request)
        assert pool.asked == {"a": 3, "b": 5}

    async def test_answers_that_break_off_count(self, make_pool: MakePool) -> None:
        pool = await make_pool(a=breaking, b=well)
        request = asked_first(pool, "a")
        for _ in range(3):
            with pytest.raises(EngineError):
                await collect(pool, request)
        assert text_of(await collect(pool, request)) == "Hello"

    @pytest.mark.parametrize("script", [failing(QueueFullError()), failing(RequestError("no")), hanging])
    async def test_full_queues_refusals_and_clients_that_leave_do_not_count(
        self, make_pool: MakePool, script: Any
    ) -> None:
        pool = await make_pool(a=script, b=hanging)
        for _ in range(10):
            await leave(pool, asked_first(pool, "a"))
        assert pool.states["a"] == "closed"


async def leave(pool: Pool, request: GenerationRequest) -> None:
    """Ask, and leave when the request has reached an engine that does not answer."""
    task = asyncio.get_running_loop().create_task(collect(pool, request))
    await until(lambda: any(pool.outstanding.values()) or task.done())
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


class TestDraining:
    async def test_gets_nothing_new_and_ends_its_streams(self, make_pool: MakePool) -> None:
        pool = await make_pool(a=well, b=well)
        request = asked_first(pool, "a")
        async with aclosing(pool.generate(request)) as deltas:
            first = await anext(deltas)
            pool.drain("a")
            await collect(pool, request)
            assert pool.asked == {"a": 1, "b": 1}
            assert text_of([first, *[delta async for delta in deltas]]) == "Hello"
        assert pool.states == {"a": "draining", "b": "closed"}
        pool.resume("a")
        await collect(pool, request)
        assert pool.asked == {"a": 2, "b": 1}

    async def test_if_all_drain_there_is_an_error(self, make_pool: MakePool) -> None:
        pool = await make_pool(a=well)
        pool.drain("a")
        with pytest.raises(EngineError, match="takes new requests") as caught:
            await collect(pool)
        assert caught.value.status == 503
        with pytest.raises(EngineError):
            pool.check_health()

    async def test_an_unknown_name_is_an_error(self, make_pool: MakePool) -> None:
        pool = await make_pool(a=well)
        with pytest.raises(KeyError):
            pool.drain("b")


async def test_a_replica_with_all_its_connections_in_use_is_passed_over(make_pool: MakePool) -> None:
    pool = await make_pool(a=well, b=well, own={"a": {"max_connections": 1}, "b": {"max_connections": 1}})
    request = asked_first(pool, "a")
    async with aclosing(pool.generate(request)) as first, aclosing(pool.generate(request)) as second:
        await anext(first)
        await anext(second)
        assert pool.outstanding == {"a": 1, "b": 1}
        with pytest.raises(QueueFullError, match="busy"):
            await collect(pool, request)
        with pytest.raises(QueueFullError, match="busy"):
            pool.check_room("caller")
    pool.check_room("caller")
    assert text_of(await collect(pool, request)) == "Hello"


async def test_a_model_is_asked_of_those_that_serve_it(make_pool: MakePool) -> None:
    pool = await make_pool(a=well, b=well, c=failing(UNREACHABLE), own={"b": {"serves_all": True}})
    pool.engines["a"].info = ModelInfo(names=("x", "y"), max_model_len=10)
    pool.engines["b"].info = ModelInfo(names=("y",), max_model_len=20)
    pool.engines["c"].info = ModelInfo(names=("z",), max_model_len=30)
    assert pool.info == ModelInfo(names=("x", "y", "z"), max_model_len=30)
    for name in "abc" * 5:
        await collect(pool, replace(asked_first(pool, name), model="y"))
    assert pool.asked["a"]
    assert pool.asked["b"]
    assert not pool.asked["c"]
    pool.drain("b")  # which takes any name
    with pytest.raises(EngineError, match="cannot be reached"):
        await collect(pool, replace(REQUEST, model="z"))


async def test_the_longest_context_is_what_all_that_serve_a_model_have(make_pool: MakePool) -> None:
    pool = await make_pool(a=well, b=well)
    pool.engines["a"].info = ModelInfo(names=("x",), max_model_len=10)
    pool.engines["b"].info = ModelInfo(names=("x",), max_model_len=20)
    assert pool.info == ModelInfo(names=("x",), max_model_len=10)
    pool.engines["b"].info = ModelInfo()
    assert pool.info == ModelInfo(names=("x",), max_model_len=10)


async def test_is_healthy_while_one_replica_is(make_pool: MakePool) -> None:
    pool = await make_pool(a=well, b=well)
    pool.engines["a"].healthy = False
    pool.check_health()
    pool.drain("b")
    with pytest.raises(EngineError):
        pool.check_health()


async def test_a_pool_that_closes_retries_nothing(make_pool: MakePool) -> None:
    pool = await make_pool(a=hanging, b=hanging)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(asyncio.wait([group.create_task(collected(pool))]))
        await until(lambda: any(pool.outstanding.values()))
        await pool.aclose()
    (done, _) = task.result()
    error = done.pop().result()
    assert (error.status, sum(pool.asked.values())) == (503, 1)


async def collected(pool: PoolEngine) -> EngineError:
    with pytest.raises(EngineError) as caught:
        await collect(pool)
    return caught.value


def test_replicas_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two upstreams are called a"):
        PoolEngine([Replica("a", ScriptedEngine(well)), Replica("a", ScriptedEngine(well))])
    with pytest.raises(ValueError, match="at least one"):
        PoolEngine([])


ENDS: dict[str, Any] = {
    "finish": lambda: Delta(finish_reason="stop"),
    "cut": lambda: EngineError("It broke.", status=502),
    "gone": lambda: UNREACHABLE,
    "full": lambda: QueueFullError(),
    "refused": lambda: RequestError("no"),
    "silent": asyncio.Event,
}


@given(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from(sorted(ENDS))), min_size=1, max_size=4),
    st.integers(0, 3),
    st.one_of(st.none(), st.integers(0, 3)),
)
async def test_an_answer_is_one_replicas_and_nothing_is_left_over(
    plan: list[tuple[int, str]], retries: int, leaves_after: int | None
) -> None:
    """However replicas fail, and whenever the reader leaves."""

    def script(number: int) -> Any:
        pieces, end = plan[number]
        return lambda request: [
            *make_deltas([f"{number}." for _ in range(pieces)], finish=False),
            ENDS[end](),
        ]

    scripts = {str(number): script(number) for number in range(len(plan))}
    pool = Pool(scripts, {}, retries=retries, first_token_timeout=0.001)
    pool._first_token_timeout = 0.001  # also for a pool of one
    released: list[Delta] = []
    try:
        async with asyncio.timeout(0.01), aclosing(pool.generate(REQUEST)) as deltas:
            async for delta in deltas:
                released.append(delta)
                if leaves_after is not None and len(released) > leaves_after:
                    break
    except (EngineError, RequestError, TimeoutError):
        pass
    text = text_of(released)
    assert text in {"", *(f"{n}." * length for n, (most, _) in enumerate(plan) for length in range(most + 1))}
    assert all(number <= 1 for number in pool.asked.values())
    assert sum(pool.asked.values()) <= 1 + retries
    assert set(pool.outstanding.values()) == {0}
    assert not any(engine.running for engine in pool.engines.values())
    assert sum(sum(pool.outcomes(name).values()) for name in scripts) == sum(pool.asked.values())
    await pool.aclose()
