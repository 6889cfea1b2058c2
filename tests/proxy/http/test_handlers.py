"""The endpoints that generate nothing, and the bodies that all endpoints read."""

import asyncio
from pathlib import Path
from unittest.mock import Mock

import orjson
import pytest

from engine.protocol import DeadEngineError, EngineError
from hooks import emit
from hooks.loading.loader import HookSpec
from hooks.workers.pool import WorkerPool
from tests.helpers import Script, ScriptedEngine, make_deltas
from tests.proxy.conftest import CHAT, Serve, hello, send

CHATS = "/v1/chat/completions"


GATED = """
import os, time
from hooks import emit

class Gated:
    def __init__(self, gate):
        while os.path.exists(gate):
            time.sleep(0.01)
    def __call__(self, chunk):
        return emit(chunk.pending)
"""


async def test_models_are_listed_and_found_by_name(serve: Serve) -> None:
    client = await serve(ScriptedEngine(lambda r: []), names=["org/model", "alias"])
    _, body = await client.get("/v1/models")
    models = orjson.loads(body)
    assert models["object"] == "list"
    assert [m["id"] for m in models["data"]] == ["org/model", "alias"]
    _, body = await client.get("/v1/models/org/model")
    model = orjson.loads(body)
    assert set(model) >= {"id", "object", "created", "owned_by"}
    assert (model["id"], model["object"], model["max_model_len"]) == ("org/model", "model", 1024)


async def test_the_answer_names_the_model_as_the_request_does(serve: Serve) -> None:
    client = await serve(ScriptedEngine(lambda r: make_deltas(["a"])), names=["m", "alias"])
    for asked, answered in (("alias", "alias"), ("m", "m"), (None, "m")):
        _, body, _ = await client.post("/v1/chat/completions", {**CHAT, "model": asked})
        assert body["model"] == answered


@pytest.mark.parametrize(
    ("error", "health"),
    [(EngineError("No upstream.", status=503), 200), (DeadEngineError("The engine has failed."), 503)],
)
async def test_health_tells_whether_another_process_is_needed_and_ready_whether_the_engine_serves(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, error: EngineError, health: int
) -> None:
    engine = ScriptedEngine(lambda r: [])
    client = await serve(engine)
    assert [(await client.get(path))[0] for path in ("/health", "/ready")] == [200, 200]
    monkeypatch.setattr(engine, "check_health", Mock(side_effect=error))
    assert [(await client.get(path))[0] for path in ("/health", "/ready")] == [health, 503]


async def test_ready_follows_the_hook_workers(serve: Serve, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    (tmp_path / "guards.py").write_text(GATED)
    pool = WorkerPool(1, [HookSpec(f"{tmp_path}/guards.py:Gated", {"gate": str(gate)})])
    client = await serve(ScriptedEngine(lambda r: make_deltas(["a"])), pipeline=pool)
    assert (await client.get("/ready"))[0] == 200
    gate.touch()
    (worker,) = pool._workers
    worker.kill()

    async def turns(status: int) -> None:
        while (await client.get("/ready"))[0] != status:
            await asyncio.sleep(0.01)

    await turns(503)
    gate.unlink()
    await turns(200)
    assert (await client.post("/v1/chat/completions", CHAT))[0] == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_version_and_metrics(serve: Serve, stream: bool) -> None:
    client = await serve(ScriptedEngine(lambda r: make_deltas(["a"])), Script(lambda c: emit(c.pending)))
    await (client.stream if stream else client.post)("/v1/chat/completions", CHAT)
    _, body = await client.get("/version")
    assert orjson.loads(body)["version"]
    _, metrics = await client.get("/metrics")
    assert b'weir_hook_verdicts_total{action="emit",hook="hook0"} 2.0' in metrics
    assert b'weir_time_to_first_token_seconds_count{endpoint="chat"} 1.0' in metrics
    assert b'weir_requests_total{endpoint="chat",outcome="finished"} 1.0' in metrics


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b"[]", 400),
        (b'"text"', 400),
        (b"null", 400),
        (b'{"messages": "\xff"}', 400),
        (b'{"temperature": NaN}', 400),
        (b"[" * 100_000, 400),
        (orjson.dumps(CHAT)[:-1] + b',"x":' + b"[" * 900 + b"]" * 900 + b"}", 400),
        (b'{"model": "m"}', 400),
    ],
    ids=lambda v: repr(v)[:30],
)
async def test_a_body_that_is_no_request_is_a_400(serve: Serve, data: bytes, status: int) -> None:
    client = await serve(ScriptedEngine(hello))
    assert (await send(client, CHATS, data))[0] == status
    assert (await client.post(CHATS, CHAT))[0] == 200


@pytest.mark.parametrize(
    "content_type", [None, "", "text/plain", "application/x-www-form-urlencoded", "application/octet-stream"]
)
@pytest.mark.parametrize("path", [CHATS, "/v1/completions", "/v1/responses", "/tokenize", "/detokenize"])
async def test_json_needs_its_content_type(serve: Serve, path: str, content_type: str | None) -> None:
    """A page of another site can send a body of another type, or of none, without a preflight request."""
    client = await serve(ScriptedEngine(hello))
    headers = {} if content_type is None else {"Content-Type": content_type}
    posting = client.http.post(
        client.url + path, data=orjson.dumps(CHAT), headers=headers, skip_auto_headers=["Content-Type"]
    )
    async with posting as response:
        assert response.status == 415
        assert "application/json" in (await response.json())["error"]["message"]


async def test_json_with_a_charset_is_read(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello))
    headers = {"Content-Type": "application/json; charset=utf-8"}
    async with client.http.post(client.url + CHATS, data=orjson.dumps(CHAT), headers=headers) as response:
        assert response.status == 200


@pytest.mark.parametrize("encoding", ["gzip", "zstd", "br", "snappy"])
async def test_a_compressed_body_is_refused(serve: Serve, encoding: str) -> None:
    client = await serve(ScriptedEngine(hello))
    status, _ = await send(client, CHATS, b"\x00\x01", Content_Encoding=encoding)
    assert status == 415


async def test_a_body_over_the_limit_is_refused(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello), max_body_size=1000)
    long = {**CHAT, "messages": [{"role": "user", "content": "x" * 2000}]}
    assert (await send(client, CHATS, orjson.dumps(long)))[0] == 413
    assert (await client.post(CHATS, CHAT))[0] == 200
