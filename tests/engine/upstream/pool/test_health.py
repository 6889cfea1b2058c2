"""Health checks, over real sockets."""

import asyncio
import logging
from contextlib import aclosing

import pytest

from engine.protocol import EngineError
from engine.upstream.openai.engine import OpenAIEngine
from engine.upstream.pool.engine import PoolEngine
from engine.upstream.pool.health import check
from engine.upstream.pool.replica import Replica
from tests.engine.upstream.conftest import FakeUpstream, fake_upstream
from tests.engine.upstream.pool.conftest import Clock
from tests.helpers import ScriptedEngine, until


async def started(url: str) -> tuple[Replica, Clock]:
    engine, clock = OpenAIEngine(url), Clock()
    await engine.start()
    return Replica("a", engine, probe=engine.probe, clock=clock), clock


async def test_an_upstream_whose_health_says_503_is_drained_not_broken(upstream: FakeUpstream) -> None:
    replica, _ = await started(upstream.url)
    async with aclosing(replica.engine):
        upstream.health = 503
        await check(replica)
        assert replica.stats().state == "draining"
        upstream.health = 200
        await check(replica)
        assert replica.stats().state == "closed"


@pytest.mark.parametrize("status", [200, 204, 301, 401, 404])
async def test_an_upstream_that_answers_is_well(upstream: FakeUpstream, status: int) -> None:
    replica, _ = await started(upstream.url)
    async with aclosing(replica.engine):
        upstream.health = status
        await check(replica)
        assert replica.stats().state == "closed"


async def test_checks_take_an_upstream_out_and_bring_it_back() -> None:
    async with fake_upstream() as fake:
        replica, clock = await started(fake.url)
        port = int(fake.url.rpartition(":")[2])
    async with aclosing(replica.engine):
        for _ in range(3):
            await check(replica)
        assert replica.stats().state == "open"
        async with fake_upstream(port):
            await check(replica)
            assert replica.stats().state == "half_open"
        clock.now += 1.0
        await check(replica)
        assert replica.stats().state == "open"
        clock.now += 1.5
        assert replica.stats().state == "open"


async def test_an_upstream_that_always_answered_its_checks_waits_its_time(upstream: FakeUpstream) -> None:
    """Its health says nothing about why it fails."""
    replica, clock = await started(upstream.url)
    async with aclosing(replica.engine):
        for _ in range(3):
            replica.fail()
        await check(replica)
        assert replica.stats().state == "open"
        clock.now += 1.0
        assert replica.stats().state == "half_open"


async def test_an_upstreams_models_are_learned_when_it_comes_up(unused_tcp_port: int) -> None:
    replica, _ = await started(f"http://127.0.0.1:{unused_tcp_port}")
    async with aclosing(replica.engine):
        assert replica.engine.info.names == ()
        with pytest.raises(EngineError):
            replica.engine.check_health()
        async with fake_upstream(unused_tcp_port):
            await check(replica)
        assert replica.engine.info.names == ("m",)
        replica.engine.check_health()


@pytest.mark.parametrize("number", [1, 2])
async def test_a_pool_checks_its_upstreams_if_there_are_several(upstream: FakeUpstream, number: int) -> None:
    engines = [OpenAIEngine(upstream.url) for _ in range(number)]
    replicas = [Replica(str(i), engine, probe=engine.probe) for i, engine in enumerate(engines)]
    pool = PoolEngine(replicas, health_interval=0.001)
    async with aclosing(pool):
        upstream.health = 503
        await pool.start()
        if number == 1:
            pool.check_health()
        else:
            await until(lambda: all(replica.is_draining for replica in replicas))


async def test_an_engine_without_checks_of_its_own_is_asked_for_its_health() -> None:
    engine = ScriptedEngine(lambda request: [])
    replica = Replica("a", engine)
    engine.healthy = False
    for _ in range(3):
        await check(replica)
    assert replica.stats().state == "open"


async def test_a_failing_check_is_no_secret_leak(
    upstream: FakeUpstream, caplog: pytest.LogCaptureFixture
) -> None:
    replica, _ = await started(upstream.url.replace("//", "//me:hunter2@"))
    async with aclosing(replica.engine):
        upstream.health = 500
        with caplog.at_level(logging.DEBUG):
            for _ in range(3):
                await check(replica)
    assert replica.stats().state == "open"
    assert "hunter2" not in caplog.text


async def test_a_check_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang() -> bool:
        await asyncio.Event().wait()
        return True

    monkeypatch.setattr("engine.upstream.pool.health.TIMEOUT", 0.01)
    replica = Replica("a", ScriptedEngine(lambda request: []), probe=hang)
    for _ in range(3):
        await check(replica)
    assert replica.stats().state == "open"
