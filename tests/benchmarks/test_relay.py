"""The upstream of the benchmark of relays sends a whole answer, whatever the pace."""

import asyncio
from collections import defaultdict

import orjson
import pytest

from benchmarks.guards import PROSE
from benchmarks.relay import LENGTH, TEXTS, ChunkStream, Upstream, mean_length, pieces
from engine.protocol import GenerationRequest
from engine.upstream.openai.engine import OpenAIEngine

REQUEST = GenerationRequest(
    request_id="r", model="m", endpoint="chat", messages=({"role": "user", "content": "Hi"},)
)


async def test_the_upstream_sends_one_chunk_a_step() -> None:
    connections: defaultdict[float, set[Upstream]] = defaultdict(set)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Upstream(10, connections), "127.0.0.1", 0)
    engine = OpenAIEngine(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    await engine.start()
    stepping = loop.create_task(step_always(connections[10]))
    deltas = [delta async for delta in engine.generate(REQUEST)]
    stepping.cancel()
    await engine.aclose()
    server.close()
    text = "".join(delta.text for delta in deltas)
    assert engine.info.names == ("m",)
    assert text == "".join(pieces("prose"))
    assert text.startswith(" " + " ".join(PROSE.split()[:40]))
    assert deltas[-1].finish_reason == "stop"
    assert deltas[-1].usage is not None
    assert deltas[-1].usage.completion_tokens == LENGTH


async def step_always(connections: set[Upstream]) -> None:
    while True:
        for connection in list(connections):
            connection.step()
        await asyncio.sleep(0)


@pytest.mark.parametrize("text", TEXTS)
def test_chunks_are_counted_however_they_are_joined_and_cut(text: str) -> None:
    events = [b'{"delta":{"content":%b}}' % orjson.dumps(piece) for piece in pieces(text)]
    said = b"".join(b"data: %b\n\n" % event for event in events)
    stream = object.__new__(ChunkStream)
    stream._unread, stream._mean = b"", mean_length(text)
    assert sum(stream._count(said[i : i + 9]) for i in range(0, len(said), 9)) == pytest.approx(LENGTH)
