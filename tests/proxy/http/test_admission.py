"""The one path to an engine, also for an endpoint that does not exist yet."""

from typing import Any

import pytest
from aiohttp import web
from pydantic import SecretStr

from engine.protocol.fields.support import FieldSupport
from hooks import emit
from proxy.http import admission, app, handlers
from proxy.http.respond import respond
from proxy.wire.openai.chat import ChatAnswer, ChatRequest
from tests.helpers import ScriptedEngine
from tests.proxy.conftest import CHAT, Serve, hello
from tests.proxy.http.admin.conftest import ADMIN, ask

CHATS = "/v1/chat/completions"
OPERATOR = {"X-Weir-Decisions": "true"}


def chats_as(monkeypatch: pytest.MonkeyPatch, endpoint: str | None) -> None:
    """Chats are admitted as another endpoint."""

    async def chat(http: web.Request) -> web.StreamResponse:
        async with admission.admitted(http, ChatRequest, handlers._CHAT, endpoint=endpoint) as exchange:
            return await respond(exchange, ChatAnswer(exchange.fields, exchange.request))

    rows = [(*row[:4], chat) if row[1] == CHATS else row for row in app.ENDPOINTS]
    monkeypatch.setattr(app, "ENDPOINTS", rows)


async def test_a_new_endpoint_generates_within_the_limits_of_its_key(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    chats_as(monkeypatch, "new")
    engine = ScriptedEngine(hello)
    store = SecretStr("sqlite:///:memory:")
    client = await serve(engine, admin_key=[SecretStr(ADMIN)], store=store)
    key = (await ask(client, "POST", "/admin/keys", {"name": "alice", "limits": {"max_tokens": 5}}))[1]["key"]
    headers = {"Authorization": f"Bearer {key}"}
    engine.fields, more = FieldSupport(honoured=frozenset({"ignore_eos"})), {"ignore_eos": True}
    assert (await client.post(CHATS, {**CHAT, **more}, headers=headers))[0] == 200
    (request,) = engine.requests
    assert (request.sampling.max_tokens, request.steers_end) == (5, True)
    status, body, _ = await client.post(CHATS, {**CHAT, "max_tokens": 6}, headers=headers)
    assert (status, body["error"]["message"]) == (400, "max_tokens must be at most 5 here.")


async def test_a_request_that_nothing_has_limited_does_not_generate(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    chats_as(monkeypatch, None)
    engine = ScriptedEngine(hello)
    client = await serve(engine)
    assert (await client.post(CHATS, CHAT))[0] == 500
    assert engine.requests == []


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {"prompt": "a"}),
        ("/detokenize", {"tokens": [1]}),
        ("/v1/messages/count_tokens", CHAT),
        ("/v1/moderations", {"input": "a"}),
        ("/v1/embeddings", {"input": "a"}),
        ("/v1/score", {"text_1": "a", "text_2": "b"}),
        ("/v1/rerank", {"query": "a", "documents": ["b"]}),
    ],
)
async def test_nobody_but_the_operator_asks_any_endpoint_for_decisions(
    serve: Serve, path: str, body: dict[str, Any]
) -> None:  # contract 8.14
    hook, admin_key = lambda chunk: emit(chunk.pending), [SecretStr(ADMIN)]
    store = SecretStr("sqlite:///:memory:")
    client = await serve(ScriptedEngine(hello), hook, moderations=True, admin_key=admin_key, store=store)
    status, answer, _ = await client.post(path, body, headers=OPERATOR)
    assert (status, answer["error"]["message"].partition(":")[0]) == (403, "X-Weir-Decisions")
