"""Budgets: requests and tokens within a day and a month, of keys, tenants, policies and users."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web
from pydantic import SecretStr

from engine.protocol import Delta, GenerationRequest
from engine.upstream.messages.engine import MessagesEngine
from engine.upstream.openai.engine import OpenAIEngine
from proxy.deployment.checks.idle import idle_faults
from proxy.service import users as module
from proxy.service.users import Users
from proxy.settings.serve import ServeSettings
from tests.helpers import ScriptedEngine
from tests.proxy.conftest import CHAT, COMPLETION, Client, Serve
from tests.proxy.http.admin.conftest import ADMIN, ask
from tests.proxy.service.test_quotas import CHATS, ten_tokens
from tests.proxy.worker_helpers import asker, recorded, workers

LATE = 1793469600.0
"""31 October 2026, 18:00 of UTC: six hours before a day and a month end."""
MESSAGE = {"model": "m", "max_tokens": 50, "messages": CHAT["messages"]}
ENDPOINTS = [
    (CHATS, CHAT),
    ("/v1/completions", COMPLETION),
    ("/v1/responses", {"model": "m", "input": "Hi"}),
    ("/v1/messages", MESSAGE),
]


class Clock:
    now = LATE

    def __call__(self) -> float:
        return self.now


async def budgeted(
    serve: Serve, engine: Any, folder: Path, *, clock: Clock | None = None, **rules: Any
) -> tuple[Client, dict[str, str]]:
    """A server with a state in the folder, and the header of a key with these rules."""
    client = await serve(
        engine,
        admin_key=[SecretStr(ADMIN)],
        store=SecretStr("sqlite:///:memory:"),
        state=SecretStr(f"sqlite:///{folder}/state.sqlite"),
        clock=clock or Clock(),
    )
    made = (await ask(client, "POST", "/admin/keys", {"name": "alice", **rules}))[1]["key"]
    return client, {"Authorization": f"Bearer {made}"}


@pytest.mark.parametrize(("path", "body"), ENDPOINTS)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_over_its_budget_is_refused_until_the_day_ends(
    serve: Serve, tmp_path: Path, path: str, body: dict[str, Any], stream: bool
) -> None:
    clock = Clock()
    engine = ScriptedEngine(ten_tokens)
    client, key = await budgeted(serve, engine, tmp_path, clock=clock, limits={"tokens_per_day": 15})
    statuses = []
    for _ in range(3):
        async with client.http.post(
            client.url + path, json={**body, "stream": stream}, headers=key
        ) as response:
            answer, headers = await response.read(), response.headers
            statuses.append(response.status)
    assert statuses == [200, 200, 429]
    error = orjson.loads(answer)["error"]
    assert "the limit is 15 tokens in a day of UTC (tokens_per_day)" in error["message"]
    assert error["type"] == "rate_limit_error"
    assert headers["Retry-After"] == str(6 * 3600)
    clock.now += 6 * 3600
    assert (await client.post(path, body, headers=key))[0] == 200


@pytest.mark.parametrize(("budget", "days"), [("requests_per_day", 1), ("requests_per_month", 30)])
async def test_a_budget_begins_anew_with_the_calendars_day_or_month(
    serve: Serve, tmp_path: Path, budget: str, days: int
) -> None:
    clock = Clock()
    client, key = await budgeted(serve, ScriptedEngine(ten_tokens), tmp_path, clock=clock, limits={budget: 1})
    clock.now += 6 * 3600 + 60  # the first minute of November
    assert (await client.post(CHATS, CHAT, headers=key))[0] == 200
    status, _, headers = await client.post(CHATS, CHAT, headers=key)
    assert (status, headers["Retry-After"]) == (429, str(days * 24 * 3600 - 60))
    clock.now += days * 24 * 3600 - 61
    assert (await client.post(CHATS, CHAT, headers=key))[0] == 429
    clock.now += 1
    assert (await client.post(CHATS, CHAT, headers=key))[0] == 200


async def test_several_servers_share_a_budget_and_a_restart_forgets_none(
    serve: Serve, tmp_path: Path
) -> None:
    rules = {"limits": {"tokens_per_month": 45}}
    one, key = await budgeted(serve, ScriptedEngine(ten_tokens), tmp_path, **rules)
    two, other = await budgeted(serve, ScriptedEngine(ten_tokens), tmp_path, **rules)
    for client, header in ((one, key), (two, other), (one, key)):
        assert (await client.post(CHATS, CHAT, headers=header))[0] == 200
    await one.server.stop()
    await two.server.stop()
    again, key = await budgeted(serve, ScriptedEngine(ten_tokens), tmp_path, **rules)
    statuses = [(await again.post(CHATS, CHAT, headers=key))[0] for _ in range(3)]
    assert statuses == [200, 200, 429]  # 30 tokens are spent before, and 40 of 45 at the second


async def test_workers_share_a_budget_and_a_restart_forgets_none(tmp_path: Path) -> None:
    config = tmp_path / "weir.yaml"
    config.write_text("policies: {p: {limits: {requests_per_month: 3}}}\n")
    state = f"sqlite:///{tmp_path}/state.sqlite"
    options = (*recorded(tmp_path), "--config", str(config), "--state", state)
    statuses = []
    for _ in range(2):
        with workers(tmp_path, *options) as service:
            for pid in service.pids().values():
                with asker(service, pid) as tell:
                    statuses += [tell("POST", CHATS, {"messages": CHAT["messages"]})[0] for _ in range(2)]
    assert statuses == [200, 200, 200, *[429] * 5]


async def test_each_user_of_a_key_has_a_budget(serve: Serve, tmp_path: Path) -> None:
    rules: Any = {"limits_per_user": {"tokens_per_day": 15}}
    client, key = await budgeted(serve, ScriptedEngine(ten_tokens), tmp_path, **rules)

    async def status(path: str, body: dict[str, Any]) -> int:
        return int((await client.post(path, body, headers=key))[0])

    ann, bob = {**CHAT, "user": "ann"}, {**MESSAGE, "metadata": {"user_id": "bob"}}
    assert [await status(CHATS, ann) for _ in range(3)] == [200, 200, 429]
    assert [await status("/v1/messages", bob) for _ in range(3)] == [200, 200, 429]
    assert [await status(CHATS, CHAT) for _ in range(3)] == [200, 200, 429]  # one without a name
    _, body, _ = await client.post(CHATS, ann, headers=key)
    assert "Too many requests for this user of the key: the limit is 15 tokens" in body["error"]["message"]
    assert "ann" not in str(body)
    with closing(sqlite3.connect(tmp_path / "state.sqlite")) as database:
        names = [name for (name,) in database.execute("SELECT name FROM weir_slots")]
    assert len(names) == 3
    assert "ann" not in str(names)


async def test_a_user_may_ask_for_as_many_tokens_of_one_output_as_its_limit_says(
    serve: Serve, tmp_path: Path
) -> None:
    client, key = await budgeted(
        serve, ScriptedEngine(ten_tokens), tmp_path, limits_per_user={"max_tokens": 20}
    )
    assert (await client.post(CHATS, {**CHAT, "max_tokens": 20}, headers=key))[0] == 200
    assert (await client.post(CHATS, {**CHAT, "max_tokens": 21}, headers=key))[0] == 400


def test_users_beyond_the_most_share_one_count_until_the_month_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_USERS", 3)
    clock = Clock()
    users = Users(lambda: b"salt", clock)
    names = [users.name("alice", f"user {i}") for i in range(100)]
    assert len(set(names)) == 4
    assert [users.name("alice", f"user {i}") for i in range(100)] == names
    assert users.name("bob", "user 50") not in names  # the users of another key have a share of their own
    clock.now += 6 * 3600
    assert users.name("alice", "user 50") not in names


async def _say_nothing_of_usage(request: web.Request) -> web.StreamResponse:
    """An answer of 400 characters, in one piece, without any usage."""
    text = "word " * 80
    if request.path.endswith("/messages"):
        events = [
            {"type": "message_start", "message": {"content": []}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
            {"type": "message_stop"},
        ]
        lines = [b"event: %b\ndata: %b\n\n" % (one["type"].encode(), orjson.dumps(one)) for one in events]  # type: ignore[attr-defined]
    else:
        choice = {"index": 0, "delta": {"content": text}, "finish_reason": "stop"}
        lines = [b"data: %b\n\n" % orjson.dumps({"choices": [choice]}), b"data: [DONE]\n\n"]
    return web.Response(body=b"".join(lines), content_type="text/event-stream")


@pytest.fixture
async def silent() -> AsyncIterator[str]:
    """The URL of an upstream that tells no usage."""
    app = web.Application()
    app.router.add_post("/{path:.*}", _say_nothing_of_usage)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


@pytest.mark.parametrize("make", [OpenAIEngine, MessagesEngine])
async def test_tokens_that_an_upstream_does_not_tell_are_estimated(
    serve: Serve, tmp_path: Path, silent: str, make: Any
) -> None:
    client, key = await budgeted(serve, make(silent), tmp_path, limits={"tokens_per_day": 101})
    prompt = {**CHAT, "messages": [{"role": "user", "content": "x" * 400}]}
    assert (await client.post(CHATS, prompt, headers=key))[0] == 200
    assert (await client.post(CHATS, prompt, headers=key))[0] == 429
    (row,) = (await ask(client, "GET", "/admin/usage"))[1]["data"]
    assert (row["completion_tokens"], row["requests"]) == (100, 1)
    assert 100 <= row["prompt_tokens"] <= 110
    assert row["estimated_tokens"] == row["prompt_tokens"] + row["completion_tokens"]


@pytest.mark.parametrize("text", ["", "word " * 8])
async def test_a_client_that_leaves_pays_for_its_prompt_too(serve: Serve, tmp_path: Path, text: str) -> None:
    forever = asyncio.Event()

    def begin(_: GenerationRequest) -> list[Any]:
        return [Delta(text="begin "), Delta(text=text), forever]

    engine = ScriptedEngine(begin)
    client, key = await budgeted(serve, engine, tmp_path, limits={"tokens_per_day": 100})
    prompt = {**CHAT, "stream": True, "messages": [{"role": "user", "content": "x" * 400}]}
    async with client.http.post(client.url + CHATS, json=prompt, headers=key) as response:
        await response.content.readany()
        response.close()
    while engine.running:
        await asyncio.sleep(0)
    async with client.http.post(client.url + CHATS, json=CHAT, headers=key) as response:
        assert response.status == 429


def test_budgets_without_a_state_are_told_to_be_forgotten() -> None:
    settings: dict[str, Any] = {
        "engine": "echo",
        "policies": {"p": {"limits_per_tenant": {"tokens_per_month": 5, "tokens_per_minute": 5}}},
    }
    (fault,) = idle_faults(ServeSettings(**settings))
    assert fault.place == ("policies", "p", "limits_per_tenant", "tokens_per_month")
    assert not list(idle_faults(ServeSettings(**settings, state=SecretStr("sqlite:///state.sqlite"))))
