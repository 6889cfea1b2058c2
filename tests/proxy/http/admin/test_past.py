"""`GET /admin/live/past`: what the server did in the last two minutes."""

from collections.abc import Iterator
from typing import Any, cast

import orjson
import pytest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from proxy.http.admin.past import SECONDS, AskPast, Moments, Past
from proxy.service.peers import Peers
from tests.helpers import ScriptedEngine
from tests.proxy.conftest import CHAT, Serve, hello

RUNNING = ("weir_num_requests_running", ())


def numbers(running: float) -> Iterator[Metric]:
    yield GaugeMetricFamily("weir_num_requests_running", "", value=running)
    yield GaugeMetricFamily("weir_num_requests_waiting", "", value=0)
    yield GaugeMetricFamily("weir_kv_blocks", "", value=9)
    yield CounterMetricFamily("weir_generation_tokens", "", value=7)
    yield CounterMetricFamily("weir_requests", "", value=1)
    raise AssertionError("the rest need not be collected")


async def test_each_second_of_two_minutes_is_remembered_with_the_main_numbers() -> None:
    past = Past(lambda: numbers(3), Peers())
    for second in range(SECONDS + 5):
        past.note(1000.5 + second)
    moments = await past.moments()
    assert list(moments) == list(range(1005, 1000 + SECONDS + 5))
    assert moments[1005] == {
        RUNNING: 3.0,
        ("weir_num_requests_waiting", ()): 0.0,
        ("weir_generation_tokens_total", ()): 7.0,
        ("weir_requests_total", ()): 1.0,
    }


async def test_the_numbers_of_all_processes_add_up_where_all_have_them() -> None:
    async def ask(question: Any) -> list[Moments]:
        assert question == AskPast()
        return [{11: {RUNNING: 2.0}, 12: {RUNNING: 4.0}}]

    peers = Peers()
    peers.ask = cast(Any, ask)
    past = Past(lambda: numbers(3), peers)
    for second in (10, 11, 12):
        past.note(second)
    assert {second: one[RUNNING] for second, one in (await past.moments()).items()} == {11: 5.0, 12: 7.0}
    (answer,) = peers.answers.values()
    assert list(await answer(AskPast())) == [10, 11, 12]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Past]:
    """Those that servers make."""
    found: list[Past] = []
    init = Past.__init__

    def noticed(past: Past, *arguments: Any) -> None:
        init(past, *arguments)
        found.append(past)

    monkeypatch.setattr(Past, "__init__", noticed)
    return found


async def test_a_server_remembers_what_nobody_watched(serve: Serve, made: list[Past]) -> None:
    client = await serve(ScriptedEngine(hello))
    await client.post("/v1/chat/completions", CHAT)
    (past,) = made
    past.note(4e9)
    status, body = await client.get("/admin/live/past")
    first, *_, last = orjson.loads(body)["data"]
    assert (status, last["time"]) == (200, 4_000_000_000)
    assert last["samples"]["weir_requests_total"] == [[{"endpoint": "chat", "outcome": "finished"}, 1.0]]
    assert first["time"] < 4e9  # the server noted this one itself
    assert RUNNING[0] in first["samples"]


async def test_only_an_operator_reads_it(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello), admin_key=["boss"], store="sqlite:///:memory:")
    assert (await client.get("/admin/live/past"))[0] == 401


async def test_a_server_that_stops_notes_nothing_more(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[Past] = []
    run = Past.run

    async def watched(past: Past) -> None:
        try:
            await run(past)
        finally:
            ended.append(past)

    monkeypatch.setattr(Past, "run", watched)
    client = await serve(ScriptedEngine(hello))
    await client.server.stop()
    assert len(ended) == 1
