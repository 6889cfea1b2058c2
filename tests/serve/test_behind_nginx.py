"""nginx before Weir, as docs/in-front.md sets it up: real processes, on the loopback interface."""

import asyncio
import re
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import aiohttp
import orjson
import pytest
from aiohttp import web

from tests.processes import WAIT_LIMIT, killed_at_end
from tests.serving import ROOT, serving

NGINX = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin:/opt/homebrew/bin")
pytestmark = pytest.mark.skipif(NGINX is None, reason="there is no nginx here")
MODELS = {"object": "list", "data": [{"id": "m", "object": "model"}]}
CHAT = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hello"}]}


class Upstream:
    """A model that says one word, and the next one when it is told to."""

    def __init__(self) -> None:
        self.may_go_on = asyncio.Event()
        self.was_left = asyncio.Event()

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response(MODELS)

    async def chat(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        try:
            await response.write(event({"role": "assistant", "content": "one "}))
            await self.may_go_on.wait()
            await response.write(event({"content": "two"}) + event({}, "stop") + b"data: [DONE]\n\n")
        except asyncio.CancelledError:
            self.was_left.set()
            raise
        return response


def event(delta: dict[str, str], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"data: " + orjson.dumps(chunk) + b"\n\n"


@asynccontextmanager
async def listening(upstream: Upstream) -> AsyncIterator[str]:
    app = web.Application()
    app.add_routes([web.get("/v1/models", upstream.models), web.post("/v1/chat/completions", upstream.chat)])
    runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


@contextmanager
def nginx(weir: str, folder: Path) -> Iterator[str]:
    """The configuration of the page, with this server's address. Its own address."""
    page = (ROOT / "docs" / "in-front.md").read_text()
    found = re.search(r"```text\n(# weir\.conf.*?)```", page, re.DOTALL)
    assert found
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    server = found[1].replace("127.0.0.1:8000", weir.removeprefix("http://"))
    server = server.replace("127.0.0.1:8080", address)
    paths = [
        f"{name}_temp_path {folder}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    ]
    config = folder / "nginx.conf"
    config.write_text(
        f"pid {folder}/pid;\nerror_log {folder}/error.log;\nevents {{}}\n"
        f"http {{\naccess_log off;\n{' '.join(paths)}\n{server}\n}}\n"
    )
    command = [str(NGINX), "-p", str(folder), "-e", str(folder / "error.log"), "-c", str(config)]
    subprocess.run([*command, "-t"], check=True, capture_output=True)
    with killed_at_end(subprocess.Popen([*command, "-g", "daemon off;"])) as process:
        try:
            yield f"http://{address}"
        finally:
            process.terminate()  # nginx ends its workers then
            process.wait(WAIT_LIMIT)


async def ready(http: aiohttp.ClientSession, url: str) -> None:
    while True:
        try:
            async with http.get(f"{url}/v1/models") as response:
                assert response.status == 200
                return
        except aiohttp.ClientConnectionError:
            await asyncio.sleep(0.02)


@asynccontextmanager
async def behind_nginx(folder: Path, upstream: Upstream, *options: str) -> AsyncIterator[str]:
    async with listening(upstream) as url:
        served = serving("--engine", "openai", "--upstream", url, *options)
        weir = await asyncio.to_thread(served.__enter__)
        try:
            with nginx(weir, folder) as address:
                async with aiohttp.ClientSession() as http:
                    await ready(http, address)
                yield f"{address}/v1/chat/completions"
        finally:
            await asyncio.to_thread(served.__exit__, None, None, None)


@asynccontextmanager
async def streaming(http: aiohttp.ClientSession, url: str) -> AsyncIterator[aiohttp.ClientResponse]:
    """A stream of which the first word has come."""
    async with http.post(url, json=CHAT) as response:
        assert response.status == 200, await response.text()
        async for line in response.content:
            if b"one" in line:
                break
        yield response


def client(address: str = "127.0.0.1") -> aiohttp.ClientSession:
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(local_addr=(address, 0)))


async def test_text_arrives_while_the_model_goes_on(tmp_path: Path) -> None:
    upstream = Upstream()
    async with behind_nginx(tmp_path, upstream) as url, client() as http:
        async with streaming(http, url) as response:
            upstream.may_go_on.set()
            rest = await response.text()
    assert "two" in rest
    assert rest.endswith("data: [DONE]\n\n")


async def test_a_client_that_leaves_ends_the_upstreams_work(tmp_path: Path) -> None:
    upstream = Upstream()
    async with behind_nginx(tmp_path, upstream) as url, client() as http:
        async with streaming(http, url) as response:
            response.close()
        await upstream.was_left.wait()


async def test_limits_count_the_clients_of_nginx_one_by_one(tmp_path: Path) -> None:
    upstream = Upstream()
    options = ["--trusted-forwarder", "127.0.0.1", "--max-connections", "3"]
    async with behind_nginx(tmp_path, upstream, *options) as url:
        async with client("127.0.0.2") as one, client("127.0.0.3") as other, streaming(one, url):
            forged = {"X-Forwarded-For": "127.0.0.9"}
            async with one.post(url, json=CHAT, headers=forged) as response:
                assert response.status == 429
            async with streaming(other, url):
                upstream.may_go_on.set()
