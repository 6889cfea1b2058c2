"""SIGTERM to `weir serve`, with one process and with several: who is told what, and when."""

import asyncio
import json
import signal
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import IO, Any

import aiohttp
import pytest

from tests.engine.upstream.conftest import Frame, fake_upstream
from tests.processes import WAIT_LIMIT
from tests.proxy.conftest import read_events
from tests.serving import started, url_of

ASKS = {"messages": [{"role": "user", "content": "Hi"}], "stream": True}
CHATS = "/v1/chat/completions"
JSON = ("--log-format", "json")


def lines_of(log: IO[str]) -> list[dict[str, Any]]:
    log.seek(0)
    return [json.loads(line) for line in log if line.startswith("{")]


@asynccontextmanager
async def endless_upstream() -> AsyncIterator[str]:
    """It says a word, and then nothing."""
    async with fake_upstream() as fake:
        begin: list[Frame] = [{"choices": [{"index": 0, "delta": {"content": "Hm"}}]}, 3600.0]
        fake.script = lambda body: begin
        yield fake.url


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_streams_that_the_server_ends_are_no_failures(workers: str) -> None:
    """Neither of the requests nor of the upstream, whose breaker stays closed."""
    with tempfile.TemporaryFile("w+") as log:
        async with AsyncExitStack() as stack:
            upstream = await stack.enter_async_context(endless_upstream())
            options = ("--engine", "openai", "--upstream", upstream, "--upstream-model", "m")
            process = stack.enter_context(
                started(*JSON, *options, "--shutdown-timeout", "2", "--workers", workers, log=log)
            )
            url = await asyncio.to_thread(url_of, process)  # the upstream answers meanwhile
            session = await stack.enter_async_context(aiohttp.ClientSession())
            answers = [
                await stack.enter_async_context(session.post(url + CHATS, json=ASKS)) for _ in range(6)
            ]
            begun = [await answer.content.readline() for answer in answers]
            process.send_signal(signal.SIGTERM)
            for first, answer in zip(begun, answers, strict=True):
                events, _ = read_events(first + await answer.read())
                (told,) = [event for name, event in events if name == "error"]
                assert told["error"]["message"] == "The engine is shutting down."
            assert process.wait(WAIT_LIMIT) == 0
        lines = lines_of(log)
    ended = [line for line in lines if line.get("outcome")]
    assert [line["outcome"] for line in ended] == ["shutdown"] * 6
    assert not [line for line in lines if "fails" in line["message"]]


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_the_server_serves_for_a_while_after_it_says_that_it_is_not_ready(workers: str) -> None:
    options = ("--engine", "echo", "--drain-delay", "3600", "--workers", workers)
    with tempfile.TemporaryFile("w+") as log, started(*JSON, *options, log=log) as process:
        url = url_of(process)
        async with aiohttp.ClientSession() as session:

            async def status_of(path: str) -> int:
                # A connection for each: several processes answer.
                async with session.get(url + path, headers={"Connection": "close"}) as answer:
                    return answer.status

            async def is_unready() -> bool:
                return {await status_of("/ready") for _ in range(8)} == {503}

            assert await status_of("/ready") == 200
            process.send_signal(signal.SIGTERM)
            limit = time.monotonic() + WAIT_LIMIT
            while not await is_unready():
                assert time.monotonic() < limit
            for _ in range(4):
                assert await status_of("/health") == 200
                async with session.post(url + CHATS, json=ASKS) as answer:
                    assert answer.status == 200
                    assert "[DONE]" in await answer.text()
        process.send_signal(signal.SIGTERM)  # a second one ends the server at once
        assert process.wait(WAIT_LIMIT) == 1


@pytest.mark.parametrize("workers", ["1", "2"])
async def test_the_server_ends_when_the_delay_is_over(workers: str) -> None:
    options = ("--engine", "echo", "--drain-delay", "1", "--shutdown-timeout", "2", "--workers", workers)
    with tempfile.TemporaryFile("w+") as log, started(*JSON, *options, log=log) as process:
        url_of(process)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_LIMIT) == 0
        assert time.monotonic() - began >= 1
        messages = [line["message"] for line in lines_of(log)]
    assert "stopping: not ready from now on, and serving for 1 more seconds" in messages
    assert not [message for message in messages if "in time" in message]
