"""An image of `deploy/image.sh`, built for real, and what runs in it without rights on a read-only root.

It needs root or user namespaces, mmdebstrap and bubblewrap: `make test-image`.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from benchmarks.relay import free_port
from tests.processes import WAIT_LIMIT
from tests.weir import ROOT

USER = 10001
DATA = "/var/lib/weir"
STORE = f"sqlite:///{DATA}/weir.sqlite"
ADMIN = {"Authorization": "Bearer an-admin-key-of-the-test"}
SECRET = "maria.keller@northbank.com"
SLOWLY = "Slowly: whom do I write to?"
"""The model says its first piece, and waits."""


@dataclass(frozen=True)
class Server:
    """A server that runs in the image."""

    url: str
    process: Process
    """Of bubblewrap, which ends as the server does."""

    @property
    def pid(self) -> int:
        """The server's process, as the host has it: bubblewrap's last child."""
        pid = self.process.pid
        while children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            pid = int(children[0])
        return pid

    @property
    def data(self) -> Path:
        """The folder that the server may write to, as the host has it."""
        return Path(f"/proc/{self.pid}/root{DATA}")

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)


@dataclass(frozen=True)
class Image:
    """An unpacked image."""

    root: Path
    data: Path
    """What is `/var/lib/weir` inside."""
    disk: int | None = None
    """Bytes of a disk in memory that is `/var/lib/weir` instead."""
    program: Sequence[str] = ("weir",)
    """Another Weir than that of the image."""
    more: Sequence[str] = ()
    """More options of bubblewrap."""

    def command(self, *arguments: str) -> list[str]:
        """A command in the image: as its user, with no other variable, and with one folder to write to."""
        data = f"--bind {self.data} {DATA}" if self.disk is None else f"--size {self.disk} --tmpfs {DATA}"
        options = f"""--ro-bind {self.root} / --proc /proc --dev /dev --tmpfs /tmp {data} --chdir {DATA}
            --die-with-parent --unshare-user --unshare-pid --unshare-ipc --uid {USER} --gid {USER}
            --clearenv --setenv PATH /opt/weir/bin:/usr/bin:/bin --setenv HOME {DATA}"""
        return ["bwrap", *options.split(), *self.more, *arguments]

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(self.command(*arguments), capture_output=True, text=True)

    @asynccontextmanager
    async def serving(self, *options: str, port: int | None = None) -> AsyncIterator[Server]:
        port = port or free_port()
        command = self.command(*self.program, "serve", "--port", str(port), *options)
        process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=2)
        assert process.stdout is not None
        scheme = "https" if "--ssl-certfile" in options else "http"
        server = Server(f"{scheme}://127.0.0.1:{port}", process)
        try:
            async with asyncio.timeout(WAIT_LIMIT):
                while not (line := await process.stdout.readline()).startswith(b"Weir serves"):
                    assert line, "the server ended"
            yield server
        finally:
            with suppress(ProcessLookupError, FileNotFoundError):  # it has ended
                server.send(signal.SIGTERM)
            await process.communicate()


@pytest.fixture(scope="session", params=["bookworm", "trixie"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The image's root."""
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
    yield folder / "root"
    subprocess.run(["rm", "-rf", str(folder)], check=True)


@pytest.fixture
def image(built: Path, tmp_path: Path) -> Image:
    """The image with an empty folder to write to."""
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o777)  # the user of the image is another one than that of the tests
    return Image(built, data)


@dataclass(frozen=True)
class Upstream:
    """A model that says an e-mail address in pieces."""

    url: str
    goes_on: asyncio.Event
    """Set, it ends answers that wait."""

    @property
    def options(self) -> list[str]:
        admin_key = ADMIN["Authorization"].removeprefix("Bearer ")
        return [
            *("--engine", "openai", "--upstream", self.url, "--hook", "pii"),
            *("--store", STORE, "--admin-key", admin_key),
        ]


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    goes_on = asyncio.Event()

    async def answer(request: web.Request) -> web.StreamResponse:
        is_slow = (await request.json())["messages"][-1]["content"] == SLOWLY
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for i, text in enumerate(("Write to ", SECRET[:8], SECRET[8:], " today.")):
            if i == 1 and is_slow:
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
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield Upstream(f"http://127.0.0.1:{runner.addresses[0][1]}/v1", goes_on)
    await runner.cleanup()


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session
