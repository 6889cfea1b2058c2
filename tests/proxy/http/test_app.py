"""The application, from its start to the end of the last stream."""

import asyncio
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from engine.protocol import Delta
from hooks import Chunk, Verdict, emit, hold, rewind
from hooks.loading.loader import HookLoadError
from proxy.deployment.deployment import Deployment
from proxy.http.app import Ending, Server
from proxy.settings.serve import ServeSettings
from tests.helpers import Script, ScriptedEngine, make_deltas, pipeline_of, until
from tests.proxy.conftest import CHAT, Serve

CHATS = "/v1/chat/completions"


async def test_a_server_whose_hook_fails_its_self_test_does_not_start() -> None:  # contract 1.4
    hook = Script(lambda c: hold())
    settings = ServeSettings(port=0)
    deployment = Deployment.of_one(ScriptedEngine(lambda r: []), pipeline_of(hook), settings.base_model)
    server = Server(deployment, settings)
    with pytest.raises(HookLoadError, match="failed its self-test"):
        await server.start()


@pytest.mark.parametrize("can_rewind", [True, False])
async def test_a_warning_names_the_hooks_whose_rewinds_will_terminate(
    serve: Serve, caplog: pytest.LogCaptureFixture, can_rewind: bool
) -> None:
    class Rewinds(Script):
        may_rewind = True

    engine = ScriptedEngine(lambda request: make_deltas(["bad", "good"]))
    engine.info = replace(engine.info, can_rewind=can_rewind)
    judge = Rewinds(lambda c: rewind("x") if "bad" in c.pending and not c.aborted else emit(c.pending))
    client = await serve(engine, judge, Script(lambda c: emit(c.pending)))
    told = [record.message for record in caplog.records if "cannot go back" in record.message]
    assert len(told) == (not can_rewind)
    if not can_rewind:
        assert told[0].endswith(": hook0")
        answer = (await client.post(CHATS, CHAT))[1]
        assert answer["choices"][0]["finish_reason"] == "content_filter"


async def test_hooks_are_closed_when_the_server_has_stopped(serve: Serve) -> None:  # contract 1.7
    log: list[Any] = []

    class Closes:
        async def __call__(self, chunk: Chunk) -> Verdict:
            if chunk.is_final:
                log.append(chunk.request_id.startswith("chatcmpl"))
            return emit(chunk.pending)

        async def close(self) -> None:
            log.append("closed")

    client = await serve(ScriptedEngine(lambda r: make_deltas(["a"])), Closes())
    await client.stream(CHATS, CHAT)
    assert log == [False, True]  # False is the self-test, and True the request
    await client.server.stop()
    assert log == [False, True, "closed"]


async def test_a_running_stream_finishes_before_the_server_stops(serve: Serve) -> None:
    go = asyncio.Event()
    engine = ScriptedEngine(lambda r: [Delta(text="a"), go, *make_deltas(["b"])])
    client = await serve(engine)
    async with client.http.post(client.url + CHATS, json={**CHAT, "stream": True}) as response:
        await response.content.readline()
        stopping = asyncio.get_running_loop().create_task(client.server.stop())
        await until(client.server.service.stopping.is_set)
        go.set()
        rest = await response.read()
    await stopping
    assert b'"content":"b"' in rest
    assert rest.endswith(b"data: [DONE]\n\n")
    with pytest.raises(aiohttp.ClientConnectionError):
        await client.get("/health")


async def test_a_stream_that_runs_too_long_at_shutdown_gets_an_error_event(serve: Serve) -> None:
    engine = ScriptedEngine(lambda r: [Delta(text="a"), asyncio.Event()])
    client = await serve(engine)
    client.server.ending = Ending(drain=0.05, notify=600.0, close=600.0, leave=600.0)
    async with client.http.post(client.url + CHATS, json={**CHAT, "stream": True}) as response:
        await response.content.readline()
        await client.server.stop()
        rest = await response.read()
    assert b"event: error" in rest
    assert rest.endswith(b"data: [DONE]\n\n")
    assert engine.running == 0


async def test_a_stopping_server_refuses_requests(serve: Serve) -> None:
    client = await serve(ScriptedEngine(lambda r: make_deltas(["a"])))
    client.server.service.stopping.set()
    status, body, headers = await client.post(CHATS, CHAT)
    assert (status, body["error"]["type"], headers["Retry-After"]) == (503, "server_error", "1")
    assert (await client.get("/ready"))[0] == 503
    assert (await client.get("/health"))[0] == 200
