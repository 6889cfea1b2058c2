"""Limits of keys: requests and tokens within a minute, and requests at the same time."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from engine.protocol import Delta, Deltas, GenerationRequest, Usage
from hooks import emit, hold
from hooks.builtin.pii import Pii
from tests.helpers import Script, ScriptedEngine, until
from tests.proxy.conftest import CHAT, Client, Serve
from tests.proxy.http.admin.conftest import ADMIN, ask

CHATS = "/v1/chat/completions"


def ten_tokens(_: GenerationRequest) -> list[Delta]:
    usage = Usage(prompt_tokens=4, completion_tokens=6)
    return [Delta(text="Hello"), Delta(finish_reason="stop", usage=usage)]


def half_past() -> float:
    """A clock that stands still, in the middle of a minute."""
    return 630.0


async def limited(serve: Serve, engine: Any, *hooks: Any, **limits: int) -> tuple[Client, dict[str, str]]:
    """A server, and the header of a key with these limits."""
    store = SecretStr("sqlite:///:memory:")
    client = await serve(engine, *hooks, admin_key=[SecretStr(ADMIN)], store=store, clock=half_past)
    return client, await key_with(client, **limits)


async def key_with(client: Client, **limits: int) -> dict[str, str]:
    made = (await ask(client, "POST", "/admin/keys", {"name": "alice", "limits": limits}))[1]["key"]
    return {"Authorization": f"Bearer {made}"}


async def test_one_request_too_many_in_a_minute_is_refused(serve: Serve) -> None:
    client, key = await limited(serve, ScriptedEngine(ten_tokens), requests_per_minute=3)
    left = []
    for _ in range(3):
        status, _, headers = await client.post(CHATS, CHAT, headers=key)
        assert status == 200
        assert headers["x-ratelimit-limit-requests"] == "3"
        left.append(headers["x-ratelimit-remaining-requests"])
    assert left == ["2", "1", "0"]
    for stream in (False, True):
        status, body, headers = await client.post(CHATS, {**CHAT, "stream": stream}, headers=key)
        assert (status, body["error"]["code"]) == (429, "rate_limit_exceeded")
        assert body["error"]["message"] == (
            "Too many requests for this key: the limit is 3 requests in a minute (requests_per_minute)."
        )
        assert headers["Retry-After"] == "50"  # 30 seconds, and then a third of the minute
        assert headers["x-ratelimit-remaining-requests"] == "0"
        assert headers["x-ratelimit-reset-requests"] == "90s"


@pytest.mark.parametrize(
    ("more", "expected"), [({"max_tokens": 500}, 400), ({"headers": {"X-Weir-Decisions": "true"}}, 403)]
)
async def test_a_request_that_the_policy_refuses_costs_none_of_the_limit(
    serve: Serve, more: dict[str, Any], expected: int
) -> None:
    client, key = await limited(serve, ScriptedEngine(ten_tokens), requests_per_minute=1, max_tokens=100)
    headers = {**key, **more.pop("headers", {})}
    for _ in range(2):
        assert (await client.post(CHATS, {**CHAT, **more}, headers=headers))[0] == expected
    assert (await client.post(CHATS, CHAT, headers=key))[0] == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_tokens_are_counted_at_the_end_of_a_request(serve: Serve, stream: bool) -> None:
    client, key = await limited(serve, ScriptedEngine(ten_tokens), tokens_per_minute=15)
    left = []
    for expected in (200, 200, 429):
        body = {**CHAT, "stream": stream}
        async with client.http.post(client.url + CHATS, json=body, headers=key) as response:
            await response.read()
            assert response.status == expected
            assert response.headers["x-ratelimit-limit-tokens"] == "15"
            left.append(response.headers["x-ratelimit-remaining-tokens"])
    assert left == ["15", "5", "0"]


@pytest.mark.parametrize("limits", [{"requests_per_minute": 1}, {"tokens_per_minute": 2}])
async def test_moderations_are_limited(serve: Serve, limits: dict[str, int]) -> None:
    client = await serve(
        ScriptedEngine(ten_tokens),
        Script(lambda c: emit(c.pending)),
        admin_key=[SecretStr(ADMIN)],
        store=SecretStr("sqlite:///:memory:"),
        moderations=True,
        clock=half_past,
    )
    key = await key_with(client, **limits)
    for expected in (200, 429):
        status, _, _ = await client.post("/v1/moderations", {"input": ["word", "word"]}, headers=key)
        assert status == expected


class Waiting(ScriptedEngine):
    """An engine that says much, and then waits."""

    def __init__(self) -> None:
        super().__init__(lambda _: [])
        self.num_running = 0

    async def generate(self, request: GenerationRequest) -> Deltas:
        self.num_running += 1
        try:
            yield Delta(text="word " * 80)
            await asyncio.Event().wait()
        finally:
            self.num_running -= 1


async def stream_of(client: Client, key: dict[str, str]) -> Any:
    """A stream whose first event has come."""
    response = await client.http.post(client.url + CHATS, json={**CHAT, "stream": True}, headers=key)
    await response.content.readany()
    return response


async def test_what_was_sent_before_a_client_left_is_counted(serve: Serve) -> None:
    forever = asyncio.Event()
    engine = ScriptedEngine(lambda _: [Delta(text="a "), Delta(text="word " * 80 + "end "), forever])
    client, key = await limited(serve, engine, tokens_per_minute=50)
    async with client.http.post(client.url + CHATS, json={**CHAT, "stream": True}, headers=key) as stream:
        while b"end" not in await stream.content.readany():
            pass
        stream.close()
    await until(lambda: not engine.running)
    async with client.http.post(client.url + CHATS, json=CHAT, headers=key) as response:
        assert response.status == 429


@pytest.mark.parametrize("held", [0, 300])
async def test_what_was_generated_before_a_client_left_is_counted(serve: Serve, held: int) -> None:
    engine = Waiting()
    hook = Script(lambda c: emit(c.pending) if c.is_final else hold(min(held, len(c.pending))))
    client, key = await limited(serve, engine, hook, tokens_per_minute=100)
    stream = await stream_of(client, key)
    stream.close()
    while engine.num_running:
        await asyncio.sleep(0)
    async with client.http.post(client.url + CHATS, json=CHAT, headers=key) as response:
        assert response.status == 429


async def test_requests_at_the_same_time_are_limited(serve: Serve) -> None:
    engine = Waiting()
    client, key = await limited(serve, engine, concurrent_requests=2)
    streams = [await stream_of(client, key) for _ in range(2)]
    status, body, _ = await client.post(CHATS, CHAT, headers=key)
    assert (status, body["error"]["message"].split(": ")[1]) == (
        429,
        "the limit is 2 requests at the same time (concurrent_requests).",
    )
    streams.pop().close()
    while engine.num_running == 2:
        await asyncio.sleep(0)
    streams.append(await stream_of(client, key))
    for stream in streams:
        assert stream.status == 200
        stream.close()


async def test_a_request_without_a_limit_gets_no_headers_of_one(serve: Serve) -> None:
    client, key = await limited(serve, ScriptedEngine(ten_tokens))
    _, _, headers = await client.post(CHATS, CHAT, headers=key)
    assert not [name for name in headers if name.lower().startswith("x-ratelimit")]


async def test_processes_that_share_their_state_share_the_limits(serve: Serve, tmp_path: Path) -> None:
    """At most as many requests are admitted as one process would admit, however they are spread."""
    settings: dict[str, Any] = {
        "clock": half_past,
        "admin_key": [SecretStr(ADMIN)],
        "store": SecretStr(f"sqlite:///{tmp_path}/weir.sqlite"),
        "state": SecretStr(f"sqlite:///{tmp_path}/state.sqlite"),
    }
    one = await serve(ScriptedEngine(ten_tokens), **settings)
    key = await key_with(one, requests_per_minute=7)
    two = await serve(ScriptedEngine(ten_tokens), **settings)

    async def status(client: Client) -> int:
        return int((await client.post(CHATS, CHAT, headers=key))[0])

    statuses = await asyncio.gather(*(status(client) for _ in range(8) for client in (one, two)))
    assert set(statuses) <= {200, 429}
    num_admitted = statuses.count(200)
    for client in (one, two):  # requests that came together may all have been refused
        while await status(client) == 200:
            num_admitted += 1
    assert num_admitted == 7


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/embeddings", {"model": "m", "input": "Hi"}),
        ("/v1/moderations", {"input": "Hi"}),
        ("/v1/messages/count_tokens", {"model": "m", "messages": CHAT["messages"]}),
        ("/tokenize", {"model": "m", "prompt": "Hi"}),
        ("/detokenize", {"model": "m", "tokens": [1]}),
    ],
)
async def test_requests_that_generate_nothing_are_limited_too(serve: Serve, path: str, body: Any) -> None:
    client = await serve(
        ScriptedEngine(ten_tokens),
        Pii(),
        moderations=True,
        admin_key=[SecretStr(ADMIN)],
        store=SecretStr("sqlite:///:memory:"),
        clock=half_past,
    )
    key = await key_with(client, requests_per_minute=1, concurrent_requests=1)
    first, _, headers = await client.post(path, body, headers=key)
    assert headers["x-ratelimit-remaining-requests"] == "0", first
    status, answer, _ = await client.post(path, body, headers=key)
    assert status == 429
    assert "requests_per_minute" in str(answer)
