"""One caller's requests leave room for another's."""

import asyncio
from typing import Any

import aiohttp
import pytest

from engine.local.engine import LocalEngine
from engine.protocol import Delta, GenerationRequest
from engine.protocol.demo import MODEL_DIR
from engine.protocol.options import EngineConfig
from tests.helpers import ScriptedEngine, make_deltas, until
from tests.proxy.conftest import CHAT, COMPLETION, Client, Serve

CHATS = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
KEYS = ("one", "another")
ONE, ANOTHER = ({"Authorization": f"Bearer {key}"} for key in KEYS)
LONG = {"max_tokens": 900, "ignore_eos": True, "stream": True}


def local(**options: Any) -> LocalEngine:
    return LocalEngine(EngineConfig(model=str(MODEL_DIR), num_threads=1, **options))


async def test_a_caller_who_fills_the_queue_leaves_others_a_place(serve: Serve) -> None:  # contract 8.5
    client = await serve(local(max_num_seqs=1, max_queue_len=2), api_key=KEYS)
    many = {**CHAT, **LONG, "n": 3}
    async with client.http.post(client.url + CHATS, json=many, headers=ONE) as running:
        await running.content.readany()  # the first output runs, and the others wait
        assert (await client.post(CHATS, CHAT, headers=ONE))[0] == 429
        status, _, _ = await client.post(CHATS, {**CHAT, "max_tokens": 1}, headers=ANOTHER)
    assert status == 200


async def test_a_caller_who_fills_the_queue_is_refused_before_the_body_is_read(serve: Serve) -> None:
    client = await serve(local(max_num_seqs=1, max_queue_len=2), api_key=KEYS)
    many = {**CHAT, **LONG, "n": 3}
    async with client.http.post(client.url + CHATS, json=many, headers=ONE) as running:
        await running.content.readany()
        address, port = client.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(address, int(port))
        head = "Host: localhost\r\nAuthorization: Bearer one\r\nContent-Type: application/json"
        writer.write(f"POST {CHATS} HTTP/1.1\r\n{head}\r\nContent-Length: 1000\r\n\r\n".encode())
        assert b" 429 " in await reader.readline()
        writer.close()
        assert b'outcome="failed"} 1.0' in await client.server.service.render_metrics()


async def test_thousands_of_outputs_do_not_keep_another_caller_waiting(serve: Serve) -> None:  # contract 8.5
    engine = local(max_num_seqs=8)
    client = await serve(engine, api_key=KEYS)
    many = {**COMPLETION, **LONG, "prompt": ["Hi"] * 32, "n": 128}
    async with client.http.post(client.url + COMPLETIONS, json=many, headers=ONE) as running:
        await running.content.readany()
        for _ in range(3):
            status, _, _ = await client.post(CHATS, {**CHAT, "max_tokens": 1}, headers=ANOTHER)
            assert status == 200
        assert engine.stats().preemptions_total, "no output of the first caller had ended"
        assert not running.content.at_eof()


async def test_many_streams_do_not_keep_another_caller_waiting(serve: Serve) -> None:  # contract 8.5
    engine = local(max_num_seqs=4)
    client = await serve(engine, api_key=KEYS)
    posts = [client.http.post(client.url + CHATS, json={**CHAT, **LONG}, headers=ONE) for _ in range(8)]
    running = await asyncio.gather(*posts)
    await until(lambda: engine.stats().num_running == 4)
    status, _, _ = await client.post(CHATS, {**CHAT, "max_tokens": 1}, headers=ANOTHER)
    assert status == 200
    assert not any(stream.content.at_eof() for stream in running)
    for stream in running:
        stream.close()


class Waiting:
    """An engine whose answers wait until they are let go."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.engine = ScriptedEngine(self._script)

    def _script(self, request: GenerationRequest) -> list[Any]:
        deltas: list[Delta] = make_deltas(["Hello"])
        return [deltas[0], self.gate, *deltas[1:]]


async def begun(client: Client, *headers: dict[str, str]) -> list[aiohttp.ClientResponse]:
    """Streams that have begun and go on."""
    streams = []
    for one in headers:
        stream = await client.http.post(client.url + CHATS, json={**CHAT, "stream": True}, headers=one)
        assert stream.status == 200
        streams.append(stream)
    return streams


async def test_a_caller_has_so_many_requests_at_once(serve: Serve) -> None:
    waiting = Waiting()
    client = await serve(waiting.engine, api_key=KEYS, max_requests_per_caller=2)
    streams = await begun(client, ONE, ONE)
    status, answer, headers = await client.post(CHATS, CHAT, headers=ONE)
    assert (status, headers["Retry-After"]) == (429, "1")
    error = answer["error"]
    assert (error["type"], error["code"]) == ("rate_limit_error", "rate_limit_exceeded")
    assert "2 (max_requests_per_caller)" in error["message"]
    assert (await client.get("/v1/models", headers=ONE))[0] == 200
    waiting.gate.set()
    assert (await client.post(CHATS, CHAT, headers=ANOTHER))[0] == 200
    for stream in streams:
        await stream.read()
    assert (await client.post(CHATS, CHAT, headers=ONE))[0] == 200


async def test_a_caller_s_requests_have_so_many_bytes_at_once(serve: Serve) -> None:
    waiting = Waiting()
    client = await serve(waiting.engine, api_key=KEYS, max_body_bytes_per_caller=1)
    (stream,) = await begun(client, ONE)  # one body alone is never too large
    for path in (CHATS, "/tokenize"):
        status, answer, headers = await client.post(path, CHAT, headers=ONE)
        assert (status, headers["Retry-After"]) == (429, "1")
        assert (
            "bytes of requests are in flight for this caller: the limit is 1." in answer["error"]["message"]
        )
    waiting.gate.set()
    assert (await client.post(CHATS, CHAT, headers=ANOTHER))[0] == 200
    await stream.read()
    await client.server.service.deployments.wait_until_idle()
    assert (await client.post(CHATS, CHAT, headers=ONE))[0] == 200


@pytest.mark.parametrize("has_forwarder", [False, True])
async def test_without_keys_a_caller_is_an_address(serve: Serve, has_forwarder: bool) -> None:
    """A key that nobody checks makes no other caller."""
    waiting = Waiting()
    trusted = ["127.0.0.1"] if has_forwarder else []
    client = await serve(waiting.engine, max_requests_per_caller=1, trusted_forwarders=trusted)
    await begun(client, {**ONE, "X-Forwarded-For": "10.0.0.1"})
    other = {**ANOTHER, "X-Forwarded-For": "10.0.0.2"}
    async with client.http.post(client.url + CHATS, json={**CHAT, "stream": True}, headers=other) as second:
        assert second.status == (200 if has_forwarder else 429)
    waiting.gate.set()


async def test_the_engine_is_told_the_caller_and_no_client_can_choose_it(serve: Serve) -> None:
    engine = ScriptedEngine(lambda _: make_deltas(["Hello"]))
    client = await serve(engine, api_key=KEYS)
    for key in (ONE, ONE, ANOTHER):
        _, answer, headers = await client.post(CHATS, {**CHAT, "caller": "me", "user": "me"}, headers=key)
        caller = engine.requests[-1].caller
        assert caller not in str(answer) + str(headers)
    first, again, other = (request.caller for request in engine.requests)
    assert first == again != other
    assert not {first, other} & {"", "me", *KEYS}
