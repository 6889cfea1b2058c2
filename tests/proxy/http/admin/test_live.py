"""`GET /admin/live`: what the page's dashboard shows."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import aiohttp
import orjson
from prometheus_client.parser import text_string_to_metric_families

from hooks import emit
from hooks.loading.loader import HookSpec
from proxy.deployment.directory import PolicyEntry
from proxy.http.admin import live
from proxy.service.peers import Peers
from proxy.settings.policy import PolicySettings
from tests.helpers import ScriptedEngine
from tests.proxy.conftest import CHAT, Client, Serve, hello


@asynccontextmanager
async def watching(client: Client, **headers: str) -> AsyncIterator[aiohttp.ClientResponse]:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    async with client.http.get(client.url + "/admin/live", headers=names) as response:
        yield response


async def next_snapshot(response: aiohttp.ClientResponse) -> dict[str, Any]:
    event = await response.content.readuntil(b"\n\n")
    value: dict[str, Any] = orjson.loads(event.removeprefix(b"data: "))
    return value


def value_of(told: dict[str, Any], name: str, **labels: str) -> float:
    (value,) = (value for found, value in told["samples"][name] if labels.items() <= found.items())
    return float(value)


async def test_an_operator_gets_the_numbers_of_the_metrics_each_second(
    serve: Serve, monkeypatch: Any
) -> None:
    monkeypatch.setattr(live, "INTERVAL", 0.02)
    client = await serve(ScriptedEngine(hello))
    async with watching(client) as response:
        assert response.headers["Content-Type"].startswith("text/event-stream")
        assert response.headers["Cache-Control"] == "no-store"
        first = await next_snapshot(response)
        assert first["processes"] == 1
        assert "weir_requests_total" not in first["samples"]
        await client.post("/v1/chat/completions", CHAT)
        while "weir_requests_total" not in (told := await next_snapshot(response))["samples"]:
            pass
    assert told["time"] > first["time"]
    assert value_of(told, "weir_requests_total", endpoint="chat", outcome="finished") == 1
    assert value_of(told, "weir_time_to_first_token_seconds_bucket", endpoint="chat", le="+Inf") == 1


def test_hooks_in_shadow_mode_are_named_as_the_metrics_name_them() -> None:
    trial = HookSpec(path="pii", name="trial", mode="shadow")
    policies = [
        PolicyEntry("strict", PolicySettings(hooks=[HookSpec(path="pii"), trial])),
        PolicyEntry("lax", PolicySettings(allowed_hooks=[trial])),
    ]
    named = [{"policy": "strict", "hook": "trial"}, {"policy": "lax", "hook": "trial"}]
    assert live.shadow_hooks(policies) == named
    told = orjson.loads(live.snapshot([{}], named, 0.0).removeprefix(b"data: "))
    assert told["shadow_hooks"] == named


async def test_every_number_of_a_snapshot_is_a_metric(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello), lambda chunk: emit(chunk.pending))
    await client.post("/v1/chat/completions", CHAT)
    async with watching(client) as response:
        told = await next_snapshot(response)
    _, text = await client.get("/metrics")
    exposed = {s.name for family in text_string_to_metric_families(text.decode()) for s in family.samples}
    assert told["samples"].keys() <= exposed
    assert told["samples"].keys() >= {"weir_hook_verdicts_total", "weir_hook_held_seconds_bucket"}


async def test_all_who_watch_share_a_snapshot(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello))
    async with watching(client) as one, watching(client) as other:
        assert await next_snapshot(one) == await next_snapshot(other)


async def test_the_numbers_of_all_processes_add_up() -> None:
    async def ask(question: Any) -> list[live.Samples]:
        assert isinstance(question, live.AskSamples)
        return [{("weir_x", (("a", "1"),)): 2.0, ("weir_y", ()): 1.0}, {("weir_y", ()): 4.0}]

    others = Peers()
    others.ask = cast(Any, ask)
    event = await live.LiveFeed(lambda: (), list, others).event()
    told = orjson.loads(event.removeprefix(b"data: "))
    assert told["processes"] == 3
    assert told["samples"] == {"weir_x": [[{"a": "1"}, 2.0]], "weir_y": [[{}, 5.0]]}


async def test_only_an_operator_may_watch(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello), api_key=["k"], admin_key=["boss"], store="sqlite:///:memory:")
    for headers in ({}, {"Authorization": "Bearer k"}):
        async with watching(client, **headers) as response:
            assert response.status == 401
    async with watching(client, X_Weir_Admin_Key="boss") as response:
        assert response.status == 200
        await next_snapshot(response)


async def test_a_server_that_stops_does_not_wait_for_who_watches(serve: Serve, monkeypatch: Any) -> None:
    monkeypatch.setattr(live, "INTERVAL", 0.02)
    client = await serve(ScriptedEngine(hello))
    async with watching(client) as response, asyncio.timeout(10):
        await next_snapshot(response)
        await client.server.stop()
        while await response.content.readany():
            pass
