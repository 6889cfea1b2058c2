"""The requests that run, and how the operator cancels one."""

import asyncio
from typing import Any

import orjson
import pytest
from pydantic import SecretStr

from engine.protocol import Delta, Deltas, GenerationRequest
from hooks import emit
from proxy.service.running import OldestRequests
from tests.helpers import ScriptedEngine
from tests.proxy.conftest import CHAT, Client, Serve, read_events
from tests.proxy.http.admin.conftest import ADMIN, OPERATOR, ask

CHATS = "/v1/chat/completions"


class Endless(ScriptedEngine):
    """An engine that says one word, and then nothing until it is closed."""

    def __init__(self) -> None:
        super().__init__(lambda _: [])
        self.began = asyncio.Event()
        self.closed = asyncio.Event()

    async def generate(self, request: GenerationRequest) -> Deltas:
        try:
            yield Delta(text="Hello")
            self.began.set()
            await asyncio.Event().wait()
        finally:
            self.closed.set()


@pytest.fixture
async def endless(serve: Serve) -> tuple[Client, Endless]:
    engine = Endless()
    store = SecretStr("sqlite:///:memory:")
    return await serve(engine, admin_key=[SecretStr(ADMIN)], store=store, moderations=True), engine


async def begun(client: Client, engine: Endless, stream: bool) -> tuple["asyncio.Task[Any]", dict[str, Any]]:
    """A chat that runs, and what the operator sees of it."""

    async def chat() -> tuple[int, bytes]:
        async with client.http.post(client.url + CHATS, json={**CHAT, "stream": stream}) as response:
            return response.status, await response.read()

    task = asyncio.get_running_loop().create_task(chat())
    await engine.began.wait()
    ((facts,),) = [(await ask(client, "GET", "/admin/requests"))[1]["data"]]
    return task, facts


@pytest.mark.parametrize("stream", [False, True])
async def test_a_cancelled_request_is_closed_and_its_client_told(
    endless: tuple[Client, Endless], stream: bool
) -> None:
    client, engine = endless
    task, facts = await begun(client, engine, stream)
    assert {name: facts[name] for name in ("endpoint", "model", "policy", "tenant", "key", "stream")} == {
        "endpoint": "chat",
        "model": "m",
        "policy": "default",
        "tenant": "default",
        "key": "anonymous",
        "stream": stream,
    }
    path = f"/admin/requests/{facts['id']}"
    assert await ask(client, "DELETE", path) == (
        200,
        {"object": "request", "id": facts["id"], "cancelled": True},
    )
    status, body = await task
    await engine.closed.wait()
    if stream:
        events, _ = read_events(body)
        (_, error), (_, done) = events[-2:]
        assert (status, events[0][1]["id"], done) == (200, facts["id"], "[DONE]")
    else:
        error = orjson.loads(body)
        assert status == 403
    assert error["error"]["code"] == "request_cancelled"
    assert (await ask(client, "GET", "/admin/requests"))[1]["data"] == []
    assert (await ask(client, "DELETE", path))[0] == 404
    (change,) = (await ask(client, "GET", "/admin/changes"))[1]["data"]
    assert (change["action"], change["object"]) == ("cancel_request", facts["id"])
    status, raw = await client.get("/metrics", headers=OPERATOR)
    assert b'weir_requests_total{endpoint="chat",outcome="closed"} 1.0' in raw


async def test_a_client_that_leaves_is_not_listed_any_more(endless: tuple[Client, Endless]) -> None:
    client, engine = endless
    task, _ = await begun(client, engine, True)
    task.cancel()
    await engine.closed.wait()
    while (await ask(client, "GET", "/admin/requests"))[1]["data"]:
        await asyncio.sleep(0)


async def test_the_oldest_requests_of_all_processes_are_listed_up_to_a_limit(
    endless: tuple[Client, Endless], monkeypatch: pytest.MonkeyPatch
) -> None:
    client, engine = endless
    tasks = []
    for _ in range(2):
        engine.began.clear()
        tasks.append(asyncio.get_running_loop().create_task(client.post(CHATS, CHAT)))
        await engine.began.wait()
    service = client.server.service
    first, second = service.requests.oldest(5).oldest
    theirs = first._replace(id="theirs")

    async def ask_others(question: Any, **_: Any) -> list[OldestRequests]:
        return [OldestRequests([theirs][: question.limit], 7)]

    monkeypatch.setattr(service.peers, "ask", ask_others)
    for limit, ids in (("", [first.id, "theirs", second.id]), ("?limit=2", [first.id, "theirs"])):
        _, listed = await ask(client, "GET", f"/admin/requests{limit}")
        assert ([one["id"] for one in listed["data"]], listed["num_running"]) == (ids, 9)
    for limit in ("0", "1001", "all"):
        status, refused = await ask(client, "GET", f"/admin/requests?limit={limit}")
        assert (status, refused["error"]["param"]) == (400, "limit")
    for task in tasks:
        task.cancel()


async def test_a_request_that_waits_for_a_hook_on_its_prompt_is_cancelled_too(serve: Serve) -> None:
    class Waits:
        def __init__(self) -> None:
            self.began = asyncio.Event()

        async def on_request(self, request: GenerationRequest) -> Any:
            if request.request_id != "weir-self-test":
                self.began.set()
                await asyncio.Event().wait()
            return request

        def __call__(self, chunk: Any) -> Any:
            return emit(chunk.text)

    hook = Waits()
    client = await serve(
        ScriptedEngine(lambda _: []),
        hook,
        admin_key=[SecretStr(ADMIN)],
        store=SecretStr("sqlite:///:memory:"),
    )
    task = asyncio.get_running_loop().create_task(client.post(CHATS, CHAT))
    await hook.began.wait()
    ((facts,),) = [(await ask(client, "GET", "/admin/requests"))[1]["data"]]
    await ask(client, "DELETE", f"/admin/requests/{facts['id']}")
    status, body, _ = await task
    assert (status, body["error"]["code"]) == (403, "request_cancelled")


@pytest.mark.parametrize(
    ("path", "body", "is_listed"),
    [
        ("/tokenize", {"prompt": "a"}, False),
        ("/detokenize", {"tokens": [1]}, False),
        ("/v1/messages/count_tokens", CHAT, False),
        ("/v1/moderations", {"input": "a"}, True),
        ("/v1/embeddings", {"input": "a"}, True),
    ],
)
async def test_only_requests_with_an_id_in_their_answer_are_listed(
    endless: tuple[Client, Endless], path: str, body: dict[str, Any], is_listed: bool
) -> None:
    client, _ = endless
    requests, num_begun = client.server.service.requests, 0
    running = requests.running

    def noted(*args: Any) -> Any:
        nonlocal num_begun
        num_begun += 1
        return running(*args)

    requests.running = noted  # type: ignore[assignment, method-assign]
    await client.post(path, body)
    assert num_begun == is_listed
