"""A plan is run against a server."""

import asyncio
from typing import Any

import pytest
from aiohttp import web

from tests.weir_bench.conftest import Scripted, hello, plan_for
from weir_bench.plan import Level
from weir_bench.runner import BenchError, Runner


async def test_a_closed_loop_keeps_exactly_the_given_number_of_streams_open(scripted: Scripted) -> None:
    all_there = asyncio.Barrier(5)

    async def answer(request: web.Request, body: Any) -> web.StreamResponse:
        await all_there.wait()  # no request ends before five are open
        return await hello(request, body)

    server = await scripted(answer)
    runner = Runner(plan_for(server, levels=[Level(concurrency=5)], num_prompts=20))
    await runner.run()
    assert server.most_open == 5
    assert (len(server.bodies), len(runner.runs[0].records)) == (20, 20)
    assert not runner.runs[0].open


async def test_a_closed_loop_without_a_number_of_requests_ends_with_its_duration(scripted: Scripted) -> None:
    server = await scripted(hello)
    runner = Runner(plan_for(server, duration=0.3))
    await runner.run()
    (run,) = runner.runs
    assert run.duration >= 0.3
    assert 0 < len(server.bodies) == len(run.records)


async def test_open_loop_requests_reach_the_server(scripted: Scripted) -> None:
    server = await scripted(hello)
    plan = plan_for(server, levels=[Level(request_rate=float("inf"))], num_prompts=25)
    runner = Runner(plan)
    await runner.run()
    (run,) = runner.runs
    assert len(server.bodies) == 25
    assert [record.due for record in run.records] == [0.0] * 25
    assert all(record.sent >= record.due for record in run.records)


async def test_a_warm_up_that_fails_ends_the_bench(scripted: Scripted) -> None:
    async def answer(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return web.json_response({"error": {"message": "No such model."}}, status=404)

    runner = Runner(plan_for(await scripted(answer), num_warmups=2))
    with pytest.raises(BenchError, match="a: warm-up failed: HTTP 404: No such model"):
        await runner.run()
    assert not runner.runs
