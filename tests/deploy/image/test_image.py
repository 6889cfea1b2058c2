"""The image of `deploy/image.sh`, built for real and run without rights on a read-only root.

It needs root or user namespaces, mmdebstrap and bubblewrap: `make test-image`.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from benchmarks.relay import free_port
from tests.weir import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

USER = 10001
STORE = "sqlite:////var/lib/weir/weir.sqlite"
SECRET = "maria.keller@northbank.com"


class Image:
    """An unpacked image, and what runs in it."""

    def __init__(self, root: Path, data: Path) -> None:
        self.root = root
        self.data = data

    def command(self, *arguments: str) -> list[str]:
        """A command in the image: as its user, with no other variable, and with one folder to write to."""
        sandbox = [
            "bwrap",
            "--ro-bind",
            str(self.root),
            "/",
            "--proc",
            "/proc",
            "--dev",
            "/dev",
            "--tmpfs",
            "/tmp",
        ]
        sandbox += [
            "--bind",
            str(self.data),
            "/var/lib/weir",
            "--chdir",
            "/var/lib/weir",
            "--die-with-parent",
        ]
        sandbox += [
            "--unshare-user",
            "--unshare-pid",
            "--unshare-ipc",
            "--uid",
            str(USER),
            "--gid",
            str(USER),
        ]
        sandbox += [
            "--clearenv",
            "--setenv",
            "PATH",
            "/opt/weir/bin:/usr/bin:/bin",
            "--setenv",
            "HOME",
            "/var/lib/weir",
        ]
        return [*sandbox, *arguments]

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(self.command(*arguments), capture_output=True, text=True)

    @asynccontextmanager
    async def serving(self, *options: str) -> AsyncIterator[tuple[str, int]]:
        """The URL of a server in the image, and its process as the host has it."""
        port = free_port()
        command = self.command("weir", "serve", "--port", str(port), *options)
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, stderr=2)
        assert process.stdout is not None
        try:
            async with asyncio.timeout(60):
                while not (line := await process.stdout.readline()).startswith(b"Weir serves"):
                    assert line, "the server ended"
            yield f"http://127.0.0.1:{port}", _innermost(process.pid)
        finally:
            if process.returncode is None:
                os.kill(_innermost(process.pid), signal.SIGTERM)
            await process.communicate()


def _innermost(pid: int) -> int:
    """The server's process: bubblewrap's last child."""
    while children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        pid = int(children[0])
    return pid


@pytest.fixture(scope="module", params=["bookworm", "trixie"])
def image(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    folder = tmp_path_factory.mktemp("image")
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)],
        check=True,
    )
    (wheel,) = folder.glob("*.whl")
    command = [str(ROOT / "deploy/image.sh"), str(wheel), str(folder / "weir.tar")]
    subprocess.run(command, check=True, env={**os.environ, "SUITE": request.param})
    (folder / "root").mkdir()
    subprocess.run(["tar", "-xf", str(folder / "weir.tar"), "-C", str(folder / "root")], check=True)
    (folder / "data").mkdir(mode=0o777)
    (folder / "data").chmod(0o777)  # the user of the image is another one than that of the tests
    yield Image(folder / "root", folder / "data")
    subprocess.run(["rm", "-rf", str(folder)], check=True)


@pytest.fixture
async def upstream() -> AsyncIterator[tuple[str, asyncio.Event]]:
    """A model that says an e-mail address in pieces. It goes on when the event is set."""
    goes_on = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for i, text in enumerate(("Write to ", SECRET[:8], SECRET[8:], " today.")):
            if i == 1:
                await goes_on.wait()
            choice: dict[str, Any] = {"index": 0, "delta": {"content": text}, "finish_reason": None}
            await response.write(b"data: " + json.dumps({"id": "x", "choices": [choice]}).encode() + b"\n\n")
        end = {"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
        await response.write(b"data: " + json.dumps(end).encode() + b"\n\ndata: [DONE]\n\n")
        return response

    async def models(request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": "m", "object": "model"}]})

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    app.router.add_get("/v1/models", models)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1", goes_on
    await runner.cleanup()


BODY = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "Whom do I write to?"}]}


def options(url: str) -> list[str]:
    return [
        "--engine",
        "openai",
        "--upstream",
        url,
        "--hook",
        "pii",
        "--store",
        STORE,
        "--admin-key",
        "an-admin-key-of-the-test",
    ]


async def test_it_serves_a_guarded_stream(image: Image, upstream: tuple[str, asyncio.Event]) -> None:
    url, goes_on = upstream
    goes_on.set()
    async with image.serving(*options(url)) as (weir, _), aiohttp.ClientSession() as http:
        async with http.post(f"{weir}/v1/chat/completions", json=BODY) as response:
            text = await response.text()
        assert response.status == 200
    assert "[EMAIL_ADDRESS]" in text
    assert SECRET not in text
    assert text.endswith("data: [DONE]\n\n")


async def test_it_ends_after_its_streams(image: Image, upstream: tuple[str, asyncio.Event]) -> None:
    url, goes_on = upstream
    async with image.serving(*options(url)) as (weir, pid), aiohttp.ClientSession() as http:
        async with http.get(f"{weir}/ready") as ready:
            assert ready.status == 200
        async with http.post(f"{weir}/v1/chat/completions", json=BODY) as response:
            first = await response.content.readline()
            os.kill(pid, signal.SIGTERM)
            async with asyncio.timeout(20):
                while await _status(http, f"{weir}/ready") == 200:
                    await asyncio.sleep(0)
            goes_on.set()
            rest = await response.text()
        assert (first.decode() + rest).endswith("data: [DONE]\n\n")


async def _status(http: aiohttp.ClientSession, url: str) -> int:
    try:
        async with http.get(url) as response:
            return response.status
    except aiohttp.ClientError:  # it listens no more
        return 0


def test_it_runs_without_rights_on_a_root_that_it_cannot_write(image: Image) -> None:
    assert image.run("id", "-u").stdout.strip() == str(USER)
    for place in ("/opt/weir/x", "/etc/x", "/usr/x"):
        assert "Read-only" in image.run("python", "-c", f"open({place!r}, 'w')").stderr
    assert image.run("sh", "-c", "echo kept > /var/lib/weir/x && cat /var/lib/weir/x").stdout == "kept\n"


def test_it_has_nothing_that_installs_or_raises_rights(image: Image) -> None:
    found = image.run("sh", "-c", "find / -xdev -perm /6000 -type f; command -v gcc pip apt curl wget").stdout
    assert found == ""


def test_it_says_what_is_inside(image: Image) -> None:
    said = image.run("weir", "--version", "--verbose").stdout
    assert "files: as built" in said
    packages = (image.root / "opt/weir/debian-packages.txt").read_text().splitlines()
    assert any(line.startswith("python3-minimal\t") for line in packages)


async def test_a_store_is_backed_up_and_restored(image: Image, upstream: tuple[str, asyncio.Event]) -> None:
    upstream[1].set()
    async with image.serving(*options(upstream[0])) as (weir, _), aiohttp.ClientSession() as http:
        async with http.post(f"{weir}/v1/chat/completions", json=BODY) as response:
            await response.text()
    backup = image.run("weir", "store", "backup", "/var/lib/weir/copy.sqlite", "--store", STORE)
    assert backup.returncode == 0, backup.stderr
    again = image.run("weir", "store", "restore", "/var/lib/weir/copy.sqlite", "--store", STORE)
    assert again.returncode == 0, again.stderr
    assert "decisions" in again.stdout
