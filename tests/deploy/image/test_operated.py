"""Weir in an image, as operators run it: its end, an upgrade, a backup, a certificate, a store that fails."""

import asyncio
import json
import re
import signal
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import trustme

from benchmarks.relay import free_port
from tests.deploy.image.conftest import ADMIN, DATA, SLOWLY, STORE, Image, Server, Upstream
from tests.processes import WAIT_LIMIT
from tests.proxy.network.test_tls import Files
from tests.weir import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

Http = aiohttp.ClientSession


LIBRARIES_OF_EARLIER = ("pydantic-settings>=2.8,<3", "python-dotenv")
"""What the latest release needs and this Weir does not."""


async def comes(is_so: Callable[[], Awaitable[Any]]) -> None:
    async with asyncio.timeout(WAIT_LIMIT):
        while not await is_so():
            await asyncio.sleep(0.01)


def assert_whole(stream: str) -> None:
    """A guarded stream, from its first piece to its end."""
    *events, end = re.findall(r"^data: (.*)$", stream, re.MULTILINE)
    deltas = [choice["delta"] for event in events for choice in json.loads(event)["choices"]]
    assert "".join(delta.get("content") or "" for delta in deltas) == "Write to [EMAIL_ADDRESS] today."
    assert end == "[DONE]"


def asking(content: str = "Whom do I write to?", key: str = "none", **options: Any) -> dict[str, Any]:
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": content}]}
    return {"json": body, "headers": {"Authorization": f"Bearer {key}", "Connection": "close"}, **options}


async def ask(http: Http, server: Server, key: str = "none", **options: Any) -> None:
    async with http.post(f"{server.url}/v1/chat/completions", **asking(key=key, **options)) as response:
        assert response.status == 200, await response.text()
        assert_whole(await response.text())


async def refusal(http: Http, server: Server, key: str) -> int:
    async with http.post(f"{server.url}/v1/chat/completions", **asking(key=key)) as response:
        return response.status


@asynccontextmanager
async def open_stream(
    http: Http, server: Server, key: str = "none", **options: Any
) -> AsyncIterator[Callable[[], Awaitable[str]]]:
    """A stream that has begun. What is yielded reads all of it."""
    url = f"{server.url}/v1/chat/completions"
    async with http.post(url, **asking(SLOWLY, key, **options)) as response:
        begun = (await response.content.readline()).decode()

        async def whole() -> str:
            return begun + await response.text()

        yield whole


async def status_of(http: Http, url: str, **options: Any) -> int | None:
    """None: it does not listen."""
    try:
        async with http.get(url, headers={"Connection": "close"}, **options) as response:
            return response.status
    except aiohttp.ClientConnectionError:
        return None


async def make_key(http: Http, server: Server, name: str) -> tuple[int, Mapping[str, Any]]:
    async with http.post(f"{server.url}/admin/keys", json={"name": name}, headers=ADMIN) as response:
        return response.status, await response.json()


async def key_of(http: Http, server: Server, name: str) -> str:
    status, made = await make_key(http, server, name)
    assert status == 201, made
    return str(made["key"])


async def test_it_serves_while_a_balancer_learns_that_it_ends(
    image: Image, upstream: Upstream, http: Http
) -> None:
    async with image.serving(*upstream.options, "--drain-delay", "3600") as server:
        assert await status_of(http, f"{server.url}/ready") == 200
        async with open_stream(http, server) as whole:
            server.send(signal.SIGTERM)

            async def is_unready() -> bool:
                return await status_of(http, f"{server.url}/ready") == 503

            await comes(is_unready)
            await ask(http, server)
            upstream.goes_on.set()
            assert_whole(await whole())
        server.send(signal.SIGTERM)  # a second one ends it at once
        assert await server.process.wait() == 1


async def test_another_version_takes_its_place_while_its_streams_end(
    image: Image, upstream: Upstream, http: Http, earlier: Image
) -> None:
    port = free_port()
    async with earlier.serving(*upstream.options, port=port) as old:
        key = await key_of(http, old, "alice")
        async with open_stream(http, old, key) as whole:
            old.send(signal.SIGTERM)

            async def is_free() -> bool:
                return await status_of(http, f"{old.url}/ready") is None

            await comes(is_free)
            async with image.serving(*upstream.options, port=port) as new:
                await ask(http, new, key)
                assert old.process.returncode is None
                upstream.goes_on.set()
                assert_whole(await whole())
                assert await old.process.wait() == 0
                assert await status_of(http, f"{new.url}/ready") == 200


@pytest.fixture(scope="session")
def earlier_packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages of the latest release, installed from their wheel."""
    git = ["git", "-C", str(ROOT)]
    log = [*git, "log", "-1", "--format=%H", "--grep", r"^Release [0-9.]*$"]
    commit = subprocess.run(log, capture_output=True, text=True, check=True).stdout.strip()
    if not commit:
        pytest.skip("this checkout has no history")
    folder = tmp_path_factory.mktemp("earlier")
    source, packages = folder / "source", folder / "packages"
    source.mkdir()
    archive = subprocess.run([*git, "archive", commit], capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", str(source)], input=archive, check=True)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    target = ["install", "--no-deps", "--target", str(packages)]
    subprocess.run([*pip, *target, str(source), *LIBRARIES_OF_EARLIER], check=True)
    return packages


@pytest.fixture
def earlier(image: Image, earlier_packages: Path) -> Image:
    """The image with the latest release in it, on the same libraries."""
    options = ["--ro-bind", str(earlier_packages), "/tmp/earlier", "--setenv", "PYTHONPATH", "/tmp/earlier"]
    return replace(image, program=("python", "-m", "proxy"), more=options)


async def test_a_store_is_backed_up_while_it_is_used_and_restored_after_it_is_lost(
    image: Image, upstream: Upstream, http: Http
) -> None:
    backup = f"{DATA}/copy.sqlite"
    async with image.serving(*upstream.options) as server:
        key = await key_of(http, server, "alice")
        made = image.run("weir", "store", "backup", backup, "--store", STORE)
        assert made.returncode == 0, made.stderr
    for file in image.data.glob("weir.sqlite*"):
        file.unlink()
    restored = image.run("weir", "store", "restore", backup, "--store", STORE)
    assert restored.returncode == 0, restored.stderr
    assert "1 valid" in restored.stdout
    async with image.serving(*upstream.options) as server:
        await ask(http, server, key)
        assert await refusal(http, server, "of-nobody") == 401


async def test_a_certificate_is_renewed_without_a_restart(
    image: Image, upstream: Upstream, http: Http
) -> None:
    files = Files(image.data, trustme.CA())
    trusted = files.client()
    tls = ["--ssl-certfile", f"{DATA}/cert.pem", "--ssl-keyfile", f"{DATA}/key.pem"]
    async with image.serving(*upstream.options, *tls) as server:
        before = await shown_certificate(server, trusted)
        async with open_stream(http, server, ssl=trusted) as whole:
            files.issue()
            server.send(signal.SIGHUP)

            async def is_new() -> bool:
                return await shown_certificate(server, trusted) != before

            await comes(is_new)
            await ask(http, server, ssl=trusted)
            upstream.goes_on.set()
            assert_whole(await whole())


async def shown_certificate(server: Server, trusted: ssl.SSLContext) -> bytes:
    host, port = server.url.removeprefix("https://").split(":")
    _, writer = await asyncio.open_connection(host, int(port), ssl=trusted)
    found: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    return found


async def test_a_full_disk_stops_no_stream_and_loses_no_decision(
    image: Image, upstream: Upstream, http: Http
) -> None:
    small = replace(image, disk=4 * 2**20)
    async with small.serving(*upstream.options) as server:
        key = await key_of(http, server, "alice")
        rest = server.data / "rest"
        fill(rest)
        for _ in range(3):
            await ask(http, server, key)
        status, told = await make_key(http, server, "bob")
        assert status == 503, told
        rest.unlink()

        async def has_decisions() -> bool:
            async with http.get(f"{server.url}/admin/decisions", headers=ADMIN) as response:
                return len((await response.json())["data"]) == 3

        await comes(has_decisions)
        await key_of(http, server, "bob")


def fill(file: Path) -> None:
    """Write until the disk is full."""
    with file.open("wb", buffering=0) as out:
        try:
            while True:
                out.write(bytes(4096))
        except OSError:
            return


async def test_a_server_whose_store_is_gone_lets_nobody_in_who_had_no_key(
    image: Image, upstream: Upstream, http: Http
) -> None:
    options = [*upstream.options, "--api-key", "of-the-settings"]
    async with image.serving(*options) as server:
        key = await key_of(http, server, "alice")
        for file in image.data.glob("weir.sqlite*"):
            file.unlink()
        await ask(http, server, key)
        assert await refusal(http, server, "of-nobody") == 401
    async with image.serving(*options) as server:
        assert await refusal(http, server, key) == 401, "a new store knows no key"
        await ask(http, server, "of-the-settings")


def test_a_server_whose_stores_folder_is_gone_does_not_start(image: Image) -> None:
    away = image.run("weir", "serve", "--engine", "echo", "--store", "sqlite:////var/lib/gone/weir.sqlite")
    assert away.returncode == 1
    assert "store: /var/lib/gone/weir.sqlite cannot be opened: No such file or directory" in away.stderr
