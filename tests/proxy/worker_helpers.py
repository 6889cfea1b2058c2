"""Runs `weir serve --workers N`, and tells which of its processes has a connection."""

import asyncio
import http.client
import os
import re
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import aiohttp
import orjson

from engine.protocol import Delta, Usage
from engine.streams.recording import Recording, TimedDelta
from proxy.workers import worker_process
from proxy.workers.worker_process import MAX_SILENCE
from tests.helpers import make_request
from tests.processes import WAIT_LIMIT, killed_at_end
from tests.weir import PipedWeir

CHATS = "/v1/chat/completions"


@dataclass
class Workers:
    """A running `weir serve --workers N`."""

    process: PipedWeir
    log: Path
    url: str = ""

    def pids(self) -> dict[int, int]:
        """The process of each worker's number, the latest one."""
        serving = re.findall(r"worker (\d+) serves \(process (\d+)\)", self.log.read_text())
        return {int(number): int(pid) for number, pid in serving}

    def with_connection(self, port: int) -> int:
        """The process that has the connection from the client's `port`.

        The client of another server may have the same port. The kernel may list a connection twice while
        others come and go.
        """
        ends = [f":{int(self.url.rpartition(':')[2]):04X}", f":{port:04X}"]
        (inode,) = {
            line.split()[9]
            for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
            if [address[-5:] for address in line.split()[1:3]] == ends and line.split()[3] == "01"
        }
        socket = f"socket:[{inode}]"
        (pid,) = [pid for pid in self.pids().values() if socket in _open_files(pid)]
        return pid

    async def replaced(self, number: int, pid: int) -> None:
        """Wait until another process has the number of one that is gone."""
        while self.pids()[number] == pid:
            assert self.process.poll() is None, self.log.read_text()
            await asyncio.sleep(0.02)

    async def drains(self) -> None:
        """Wait until no process takes new connections."""
        host, port = self.url.removeprefix("http://").split(":")
        with suppress(OSError):
            while True:
                _, writer = await asyncio.open_connection(host, int(port))
                writer.close()
                await asyncio.sleep(0.01)


def _open_files(pid: int) -> set[str]:
    found = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.add(os.readlink(file))
        except OSError:
            continue
    return found


def _kill_after(max_silence: int) -> None:
    worker_process.MAX_SILENCE = max_silence


@contextmanager
def workers(
    folder: Path, *options: str, number: int = 2, max_silence: int = MAX_SILENCE
) -> Iterator[Workers]:
    """`folder` gets the log. The service is told to end, unless it has ended. `max_silence`: looks without a
    sign of a worker, after which the supervisor kills it."""
    log = folder / "log"
    command = ("serve", "--port", "0", "--workers", str(number), *options)
    with log.open("w") as stderr:
        before = partial(_kill_after, max_silence)
        process = PipedWeir(*command, log=stderr, before=before, own_session=True)
    with killed_at_end(process):
        try:
            assert process.stdout
            greeting = process.stdout.readline()
            assert " at " in greeting, log.read_text()
            yield Workers(process, log, greeting.split(" at ")[1].split("/v1")[0])
        finally:
            process.terminate()
            process.wait(WAIT_LIMIT)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def recorded(folder: Path, *, num_words: int = 2, seconds: float = 0.0) -> tuple[str, ...]:
    """The options of a replay that says so many words in so many seconds."""
    gap = seconds / num_words
    words = [TimedDelta(gap * i, Delta(text=f"w{i} ")) for i in range(num_words)]
    end = TimedDelta(seconds, Delta(finish_reason="stop", usage=Usage(1, num_words)))
    Recording(make_request(), (*words, end)).dump(folder / "words.jsonl")
    return "--engine", "replay", "--recordings", str(folder), "--replay-speed", "1"


WAITS = """
import asyncio
from pathlib import Path
from hooks import emit

class Waits:
    async def __call__(self, chunk):
        while chunk.is_final and chunk.request_id != "weir-self-test" and not Path(__file__ + ".go").exists():
            await asyncio.sleep(0.01)
        return emit(chunk.pending)
"""


def waiting(folder: Path) -> tuple[str, ...]:
    """The options of a replay whose streams end once `let_end` is called."""
    (folder / "waits.py").write_text(WAITS)
    return *recorded(folder), "--hook", f"{folder}/waits.py:Waits", "--hook-timeout", "600"


def let_end(folder: Path) -> None:
    """Let the streams of `waiting` end."""
    (folder / "waits.py.go").touch()


@dataclass
class Stream:
    """A streaming request that has begun, on a connection of its own."""

    response: aiohttp.ClientResponse
    pid: int
    """The process that serves it."""
    begun: bytes

    async def ended_well(self) -> bool:
        try:
            body = self.begun + await self.response.read()
        except aiohttp.ClientError:
            return False
        return body.endswith(b"data: [DONE]\n\n") and b"event: error" not in body


async def begin(session: aiohttp.ClientSession, service: Workers, **fields: object) -> Stream:
    """`session` must not reuse connections."""
    body = {"messages": [{"role": "user", "content": "Hi"}], "stream": True, **fields}
    response = await session.post(service.url + CHATS, json=body)
    assert response.status == 200, await response.read()
    begun = await response.content.readline()
    assert response.connection is not None
    assert response.connection.transport is not None
    port = response.connection.transport.get_extra_info("sockname")[1]
    return Stream(response, service.with_connection(port), begun)


Ask = Callable[..., tuple[int, bytes]]


@contextmanager
def asker(service: Workers, pid: int) -> Iterator[Ask]:
    """Asks one process, over one connection: `ask(method, path, json)` gives status and body."""
    while True:
        connection = http.client.HTTPConnection(service.url.removeprefix("http://"))

        def ask(method: str, path: str, body: object = None) -> tuple[int, bytes]:
            headers = {"Content-Type": "application/json"}
            connection.request(method, path, None if body is None else orjson.dumps(body), headers)  # noqa: B023
            response = connection.getresponse()  # noqa: B023
            return response.status, response.read()

        with closing(connection):
            ask("GET", "/health")
            if service.with_connection(connection.sock.getsockname()[1]) == pid:
                yield ask
                return
