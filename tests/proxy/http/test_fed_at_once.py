"""Deltas that the engine feeds in one turn of the event loop, while a client's answer has not begun."""

import asyncio
from typing import Any

import orjson
import pytest

from engine.protocol import Delta, GenerationRequest
from engine.protocol.flow import Flow
from hooks import Chunk, Verdict, emit, suspect, terminate
from tests.helpers import ScriptedEngine, make_deltas
from tests.proxy.conftest import CHAT, Serve, read_events
from tests.proxy.http.test_event_stream import open_request


class PushingEngine(ScriptedEngine):
    """Feeds the first delta, and the others in one turn of the event loop: once the client has the first, or
    in the same turn."""

    def __init__(self, texts: list[str], *, waits: bool) -> None:
        super().__init__(lambda request: make_deltas(texts))
        self.waits = waits

    async def feed(self, request: GenerationRequest, flow: Flow) -> None:
        first, *others = self.script(request)
        flow.feed(first)
        if self.waits:
            await flow.has_room()
        for delta in others:
            flow.feed(delta)


async def answer(
    serve: Serve, texts: list[str], *hooks: Any, stream: bool, waits: bool, version: str = "1.1"
) -> Any:
    """The content and the finish reason of an answer."""
    client = await serve(PushingEngine(texts, waits=waits), *hooks)
    reader, writer = await open_request(client, {**CHAT, "stream": stream}, version)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    if b"chunked" in head:
        body = b""
        while size := int(await reader.readline(), 16):
            body += (await reader.readexactly(size + 2))[:-2]
    elif stream:
        body = await reader.read()
    else:
        body = await reader.readexactly(int(head.partition(b"content-length:")[2].split()[0]))
    writer.close()
    if not stream:
        (choice,) = orjson.loads(body)["choices"]
        return choice["message"]["content"], choice["finish_reason"]
    choices = [event["choices"][0] for _, event in read_events(body)[0] if event != "[DONE]"]
    content = "".join(choice["delta"].get("content") or "" for choice in choices)
    return content, choices[-1]["finish_reason"]


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("stream", [True, False])
async def test_a_hook_sees_text_after_text_that_waits(serve: Serve, stream: bool, waits: bool) -> None:
    def hook(chunk: Chunk) -> Verdict:
        if "secret" in chunk.pending:
            return terminate("no secrets")
        return suspect("odd") if chunk.text_diff == "odd, " else emit(chunk.pending)

    got = await answer(serve, ["one, ", "odd, ", "a secret", "!"], hook, stream=stream, waits=waits)
    # What came while the answer began is one chunk for the hook.
    assert got == ("one, odd, " if waits or not stream else "one, ", "content_filter")


@pytest.mark.parametrize("waits", [True, False])
@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_no_text_is_lost_after_text_that_waits(serve: Serve, version: str, waits: bool) -> None:
    """To a client of HTTP/1.0, no event is sent by a call."""
    texts = [f"{number} " for number in range(5)]
    got = await answer(serve, texts, stream=True, waits=waits, version=version)
    assert got == ("0 1 2 3 4 ", "stop")


@pytest.mark.parametrize("waits", [True, False])
async def test_an_async_hook_sees_all_that_came_while_it_waited(serve: Serve, waits: bool) -> None:
    class Slow:
        async def __call__(self, chunk: Chunk) -> Verdict:
            await asyncio.sleep(0)
            return terminate("no secrets") if "secret" in chunk.pending else emit(chunk.pending)

    texts = ["one, ", "two, ", "three", "a sec", "ret", "!"]
    content, finish = await answer(serve, texts, Slow(), stream=True, waits=waits)
    assert "one, two, threea secret".startswith(content)
    assert "secret" not in content
    assert finish == "content_filter"


async def test_a_client_that_stops_reading_fills_the_flow_and_gets_all(serve: Serve) -> None:
    """The engine is held up, so that an upstream would be read no further."""

    class Endless(ScriptedEngine):
        num_fed = 0

        async def feed(self, request: GenerationRequest, flow: Flow) -> None:
            while not is_enough.is_set():
                flow.feed(Delta(text="word " * 2000))
                self.num_fed += 1
                if flow.is_full:
                    is_full.set()
                    await flow.has_room()
                    is_full.clear()
                await asyncio.sleep(0)
            flow.feed(Delta(finish_reason="stop"))

    is_full, is_enough = asyncio.Event(), asyncio.Event()
    engine = Endless(lambda request: ())
    client = await serve(engine)
    reader, writer = await open_request(client, {**CHAT, "stream": True}, "1.0")
    head = await reader.readuntil(b"\r\n\r\n")
    fed = -1
    while fed != engine.num_fed:  # the answer's beginning fills the flow, too
        fed = engine.num_fed
        await is_full.wait()
        for _ in range(100):
            await asyncio.sleep(0)
    is_enough.set()
    body = await reader.read()
    writer.close()
    assert b"200 OK" in head
    choices = [event["choices"][0] for _, event in read_events(body)[0] if event != "[DONE]"]
    content = "".join(choice["delta"].get("content") or "" for choice in choices)
    assert content == "word " * 2000 * engine.num_fed
    assert engine.num_fed <= fed + 1
