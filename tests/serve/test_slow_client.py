"""A client that stops reading holds up nobody, and misses nothing."""

import asyncio
import socket
from collections.abc import Callable
from urllib.parse import urlsplit

import aiohttp
import orjson

from tests.proxy.conftest import read_events
from tests.serve.test_client_leaves import LOOP, metric

BODY = {
    "messages": [{"role": "user", "content": LOOP}],
    "ignore_eos": True,
    "n": 8,
    "max_tokens": 200,
    # So that an event is long, and what nobody reads soon fills every buffer on the way.
    "logprobs": True,
    "top_logprobs": 20,
    "stream": True,
    "stream_options": {"include_usage": True},
}


async def test_the_engine_ends_before_a_client_that_does_not_read(weir_serve: Callable[..., str]) -> None:
    url = weir_serve()
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    address = urlsplit(url)
    await asyncio.get_running_loop().sock_connect(sock, (address.hostname, address.port))
    reader, writer = await asyncio.open_connection(sock=sock, limit=2048)
    body = orjson.dumps(BODY)
    writer.write(b"POST /v1/chat/completions HTTP/1.0\r\nContent-Type: application/json\r\n")
    writer.write(b"Content-Length: %d\r\n\r\n%b" % (len(body), body))
    assert (await reader.readline()).split()[1] == b"200"
    async with aiohttp.ClientSession() as http:
        while await metric(http, url, "weir_num_requests_running"):
            await asyncio.sleep(0.05)
        assert await metric(http, url, "weir_kv_blocks_used") == 0
        answer = await reader.read()
    writer.close()
    events, _ = read_events(answer.partition(b"\r\n\r\n")[2])
    *chunks, last = [data for _, data in events if data != "[DONE]"]
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    tokens = [token for c in choices if c["logprobs"] for token in c["logprobs"]["content"]]
    assert len(tokens) == last["usage"]["completion_tokens"] == 8 * 200
    assert sum(choice["finish_reason"] == "length" for choice in choices) == 8
    for index in range(8):
        own = [choice for choice in choices if choice["index"] == index]
        told = bytes(
            b for c in own if c["logprobs"] for token in c["logprobs"]["content"] for b in token["bytes"]
        )
        assert "".join(choice["delta"].get("content", "") for choice in own).encode() == told
