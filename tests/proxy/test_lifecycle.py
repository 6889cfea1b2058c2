"""From start to the last stream's end: refusals, the first line, SIGTERM."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from engine.protocol import Delta
from hooks import Chunk, Verdict, emit, hold, rewind
from hooks.pipeline.failure import HookError
from proxy.app import Server
from proxy.config import ServeSettings
from tests.helpers import Script, ScriptedEngine, make_deltas, pipeline_of, until
from tests.proxy.conftest import CHAT, Serve

ROOT = Path(__file__).parents[2]
CHATS = "/v1/chat/completions"


def weir(*arguments: str, **environment: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "proxy", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def echo() -> Iterator[tuple["subprocess.Popen[str]", str]]:
    process = weir("serve", "--engine", "echo", "--port", "0", "--hook", "examples/upper_case.py:UpperCase")
    assert process.stdout
    line = process.stdout.readline()
    url = line.split(" at ")[1].split("/v1")[0]
    yield process, url
    process.kill()
    process.communicate()


async def test_the_first_line_says_where_and_a_curl_to_try(echo: tuple["subprocess.Popen[str]", str]) -> None:
    process, url = echo
    assert url.startswith("http://127.0.0.1:")
    assert process.stdout
    process.stdout.readline()
    command = process.stdout.readline() + process.stdout.readline()
    ran = await asyncio.to_thread(
        subprocess.run, ["bash", "-c", command], capture_output=True, text=True, check=True
    )
    assert '"content":"HELLO!"' in ran.stdout
    assert ran.stdout.endswith("data: [DONE]\n\n")


async def test_sigterm_ends_an_idle_server_with_0(echo: tuple["subprocess.Popen[str]", str]) -> None:
    process, url = echo
    async with aiohttp.ClientSession() as http, http.get(url + "/ready") as response:
        assert response.status == 200
    process.send_signal(signal.SIGTERM)
    assert await asyncio.to_thread(process.wait) == 0
    assert process.stderr
    (line,) = process.stderr.read().splitlines()
    assert line.endswith("INFO weir.hooks: loading hook examples/upper_case.py:UpperCase")


async def test_weir_chat_shows_the_stream(echo: tuple["subprocess.Popen[str]", str]) -> None:
    _, url = echo
    for arguments, given in ((["Hello there"], None), ([], "Hello there\n")):
        chat = weir("chat", "--url", url + "/v1", *arguments)
        out, err = await asyncio.to_thread(chat.communicate, given)
        assert (chat.returncode, out, err) == (0, "HELLO THERE\n", "")
    lost = weir("chat", "--url", "http://127.0.0.1:9/v1", "x")
    _, err = await asyncio.to_thread(lost.communicate)
    assert lost.returncode == 1
    assert err.startswith("weir chat: http://127.0.0.1:9/v1: ")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--hook", "no_such.Guard"], "hook 'no_such.Guard' could not be imported"),
        (["--hook", "examples/upper_case.py:Missing"], "has no class 'Missing'"),
        (["--engine", "openai"], "--upstream URL"),
        (["--engine", "replay"], "--recordings DIR"),
        (["--engine", "local", "--model", "./nowhere"], "there is no model folder ./nowhere"),
        (["--port", "high"], "port: Input should be a valid integer"),
        (["--config", "/no/such.yaml"], "there is no configuration file /no/such.yaml"),
        (["--skip-tokenizer-init"], "skip_tokenizer_init would leave hooks without text"),
        (["--hook", "examples/upper_case.py:Missing", "--hook-workers", "1"], "has no class 'Missing'"),
        (["--nonsense"], "unrecognized arguments: --nonsense"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else "",
)
def test_what_keeps_it_from_starting_is_said_and_it_exits(arguments: list[str], reason: str) -> None:
    process = weir("serve", "--engine", "echo", *arguments)
    out, err = process.communicate()
    assert process.returncode in (1, 2)
    assert out == ""
    assert reason in err
    assert "Traceback" not in err


async def test_a_server_whose_hook_fails_its_self_test_does_not_start() -> None:  # contract 1.4
    hook = Script(lambda c: hold())
    server = Server(ScriptedEngine(lambda r: []), pipeline_of(hook), ServeSettings(port=0), ["m"])
    with pytest.raises(HookError):
        await server.start()


@pytest.mark.parametrize("can_rewind", [True, False])
async def test_it_is_told_whose_rewinds_will_terminate(
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
    log = []

    class Closes:
        async def __call__(self, chunk: Chunk) -> Verdict:
            if chunk.is_final:
                log.append(chunk.request_id.startswith("chatcmpl"))
            return emit(chunk.pending)

        async def close(self) -> None:
            log.append("closed")

    client = await serve(ScriptedEngine(lambda r: make_deltas(["a"])), Closes())
    await client.stream(CHATS, CHAT)
    assert log == [False, True]  # the self-test, and the request
    await client.server.stop()
    assert log == [False, True, "closed"]


async def test_a_running_stream_finishes_before_the_server_stops(serve: Serve) -> None:
    go = asyncio.Event()
    engine = ScriptedEngine(lambda r: [Delta(text="a"), go, *make_deltas(["b"])])
    client = await serve(engine)
    async with client.http.post(client.url + CHATS, json={**CHAT, "stream": True}) as response:
        await response.content.readline()
        stopping = asyncio.get_running_loop().create_task(client.server.stop())
        await until(lambda: client.server.service.draining)
        go.set()
        rest = await response.read()
    await stopping
    assert b'"content":"b"' in rest
    assert rest.endswith(b"data: [DONE]\n\n")
    with pytest.raises(aiohttp.ClientConnectionError):
        await client.get("/health")


async def test_a_stream_over_the_limit_is_aborted_with_an_event_of_its_own(serve: Serve) -> None:
    engine = ScriptedEngine(lambda r: [Delta(text="a"), asyncio.Event()])
    client = await serve(engine, shutdown_timeout=0.05)
    async with client.http.post(client.url + CHATS, json={**CHAT, "stream": True}) as response:
        await response.content.readline()
        await client.server.stop()
        rest = await response.read()
    assert b"event: error" in rest
    assert rest.endswith(b"data: [DONE]\n\n")
    assert engine.running == 0


async def test_a_server_that_stops_takes_no_more_requests(serve: Serve) -> None:
    client = await serve(ScriptedEngine(lambda r: make_deltas(["a"])))
    client.server.service.draining = True
    status, body, headers = await client.post(CHATS, CHAT)
    assert (status, body["error"]["type"], headers["Retry-After"]) == (503, "server_error", "1")
    assert (await client.get("/ready"))[0] == 503
    assert (await client.get("/health"))[0] == 200
