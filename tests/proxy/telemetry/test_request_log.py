"""The id of each request, and its line in the log, over real servers."""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from engine.protocol import Delta, RequestError, Usage
from hooks import Chunk, emit, terminate
from hooks.pipeline.open_guard import PassThrough
from proxy.telemetry.logs import JSONFormatter
from tests.helpers import Script, ScriptedEngine, make_deltas, slow, until
from tests.proxy.conftest import CHAT, Serve, hello
from tests.proxy.worker_helpers import workers

CHATS = "/v1/chat/completions"


def counted(_: Any) -> list[Any]:
    return [*make_deltas(["Hello", " you"], finish=False), Delta(finish_reason="length", usage=Usage(7, 2))]


def lines_of(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [vars(one)["fields"] for one in caplog.records if one.name == "weir.access"]


async def line_of(caplog: pytest.LogCaptureFixture) -> dict[str, Any]:
    """The only line. It follows the answer's last byte."""
    await until(lambda: lines_of(caplog))
    (line,) = lines_of(caplog)
    return line


@pytest.fixture(autouse=True)
def info(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


@pytest.mark.parametrize("stream", [True, False])
async def test_a_request_is_one_line(serve: Serve, caplog: pytest.LogCaptureFixture, stream: bool) -> None:
    client = await serve(ScriptedEngine(counted))
    async with client.http.post(client.url + CHATS, json={**CHAT, "stream": stream}) as response:
        await response.read()
    line = await line_of(caplog)
    assert 0 < line.pop("ttft_seconds") < line.pop("seconds")
    assert len(bytes.fromhex(line.pop("revision"))) == 8
    assert line == {
        "method": "POST",
        "path": CHATS,
        "status": 200,
        "tenant": "default",
        "key": "anonymous",
        "model": "m",
        "policy": "default",
        "outcome": "finished",
        "finish_reason": "length",
        "prompt_tokens": 7,
        "completion_tokens": 2,
    }


async def test_the_line_has_no_text_of_the_client_or_the_model(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    """contract 6.2"""
    hook = Script(lambda c: terminate("zebra", text="zebra") if c.text_diff else emit(c.pending))
    client = await serve(ScriptedEngine(lambda _: make_deltas(["zebra"])), hook, names=[])
    body = {**CHAT, "model": "zebra", "user": "zebra", "metadata": {"zebra": "zebra"}}
    await client.post(f"{CHATS}?zebra=zebra", body)
    await client.get("/v1/models/zebra")
    await client.get("/v1/responses/zebra?zebra")
    await until(lambda: len(lines_of(caplog)) == 3)
    assert [line["path"] for line in lines_of(caplog)][1:] == ["/v1/models/{id}", "/v1/responses/{id}"]
    assert "zebra" not in str(lines_of(caplog))


async def test_probes_are_not_logged(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    client = await serve(ScriptedEngine(hello))
    for path in ("/health", "/ready", "/metrics", "/version"):
        await client.get(path)
    assert [line["path"] for line in lines_of(caplog)] == ["/version"]


async def test_there_are_no_lines_without_the_access_log(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    client = await serve(ScriptedEngine(hello), access_log=False)
    await client.post(CHATS, CHAT)
    assert lines_of(caplog) == []


@pytest.mark.parametrize(("given", "status"), [({}, 401), ({"Authorization": "Bearer k"}, 404)])
async def test_refused_requests_are_logged(
    serve: Serve, caplog: pytest.LogCaptureFixture, given: dict[str, str], status: int
) -> None:
    client = await serve(ScriptedEngine(hello), api_key=["k"])
    async with client.http.get(client.url + "/none\x07such", headers=given) as response:
        assert response.status == status
        assert response.headers["X-Request-Id"].startswith("req_")
    line = await line_of(caplog)
    assert (line["status"], line["path"]) == (status, "/none%07such")


async def test_a_client_that_leaves_is_logged(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    client = await serve(ScriptedEngine(lambda _: [*make_deltas(["a"], finish=False), asyncio.Event()]))
    async with client.http.post(client.url + CHATS, json={**CHAT, "stream": True}) as response:
        await response.content.readline()
        response.close()
    line = await line_of(caplog)
    assert (line["status"], line["outcome"]) == (499, "closed")


async def test_a_client_that_leaves_after_the_last_byte_has_had_its_answer(
    serve: Serve, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def close(_: PassThrough) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(PassThrough, "close", close)
    client = await serve(ScriptedEngine(hello))
    async with client.http.post(client.url + CHATS, json={**CHAT, "stream": True}) as response:
        await response.read()  # the client closes the connection, and the guard is still being closed
    line = await line_of(caplog)
    assert (line["status"], line["outcome"]) == (200, "finished")


async def test_a_stream_whose_guard_cannot_be_closed_has_failed(
    serve: Serve, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def close(_: PassThrough) -> None:
        raise RuntimeError("broken")

    monkeypatch.setattr(PassThrough, "close", close)
    client = await serve(ScriptedEngine(hello))
    async with client.http.post(client.url + CHATS, json={**CHAT, "stream": True}) as response:
        assert (await response.read()).endswith(b"data: [DONE]\n\n")
    assert (await line_of(caplog))["status"] == 500
    _, metrics = await client.get("/metrics")
    assert f'weir_http_responses_total{{path="{CHATS}",status="500"}} 1.0'.encode() in metrics


async def test_an_answer_has_the_client_s_id_and_its_own(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    client = await serve(ScriptedEngine(hello))
    _, body, headers = await client.post(CHATS, CHAT, headers={"X-Request-Id": "trace-7/b"})
    assert headers["X-Request-Id"] == "trace-7/b"
    line = await line_of(caplog)
    assert line["answer_id"] == body["id"]


@pytest.mark.parametrize("bad", ["", "a b", "x" * 129, "<b>", "ä", "a;b"])
async def test_an_id_that_could_harm_a_log_is_not_taken(serve: Serve, bad: str) -> None:
    client = await serve(ScriptedEngine(hello))
    _, body, headers = await client.post(CHATS, CHAT, headers={"X-Request-Id": bad})
    assert headers["X-Request-Id"] == body["id"]


class Lines(logging.Handler):
    """Keeps the lines as JSON writes them."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(JSONFormatter())
        self.lines: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(orjson.loads(self.format(record)))


@pytest.fixture
def lines() -> Iterator[list[dict[str, Any]]]:
    handler = Lines()
    logging.getLogger().addHandler(handler)
    yield handler.lines
    logging.getLogger().removeHandler(handler)


@pytest.mark.parametrize("given", [{"X-Request-Id": "r-1"}, {}])
async def test_lines_about_a_request_have_its_id(
    serve: Serve, lines: list[dict[str, Any]], given: dict[str, str]
) -> None:
    def answer(chunk: Chunk) -> Any:
        return emit(chunk.pending) if chunk.request_id == "weir-self-test" else 1 / 0

    client = await serve(ScriptedEngine(hello), Script(answer))
    status, _, headers = await client.post(CHATS, CHAT, headers=given)
    assert status == 500
    await until(lambda: len(lines) == 2)
    assert [line["logger"] for line in lines] == ["weir.hooks", "weir.access"]
    assert {line["request_id"] for line in lines} == {headers["X-Request-Id"]}


async def test_an_error_of_the_messages_api_has_the_same_id_in_its_body(serve: Serve) -> None:
    client = await serve(ScriptedEngine(lambda _: [RequestError("no")]))
    body = {"model": "m", "max_tokens": 5, "messages": CHAT["messages"]}
    _, told, headers = await client.post("/v1/messages", body, headers={"X-Request-Id": "mine"})
    assert told["request_id"] == headers["request-id"] == headers["X-Request-Id"] == "mine"


@pytest.mark.parametrize("num_hook_workers", ["0", slow("1")])
async def test_each_worker_and_hook_worker_writes_json(tmp_path: Path, num_hook_workers: str) -> None:
    (tmp_path / "guards.py").write_text(
        "from hooks import emit\n"
        "class Fails:\n"
        "    def __call__(self, chunk):\n"
        "        return emit(chunk.pending) if chunk.request_id == 'weir-self-test' else 1 / 0\n"
    )
    hook = ("--hook", f"{tmp_path}/guards.py:Fails", "--hook-workers", num_hook_workers)
    with workers(tmp_path, "--engine", "echo", "--log-format", "json", *hook) as running:
        async with aiohttp.ClientSession() as http:
            body, headers = {"messages": CHAT["messages"]}, {"X-Request-Id": "r1"}
            async with http.post(running.url + CHATS, json=body, headers=headers) as response:
                assert response.status == 500
    lines = [orjson.loads(line) for line in running.log.read_text().splitlines()]
    (line,) = (line for line in lines if line["logger"] == "weir.access")
    assert line["request_id"] == "r1"
    assert line["process"] in ("worker 1", "worker 2")
    (failed,) = (one for one in lines if "ZeroDivisionError at" in one["message"])
    assert failed["process"] == line["process"]
