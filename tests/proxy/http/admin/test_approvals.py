"""The tool calls that wait for a person: who may see and decide them, and the webhook."""

import asyncio
import hashlib
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from time import perf_counter
from typing import Any

import orjson
import pytest
from aiohttp import web
from pydantic import SecretStr

from engine.protocol import Delta, ToolCall
from hooks.builtin.tools import Tools
from hooks.loading.loader import HookSpec
from hooks.workers.pool import WorkerPool
from proxy.service.approval_webhook import SIGNATURE
from tests.helpers import ScriptedEngine, pipeline_of
from tests.proxy.conftest import Client, Serve
from tests.proxy.http.admin.conftest import ADMIN, ask

ARGUMENTS = '{"path": "notes.txt"}'
DELTAS = [
    Delta(text=ARGUMENTS, channel="tool_call", tool_call=ToolCall(0, "write", "own")),
    Delta(finish_reason="tool_calls"),
]
TOOL = {"type": "function", "function": {"name": "write"}}
CHAT = {"model": "m", "messages": [{"role": "user", "content": "Go."}], "tools": [TOOL]}
TEXT = "[A tool call was withheld: the policy does not allow it.]"
Hear = Callable[[dict[str, Any], web.Request], Awaitable[web.Response]]


async def served(
    serve: Serve, pipeline: Any = None, deltas: Sequence[Delta] = DELTAS, **settings: Any
) -> Client:
    settings = {"admin_key": [SecretStr(ADMIN)], "store": SecretStr("sqlite:///:memory:"), **settings}
    pipeline = pipeline or pipeline_of(Tools(action="ask"))
    return await serve(ScriptedEngine(lambda _: list(deltas)), pipeline=pipeline, **settings)


async def chat(client: Client) -> dict[str, Any]:
    async with client.http.post(client.url + "/v1/chat/completions", json=CHAT) as response:
        return dict(orjson.loads(await response.read())["choices"][0]["message"])


async def waiting(client: Client) -> dict[str, Any]:
    while not (data := (await ask(client, "GET", "/admin/approvals"))[1]["data"]):
        pass
    return dict(data[0])


def names_of(message: dict[str, Any]) -> list[str]:
    return [call["function"]["name"] for call in message.get("tool_calls") or []]


@pytest.fixture
async def webhook() -> AsyncIterator[Callable[[Hear], Awaitable[str]]]:
    """Starts a webhook, and returns its URL."""
    runners: list[web.AppRunner] = []

    async def start(hear: Hear) -> str:
        async def handle(http: web.Request) -> web.Response:
            return await hear(orjson.loads(await http.read()), http)

        app = web.Application()
        app.router.add_post("/hear", handle)
        runner = web.AppRunner(app)
        runners.append(runner)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        return f"http://{host}:{port}/hear"

    yield start
    for runner in runners:
        await runner.cleanup()


@pytest.mark.parametrize("approve", [True, False])
async def test_tools_asks_about_what_its_policy_denies(serve: Serve, approve: bool) -> None:
    client = await served(serve)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(chat(client))
        call = await waiting(client)
        assert (call["tool"], call["arguments"], call["reason"]) == ("write", ARGUMENTS, "tool_denied")
        body = {"approve": approve, "digest": call["digest"]}
        assert (await ask(client, "POST", f"/admin/approvals/{call['id']}", body))[0] == 200
    message = task.result()
    assert names_of(message) == (["write"] if approve else [])
    assert message["content"] == (None if approve else TEXT)


@pytest.mark.parametrize("has_text", [True, False])
async def test_the_time_that_a_person_takes_is_no_latency_of_the_server(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, has_text: bool
) -> None:
    taken = 0.0
    for module in ("http.respond", "http.admission", "service.metrics"):
        monkeypatch.setattr(f"proxy.{module}.perf_counter", lambda: perf_counter() + taken)
    client = await served(serve, deltas=[Delta(text="I write.")] * has_text + DELTAS)
    async with asyncio.TaskGroup() as group:
        group.create_task(chat(client))
        call = await waiting(client)
        taken = 10_000.0
        body = {"approve": True, "digest": call["digest"]}
        await ask(client, "POST", f"/admin/approvals/{call['id']}", body)
    _, page = await client.get("/metrics", headers={"Authorization": f"Bearer {ADMIN}"})
    lines = page.decode().splitlines()

    def seconds(name: str) -> float:
        (line,) = (one for one in lines if one.startswith(f"weir_{name}_seconds_sum"))
        return float(line.split()[1])

    assert seconds("e2e_request_latency") > 10_000
    assert 0 < seconds("time_to_first_token") < 1_000
    assert seconds("inter_token_latency") < 1_000
    assert (seconds("inter_token_latency") > 0) is has_text


@pytest.mark.parametrize("arguments", ['{"path": ', '{"a": 1, "a": 2}', "no JSON"])
async def test_tools_asks_about_no_call_that_cannot_be_read(serve: Serve, arguments: str) -> None:
    call = ToolCall(0, "write", "own")
    deltas = [Delta(text=arguments, channel="tool_call", tool_call=call), Delta(finish_reason="tool_calls")]
    rules: Any = [{"tools": ["write"], "when": {"/path": {"values": ["x"]}}}]
    pipeline = pipeline_of(Tools(rules, action="ask"))
    client = await served(serve, pipeline, deltas)
    message = await chat(client)
    assert (names_of(message), message["content"]) == ([], TEXT)


async def test_the_call_itself_needs_the_admin_key(serve: Serve) -> None:
    client = await served(serve)
    task = asyncio.get_running_loop().create_task(chat(client))
    call = await waiting(client)
    path, body = f"/admin/approvals/{call['id']}", {"approve": True, "digest": call["digest"]}
    async with client.http.post(client.url + path, json=body) as response:
        assert response.status == 401
    for wrong in ({"approve": True}, {**body, "digest": "x"}, {**body, "note": "x"}, {**body, "approve": 2}):
        status, answer = await ask(client, "POST", path, wrong)
        assert status == 400, wrong
        assert answer["error"]["param"]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("approve", [True, False])
async def test_a_webhook_decides(
    serve: Serve, webhook: Callable[[Hear], Awaitable[str]], approve: bool
) -> None:
    heard: list[dict[str, Any]] = []

    async def hear(call: dict[str, Any], http: web.Request) -> web.Response:
        heard.append(call)
        digest = hmac.new(b"sesame", await http.read(), hashlib.sha256).hexdigest()
        assert http.headers[SIGNATURE] == f"sha256={digest}"
        return web.json_response({"approve": approve, "digest": call["digest"], "by": "ada"})

    url = SecretStr(await webhook(hear))
    client = await served(serve, admin_key=[], approval_webhook=url, approval_webhook_key=SecretStr("sesame"))
    assert names_of(await chat(client)) == (["write"] if approve else [])
    assert (heard[0]["tool"], heard[0]["arguments"]) == ("write", ARGUMENTS)


@pytest.mark.parametrize(
    "answer",
    [{"approve": True, "digest": "0" * 64}, {"approve": True}, {"approve": "perhaps", "digest": ""}, None],
    ids=["another call", "no digest", "no answer", "status 500"],
)
async def test_a_webhook_that_does_not_decide_leaves_the_call_to_the_operator(
    serve: Serve, webhook: Callable[[Hear], Awaitable[str]], answer: Any
) -> None:
    asked = asyncio.Event()

    async def hear(call: dict[str, Any], http: web.Request) -> web.Response:
        asked.set()
        return web.Response(status=500) if answer is None else web.json_response(answer)

    client = await served(serve, approval_webhook=SecretStr(await webhook(hear)))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(chat(client))
        await asked.wait()
        call = await waiting(client)
        body = {"approve": True, "digest": call["digest"]}
        assert (await ask(client, "POST", f"/admin/approvals/{call['id']}", body))[0] == 200
    assert names_of(task.result()) == ["write"]


async def test_a_webhook_may_leave_the_answer_to_later(
    serve: Serve, webhook: Callable[[Hear], Awaitable[str]]
) -> None:
    async def hear(call: dict[str, Any], http: web.Request) -> web.Response:
        return web.Response(status=202)

    url = SecretStr(await webhook(hear))
    client = await served(serve, admin_key=[], approval_webhook=url, approval_timeout=0.05)
    assert names_of(await chat(client)) == []


async def test_a_hook_in_a_worker_asks_too(serve: Serve) -> None:
    pool = WorkerPool(1, [HookSpec("tools", {"action": "ask"})])
    client = await served(serve, pipeline=pool)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(chat(client))
        call = await waiting(client)
        body = {"approve": True, "digest": call["digest"]}
        await ask(client, "POST", f"/admin/approvals/{call['id']}", body)
    assert names_of(task.result()) == ["write"]
