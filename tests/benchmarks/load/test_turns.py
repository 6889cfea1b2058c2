"""Servers take turns, under closed loops."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from aiohttp import web

from benchmarks.load.figures import Figures
from benchmarks.load.turns import Load, LoadError, compare, table
from tests.benchmarks.load.conftest import Scripted, ScriptedServer, hello


def load(*concurrency: int, repetitions: int = 1) -> Load:
    return Load(concurrency, repetitions, {"model": "m", "stream": True})


def prompts_of(server: ScriptedServer) -> Sequence[str]:
    return [body["messages"][0]["content"] for body in server.bodies]


async def test_a_closed_loop_keeps_exactly_the_given_number_of_streams_open(scripted: Scripted) -> None:
    all_there = asyncio.Barrier(5)

    async def answer(request: web.Request, body: Any) -> web.StreamResponse:
        if not body["messages"][0]["content"].startswith("0."):  # a warm-up
            await all_there.wait()  # no request ends before five are open
        return await hello(request, body)

    server = await scripted(answer)
    await compare({"a": server.url}, load(5))
    assert server.most_open == 5
    assert len(server.bodies) == 2 + 20


async def test_servers_take_turns_with_the_same_prompts(scripted: Scripted) -> None:
    asked: list[str] = []

    async def first(request: web.Request, body: Any) -> web.StreamResponse:
        asked.append("a")
        return await hello(request, body)

    async def second(request: web.Request, body: Any) -> web.StreamResponse:
        asked.append("b")
        return await hello(request, body)

    a, b = await scripted(first), await scripted(second)
    lines = await compare({"a": a.url, "b": b.url}, load(1, repetitions=2))
    assert "".join(asked) == "aabb" + 8 * "a" + 16 * "b" + 8 * "a"
    assert prompts_of(a) == prompts_of(b)
    assert len(set(prompts_of(a))) == len(prompts_of(a))
    assert lines[1].split() == ["concurrency", "1", "a", "b", "b/a"]


async def test_a_request_that_fails_ends_the_measurement(scripted: Scripted) -> None:
    async def answer(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return web.json_response({"error": {"message": "There is none."}}, status=404)

    server = await scripted(answer)
    with pytest.raises(LoadError, match=r"a: HTTP 404: .*There is none"):
        await compare({"a": server.url}, load(1))


def test_a_ratio_is_the_median_over_turns() -> None:
    found: dict[str, list[Figures]] = {
        "a": [{"x": 1.0}, {"x": 2.0}, {"x": 4.0}],
        "b": [{"x": 2.0}, {"x": 6.0}, {"x": 4.0}],
    }
    lines = table("load", found)
    assert [line.split() for line in lines] == [["load", "a", "b", "b/a"], ["x", "2.00", "4.00", "2.00"]]
