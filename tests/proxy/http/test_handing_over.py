"""Deltas that are handed over to a client's socket, while the engine has more of them at once."""

import asyncio
from typing import Any

import orjson
import pytest

from engine.local.delta_queue import DeltaQueue
from engine.protocol import Deltas, GenerationRequest
from hooks import Chunk, Verdict, emit, suspect, terminate
from tests.helpers import ScriptedEngine, make_deltas, until
from tests.proxy.conftest import CHAT, Serve, read_events
from tests.proxy.http.test_event_stream import open_request


class QueueEngine(ScriptedEngine):
    """Yields what the test puts into the queue of the local engine."""

    def __init__(self) -> None:
        super().__init__(lambda request: ())
        self.queue = DeltaQueue()

    async def generate(self, request: GenerationRequest) -> Deltas:
        left = request.num_outputs
        while left:
            for delta in await self.queue.get():
                left -= delta.finish_reason is not None
                if callable(sent := (yield delta)):
                    self.queue.take = sent

    async def say(self, *texts: str) -> None:
        """The first text; once the reader is handed deltas, all others in one turn of the event loop."""
        first, *others = make_deltas(texts)
        self.queue.put(first)
        await until(lambda: self.queue.take is not None)
        for delta in others:
            self.queue.put(delta)


async def answer(serve: Serve, texts: list[str], *hooks: Any, stream: bool, version: str = "1.1") -> Any:
    """The content and the finish reason of an answer."""
    engine = QueueEngine()
    client = await serve(engine, *hooks)
    reader, writer = await open_request(client, {**CHAT, "stream": stream}, version)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(engine.say(*texts))
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


@pytest.mark.parametrize("stream", [True, False])
async def test_a_hook_sees_text_behind_text_that_could_not_be_handed_over(serve: Serve, stream: bool) -> None:
    def hook(chunk: Chunk) -> Verdict:
        if "secret" in chunk.pending:
            return terminate("no secrets")
        return suspect("odd") if chunk.text_diff == "odd, " else emit(chunk.pending)

    got = await answer(serve, ["one, ", "odd, ", "a secret", "!"], hook, stream=stream)
    assert got == ("one, odd, ", "content_filter")


@pytest.mark.parametrize("version", ["1.0", "1.1"])
async def test_no_text_is_lost_behind_text_that_could_not_be_handed_over(serve: Serve, version: str) -> None:
    """To a client of HTTP/1.0, no event is sent by a call."""
    texts = [f"{number} " for number in range(5)]
    assert await answer(serve, texts, stream=True, version=version) == ("0 1 2 3 4 ", "stop")
