"""Weir's external processor, asked by a real Envoy that stands before a scripted server of chats."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio

pytest.importorskip("envoy")
pytest.importorskip("grpc")

from weir.adapters import envoy

ENVOY = Path(sys.executable).parent / "envoy"
HOOKS = [{"path": "phrases", "args": {"phrases": ["the weir", "heron"], "prompt": "refuse"}}]
ENDING = [{"path": "phrases", "args": {"phrases": ["heron"], "action": "terminate"}}]
CHAT = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
STARTED = 60.0


def event(**choice: Any) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": {}, **choice}]}).encode() + b"\n\n"


def chat(*words: str) -> list[bytes]:
    said = [event(delta={"content": word}) for word in words]
    return [*said, event(finish_reason="stop"), b"data: [DONE]\n\n"]


class Server:
    """Answers each request with these pieces."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.status = 200
        self.asked: list[tuple[str, bytes]] = []
        self.waits = asyncio.Event()
        """Set: nothing waits before the second piece."""
        self.waits.set()
        self.lost = asyncio.Event()
        """The answer was given up."""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                head = await reader.readuntil(b"\r\n\r\n")
                fields = dict(part.lower().split(b": ", 1) for part in head.strip().split(b"\r\n"))
                body = await self._body(reader, fields)
                self.asked.append((line.split()[1].decode(), body))
                writer.write(b"HTTP/1.1 %d X\r\nContent-Type: text/event-stream\r\n" % self.status)
                writer.write(b"X-Secret: heron\r\nTransfer-Encoding: chunked\r\n\r\n")
                for number, piece in enumerate(self.pieces):
                    writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                    await writer.drain()
                    if number == 0 and not self.waits.is_set():
                        assert not await asyncio.wait_for(reader.read(1), STARTED)
                        self.lost.set()
                        return
                writer.write(b"0\r\n\r\n")
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            self.lost.set()
        finally:
            writer.close()

    async def _body(self, reader: asyncio.StreamReader, fields: dict[bytes, bytes]) -> bytes:
        if b"content-length" in fields:
            return await reader.readexactly(int(fields[b"content-length"]))
        body = b""
        while b"transfer-encoding" in fields and (size := int(await reader.readline(), 16)):
            body += await reader.readexactly(size)
            await reader.readline()
        if b"transfer-encoding" in fields:
            await reader.readline()
        return body


def config(upstream: int, processor: int, listening: Path) -> dict[str, Any]:
    modes = {"request": "FULL_DUPLEX_STREAMED", "response": "FULL_DUPLEX_STREAMED"}
    mode = {f"{side}_body_mode": value for side, value in modes.items()}
    mode |= {f"{side}_{part}_mode": "SEND" for side in modes for part in ("header", "trailer")}
    filters = [
        {
            "name": "envoy.filters.http.ext_proc",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor",
                "grpc_service": {"envoy_grpc": {"cluster_name": "weir"}, "timeout": "30s"},
                "processing_mode": mode,
                "message_timeout": "30s",
            },
        },
        {
            "name": "envoy.filters.http.router",
            "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
        },
    ]
    manager = {
        "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3"
        ".HttpConnectionManager",
        "stat_prefix": "weir",
        "route_config": {
            "virtual_hosts": [
                {
                    "name": "all",
                    "domains": ["*"],
                    "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "model", "timeout": "0s"}}],
                }
            ]
        },
        "http_filters": filters,
    }
    listener = {
        "name": "front",
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}},
        "filter_chains": [
            {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
        ],
    }
    http2 = {
        "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
            "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
            "explicit_http_config": {"http2_protocol_options": {}},
        }
    }
    return {
        "admin": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}}},
        "static_resources": {
            "listeners": [listener],
            "clusters": [
                cluster("model", upstream),
                cluster("weir", processor) | {"typed_extension_protocol_options": http2},
            ],
        },
    }


def cluster(name: str, port: int) -> dict[str, Any]:
    address = {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    endpoint = {"lb_endpoints": [{"endpoint": {"address": address}}]}
    return {"name": name, "load_assignment": {"cluster_name": name, "endpoints": [endpoint]}}


Started = tuple[httpx2.AsyncClient, Server, Any]


@asynccontextmanager
async def serving(folder: Path, patch: pytest.MonkeyPatch, hooks: Any) -> AsyncIterator[Started]:
    (folder / "weir.yaml").write_text(json.dumps({"hooks": hooks}))
    patch.setenv("WEIR_CONFIG", str(folder / "weir.yaml"))
    model = Server()
    upstream = await asyncio.start_server(model.answer, "127.0.0.1", 0)
    processor, port = await envoy.serve("127.0.0.1", 0)
    file, admin = folder / "envoy.json", folder / "admin"
    file.write_text(json.dumps(config(upstream.sockets[0].getsockname()[1], port, admin)))
    command = [str(ENVOY), "-c", str(file), "--admin-address-path", str(admin), "--disable-hot-restart"]
    command += ["--concurrency", "1", "--log-level", "warning"]
    with (folder / "log").open("w") as log:
        process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log)
    try:
        async with httpx2.AsyncClient(timeout=STARTED) as http:
            port = await _port(http, admin, process, folder / "log")
            async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=STARTED) as client:
                yield client, model, processor
    finally:
        process.kill()
        await process.wait()
        await processor.stop(None)
        upstream.close()


async def _port(http: httpx2.AsyncClient, admin: Path, process: Any, log: Path) -> int:
    deadline = asyncio.get_running_loop().time() + STARTED
    while asyncio.get_running_loop().time() < deadline:
        assert process.returncode is None, log.read_text()  # noqa: ASYNC240
        try:
            found = await http.get(f"http://{admin.read_text()}/listeners?format=json")  # noqa: ASYNC240
            (one,) = found.json()["listener_statuses"]
            return int(one["local_address"]["socket_address"]["port_value"])
        except (OSError, ValueError, KeyError, httpx2.HTTPError):
            await asyncio.sleep(0.05)
    raise TimeoutError(log.read_text())  # noqa: ASYNC240


@pytest_asyncio.fixture
async def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[..., Any]]:
    def started(hooks: Any = HOOKS) -> Any:
        return serving(tmp_path, monkeypatch, hooks)

    yield started


def content(body: str) -> str:
    events = [json.loads(line[6:]) for line in body.splitlines() if line.startswith("data: {")]
    return "".join(c["delta"].get("content") or "" for e in events for c in e.get("choices", ()))


PATH = "/v1/chat/completions"


@pytest.mark.asyncio
async def test_answers_go_through_the_hooks(start: Any) -> None:
    async with start() as (client, model, _):
        model.pieces = chat("It is a her", "on by the ", "weir.", "x" * 200_000)
        got = await client.post(PATH, json=CHAT)
        assert (got.status_code, got.headers["content-type"]) == (200, "text/event-stream")
        assert content(got.text) == "It is a [phrase] by [phrase]." + "x" * 200_000
        assert "x-secret" not in got.headers
        whole = await client.post(PATH, json={**CHAT, "stream": False})
        assert (
            whole.json()["choices"][0]["message"]["content"]
            == "It is a [phrase] by [phrase]." + "x" * 200_000
        )
        (path, asked), *_ = model.asked
        assert (path, json.loads(asked)["stream"]) == (PATH, True)


@pytest.mark.asyncio
async def test_long_prompts_pass_and_refused_ones_do_not_reach_the_server(start: Any) -> None:
    async with start() as (client, model, _):
        model.pieces = chat("Yes.")
        long = {**CHAT, "messages": [{"role": "user", "content": "y" * 1_000_000}]}
        assert content((await client.post(PATH, json=long)).text) == "Yes."
        assert json.loads(model.asked[0][1])["messages"] == long["messages"]
        got = await client.post(PATH, json={**CHAT, "messages": [{"role": "user", "content": "a heron?"}]})
        assert (got.status_code, got.json()["error"]["code"], len(model.asked)) == (400, "content_filter", 1)


@pytest.mark.asyncio
async def test_text_leaves_as_it_comes_and_the_server_is_stopped_at_the_end(start: Any) -> None:
    async with start(ENDING) as (client, model, _):
        model.pieces = chat("First, a heron flies. ")
        model.waits.clear()
        got = await client.post(PATH, json=CHAT)
        assert content(got.text) == "First, a "
        assert '"finish_reason":"content_filter"' in got.text
        await asyncio.wait_for(model.lost.wait(), STARTED)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/tokenize"),
        ("POST", PATH + "/"),
        ("POST", PATH + "?x=1"),
        ("POST", "/V1/chat/completions"),
        ("GET", PATH),
        ("POST", "/health"),
        ("GET", "/health?x=1"),
        ("POST", "/v1/embeddings"),
    ],
)
async def test_nothing_goes_round(method: str, path: str, start: Any) -> None:
    async with start() as (client, model, _):
        model.pieces = [b"heron"]
        assert (await client.request(method, path, json=CHAT)).status_code == 404
        assert model.asked == []
        assert (await client.get("/health")).text == "heron"


@pytest.mark.asyncio
async def test_errors_are_in_weirs_words(start: Any) -> None:
    async with start() as (client, model, _):
        model.pieces, model.status = [b'{"error": {"message": "heron"}}'], 404
        got = await client.post(PATH, json=CHAT)
        assert (got.status_code, "heron" in got.text, "error" in got.json()) == (404, False, True)
        model.pieces, model.status = chat("a word")[:1], 200
        assert "error" in (await client.post(PATH, json=CHAT)).text


@pytest.mark.asyncio
async def test_without_the_processor_nothing_passes(start: Any) -> None:
    async with start() as (client, model, processor):
        model.pieces = chat("a word")
        await processor.stop(None)
        for method, path in (("POST", PATH), ("GET", "/health")):
            assert (await client.request(method, path, json=CHAT)).status_code >= 500
        assert model.asked == []
