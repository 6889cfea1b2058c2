"""Every error is an error object with the right status."""

import aiohttp
import orjson
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from engine.protocol import Delta, EngineError, QueueFullError, RequestError
from hooks import emit
from hooks.loading.loader import LoadedHook
from hooks.pipeline.pipeline import Pipeline
from proxy.deployment.directory import Directory
from proxy.deployment.keys import ANONYMOUS, Key
from proxy.http.dialect import error_answer
from proxy.network.errors import Handler
from proxy.settings.model import ModelSettings
from tests.helpers import Script, ScriptedEngine
from tests.proxy.conftest import CHAT, Serve, hello, send

CHATS = "/v1/chat/completions"


async def test_unknown_models_and_paths_and_methods(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello))
    status, error = await send(client, CHATS, orjson.dumps({**CHAT, "model": "other"}))
    assert (status, error["code"], error["param"]) == (404, "model_not_found", "model")
    assert (await send(client, "/v1/nothing", b"{}"))[0] == 404
    async with client.http.get(client.url + CHATS) as response:
        assert (response.status, response.headers["Allow"]) == (405, "POST")
        assert orjson.loads(await response.read())["error"]["message"]
    assert (await client.get("/v1/models/other"))[0] == 404


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"model": "Qwen3-8b"}, "The model 'Qwen3-8b' is not served here; did you mean 'Qwen/Qwen3-8B'?"),
        ({"model": "other"}, "The model 'other' is not served here."),
        ({"hooks": ["strct"]}, "The hook 'strct' is not one that a request may name; did you mean 'strict'?"),
        ({"hooks": ["other"]}, "The hook 'other' is not one that a request may name."),
        ({"tool_choice": "requird"}, "'none', 'auto' or 'required'; did you mean 'required'?"),
    ],
    ids=str,
)
async def test_a_misspelt_value_gets_the_one_that_was_meant(
    serve: Serve, fields: dict[str, object], says: str
) -> None:
    pipeline = Pipeline(allowed=[LoadedHook("strict", Script(lambda c: emit(c.pending)), is_async=False)])
    client = await serve(ScriptedEngine(hello), pipeline=pipeline, names=["Qwen/Qwen3-8B"])
    _, error = await send(client, CHATS, orjson.dumps({**CHAT, "model": "Qwen/Qwen3-8B", **fields}))
    assert error["message"].endswith(says)


def test_only_models_that_the_key_may_use_are_suggested() -> None:
    entries = [ModelSettings().named((name,)) for name in ("small-one", "small-on2")]
    directory = Directory(entries, [])
    with pytest.raises(RequestError, match="did you mean 'small-one'"):
        directory.model_for(ANONYMOUS, "small-one2")
    with pytest.raises(RequestError, match="did you mean 'small-on2'"):
        directory.model_for(Key(models=("small-on2",)), "small-one1")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (RequestError("maximum context length is 9 tokens", param="messages"), 400, "invalid_request_error"),
        (QueueFullError(), 429, "rate_limit_error"),
        (EngineError("gone", status=503), 503, "server_error"),
        (EngineError("upstream broke", status=502), 502, "server_error"),
        (RuntimeError("internal detail"), 500, "server_error"),
    ],
    ids=lambda v: type(v).__name__ if isinstance(v, Exception) else "",
)
async def test_a_failure_before_the_first_event_has_a_status(
    serve: Serve, stream: bool, error: Exception, status: int, kind: str
) -> None:
    client = await serve(ScriptedEngine(lambda r: [error]))
    got, body, headers = await client.post(CHATS, {**CHAT, "stream": stream})
    assert (got, body["error"]["type"]) == (status, kind)
    assert "internal detail" not in str(body)
    assert ("Retry-After" in headers) == (status in (429, 503))


async def test_a_failure_after_the_first_event_is_one_error_event_and_done(serve: Serve) -> None:
    client = await serve(ScriptedEngine(lambda r: [Delta(text="a"), EngineError("gone", status=503)]))
    stream = await client.stream(CHATS, CHAT)
    assert stream.content() == "a"
    assert stream.events[-2:] == [
        ("error", {"error": {"message": "gone", "type": "server_error", "param": None, "code": None}}),
        (None, "[DONE]"),
    ]
    assert [name for name, _ in stream.events].count("error") == 1


async def test_a_client_that_leaves_while_the_answer_is_written_is_no_error_of_the_server(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def leave(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"a")
        assert request.transport is not None
        request.transport.close()
        for _ in range(3):
            await response.write(b"b")
        return response

    @web.middleware
    async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except Exception as error:  # noqa: BLE001 - as the door does
            return error_answer(request, error)

    app = web.Application(middlewares=[answer_errors])
    app.router.add_get("/", leave)
    async with TestServer(app) as server, aiohttp.ClientSession() as client:
        with pytest.raises(aiohttp.ClientError):
            async with client.get(server.make_url("/")) as response:
                await response.read()
    assert not [record for record in caplog.records if record.name == "weir.proxy"]
