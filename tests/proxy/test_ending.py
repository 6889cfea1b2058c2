"""The end of a service: in its own time, whatever clients, hooks and the engine do."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import Delta
from hooks import Chunk, Verdict, emit
from proxy.http.app import Ending
from tests.helpers import Script, ScriptedEngine, make_deltas, until
from tests.processes import WAIT_LIMIT
from tests.proxy.cli.conftest import weir
from tests.proxy.conftest import CHAT, Serve, hello
from tests.serving import url_of
from tests.weir import PipedWeir

CHATS = "/v1/chat/completions"
PATIENT = Ending(drain=0.1, notify=0.2, close=600.0, leave=600.0)
"""Nothing is given up because the machine is slow."""


class EndlessEngine(ScriptedEngine):
    """As one whose step does not end."""

    async def aclose(self) -> None:
        await asyncio.Event().wait()


class Endless:
    """A hook whose `close` does not end."""

    async def __call__(self, chunk: Chunk) -> Verdict:
        return emit(chunk.pending)

    async def close(self) -> None:
        await asyncio.Event().wait()


def ask(stack: ExitStack, url: str, body: bytes, length: int | None = None) -> socket.socket:
    """A client that has sent a request and reads nothing."""
    sock = stack.enter_context(socket.socket())
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    address = urlsplit(url)
    sock.connect((address.hostname, address.port))
    head = f"POST {CHATS} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    sock.sendall(f"{head}Content-Length: {length or len(body)}\r\n\r\n".encode() + body)
    return sock


async def test_a_server_stops_though_its_engine_and_a_hook_do_not(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    engine = EndlessEngine(lambda r: [Delta(text="a"), asyncio.Event()])
    client = await serve(engine, Endless(), shutdown_timeout=0)
    async with client.http.post(client.url + CHATS, json={**CHAT, "stream": True}) as response:
        await response.content.readline()
        await client.server.stop()
    told = told_of(caplog)
    # On a machine that is too slow for the other parts of the ending, they are told of in between.
    assert (told[0], told[-1]) == ("the engine did not end in time", "the hooks did not end in time")


def told_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if "did not end in time" in record.message]


ENDPOINTS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": (CHATS, CHAT),
    "completions": ("/v1/completions", {"prompt": "a", "max_tokens": 5}),
    "responses": ("/v1/responses", {"input": "a"}),
    "messages": ("/v1/messages", {**CHAT, "model": "m", "max_tokens": 5}),
}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("endpoint", ENDPOINTS)
async def test_requests_that_the_server_ends_are_counted_apart(
    serve: Serve, endpoint: str, stream: bool
) -> None:
    """Those that wait for the engine, and those that wait for a hook and lose their clients."""

    class Holds:
        async def __call__(self, chunk: Chunk) -> Verdict:
            if chunk.text_diff == "b":
                await asyncio.Event().wait()
            return emit(chunk.pending)

    texts = iter("ab")
    engine = ScriptedEngine(lambda r: [Delta(text=next(texts)), asyncio.Event()])
    client = await serve(engine, Holds(), hook_timeout=600.0)
    client.server.ending = PATIENT
    path, body = ENDPOINTS[endpoint]
    asking = [
        asyncio.get_running_loop().create_task(client.post(path, {**body, "stream": stream})) for _ in "ab"
    ]
    await until(lambda: engine.running == 2)
    await client.server.stop()
    await asyncio.gather(*asking, return_exceptions=True)
    told = (await client.server.service.metrics.render()).decode()
    found = {line.split("{")[1] for line in told.splitlines() if line.startswith("weir_requests_total{")}
    assert found == {f'endpoint="{endpoint}",outcome="shutdown"}} 2.0'}


async def test_an_engine_that_does_not_end_alone_is_told_of(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    engine = EndlessEngine(lambda r: [Delta(text="a"), asyncio.Event()])
    client = await serve(engine, Script(lambda c: emit(c.pending)))
    client.server.ending = PATIENT
    async with client.http.post(client.url + CHATS, json={**CHAT, "stream": True}) as response:
        await response.content.readline()
        await client.server.stop()
    assert not engine.running
    assert told_of(caplog) == ["the engine did not end in time"]


@pytest.mark.parametrize("stream", [True, False])
async def test_a_server_stops_though_clients_do_not_read(serve: Serve, stream: bool) -> None:
    engine = ScriptedEngine(lambda r: make_deltas(["x" * 100_000] * 200))
    client = await serve(engine)
    client.server.ending = PATIENT
    with ExitStack() as stack:
        for _ in range(3):
            ask(stack, client.url, orjson.dumps({**CHAT, "stream": stream}))
        await until(lambda: len(engine.requests) == 3)
        await client.server.stop()
        assert len(client.server.connections) == 0
        assert not engine.running


async def test_a_server_stops_though_bodies_and_headers_are_not_complete(serve: Serve) -> None:
    client = await serve(ScriptedEngine(hello), body_idle_timeout=3600)
    client.server.ending = PATIENT
    with ExitStack() as stack:
        for _ in range(3):
            ask(stack, client.url, b"{", length=1000)
        await until(lambda: len(client.server.connections) == 3)
        await client.server.stop()
        assert len(client.server.connections) == 0


@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_that_is_being_read_arrives_whole(serve: Serve, stream: bool) -> None:
    text = "x" * 100_000
    client = await serve(ScriptedEngine(lambda r: make_deltas([text] * 100)))
    async with client.http.post(client.url + CHATS, json={**CHAT, "stream": stream}) as response:
        stopping = asyncio.get_running_loop().create_task(client.server.stop())
        await until(client.server.service.stopping.is_set)
        size = 0
        async for data in response.content.iter_chunked(200_000):
            size += len(data)
            await asyncio.sleep(0)
    await stopping
    assert size > 100 * len(text)


@given(st.floats(0, 1e6))
def test_the_parts_of_an_ending_fit_in_the_timeout(timeout: float) -> None:
    ending = Ending.within(timeout)
    assert 0 <= ending.drain <= ending.notify <= ending.close <= ending.leave == max(timeout, 2.0)
    assert timeout - 3.0 <= ending.drain <= timeout


NEVER_ENDS = """
import asyncio, contextlib, threading, time
from hooks import emit

class NeverEnds:
    async def __call__(self, chunk):
        while chunk.request_id != "weir-self-test":
            open(__file__ + ".called", "w").close()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(3600)
        return emit(chunk.pending)

class KeepsThread:
    def __init__(self):
        threading.Thread(target=time.sleep, args=(3600,)).start()
    def __call__(self, chunk):
        return emit(chunk.pending)
"""


def ends_by(ending: Ending, last: float = 600.0, flush: float = 600.0) -> str:
    """Code that gives a service this ending. `last`: seconds after `leave`; then a process ends whose Python
    code cannot run. `flush`: seconds for the last lines of the log."""
    return f"""
from proxy.http import app
from proxy.workers import signals
from proxy.telemetry import logs

signals._LAST = {last}
logs.FLUSH_SECONDS = {flush}
app.Ending.within = lambda timeout: app.Ending(*{astuple(ending)})
"""


WAITS = ends_by(PATIENT)
AT_ONCE = replace(PATIENT, leave=0.5)
LEAVES = ends_by(AT_ONCE)


@contextmanager
def served(*options: str, engine: str = "echo", before: str = WAITS) -> Iterator[tuple[PipedWeir, str]]:
    with weir("serve", "--engine", engine, "--port", "0", *options, before=before) as process:
        yield process, url_of(process)


async def ended(process: PipedWeir) -> str:
    """The log after SIGTERM. Waits until the process has ended by itself."""
    process.send_signal(signal.SIGTERM)
    _, log = await asyncio.to_thread(process.communicate, None, WAIT_LIMIT)
    assert process.returncode == 0
    return log


async def test_no_hook_is_blamed_for_clients() -> None:
    with served() as (process, url), ExitStack() as stack:
        prompt = orjson.dumps({"messages": [{"role": "user", "content": "word " * 100_000}]})
        for _ in range(3):
            ask(stack, url, prompt)
            ask(stack, url, b"{", length=1000)
        log = await ended(process)
    assert "hook" not in log
    assert "Traceback" not in log


async def test_a_hook_that_does_not_end_is_told_of_and_left(tmp_path: Path) -> None:
    (tmp_path / "guards.py").write_text(NEVER_ENDS)
    hook = ("--hook", f"{tmp_path}/guards.py:NeverEnds")
    with served(*hook, before=ends_by(replace(PATIENT, close=1.0))) as (process, url), ExitStack() as stack:
        ask(stack, url, orjson.dumps({"messages": CHAT["messages"]}))
        await until((tmp_path / "guards.py.called").exists)
        log = await ended(process)
    assert "a hook does not end; leaving without it" in log


async def test_a_thread_that_does_not_end_does_not_keep_the_process(tmp_path: Path) -> None:
    (tmp_path / "guards.py").write_text(NEVER_ENDS)
    hook = ("--hook", f"{tmp_path}/guards.py:KeepsThread")
    with served(*hook, before=LEAVES) as (process, _):
        assert "not everything ended in time" in await ended(process)


BLOCKS = """
import re, sys, time
from hooks import emit

class Blocks:
    def __init__(self, how):
        self.how = getattr(self, how)
    def __call__(self, chunk):
        if chunk.request_id != "weir-self-test":
            open(__file__ + ".called", "w").close()
            self.how()
        return emit(chunk.pending)
    def sleeps(self):
        time.sleep(3600)
    def is_busy(self):
        while True:
            pass
    def keeps_the_lock(self):
        re.match("(a*)*b", "a" * 1000)
    def fills_the_log(self):
        sys.stderr.write("x" * 10_000_000)
"""


@contextmanager
def blocked(
    folder: Path, how: str, *, before: str = LEAVES, engine: str = "echo", **fields: Any
) -> Iterator[PipedWeir]:
    """A service whose hook holds the event loop for ever, and a request with these fields."""
    (folder / "guards.py").write_text(BLOCKS)
    (folder / "weir.yaml").write_text(
        f"hooks:\n  - path: {folder}/guards.py:Blocks\n    args: {{how: {how}}}\n"
    )
    options = ("--config", f"{folder}/weir.yaml")
    with served(*options, engine=engine, before=before) as (process, url), ExitStack() as stack:
        ask(stack, url, orjson.dumps({"messages": CHAT["messages"], **fields}))
        yield process


@pytest.mark.parametrize("how", ["sleeps", "is_busy"])
async def test_a_hook_that_holds_the_event_loop_does_not_keep_the_process(tmp_path: Path, how: str) -> None:
    with blocked(tmp_path, how) as process:
        await until((tmp_path / "guards.py.called").exists)
        assert "not everything ended in time" in await ended(process)


@pytest.mark.parametrize(
    ("how", "last", "flush", "status"),
    [("keeps_the_lock", 0.1, 600.0, 1), ("fills_the_log", 600.0, 0.1, 0)],
    ids=["keeps_the_lock", "fills_the_log"],
)
async def test_a_hook_that_lets_no_python_code_run_or_no_line_be_logged_does_not_keep_the_process(
    tmp_path: Path, how: str, last: float, flush: float, status: int
) -> None:
    """The log has a thread of its own: where it alone is stuck, the process ends as any other late one."""
    with blocked(tmp_path, how, before=ends_by(AT_ONCE, last, flush)) as process:
        await until((tmp_path / "guards.py.called").exists)
        process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(process.wait, WAIT_LIMIT)
    assert process.returncode == status


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_ends_a_process_at_once_whose_event_loop_is_held(
    tmp_path: Path, number: int
) -> None:
    with blocked(tmp_path, "sleeps", before=WAITS) as process:
        await until((tmp_path / "guards.py.called").exists)
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(WAIT_LIMIT):
            while process.poll() is None:  # signals that wait to be handled may become one
                process.send_signal(number)
                await asyncio.sleep(0.01)
    assert process.returncode == 1


def children_of(pid: int) -> list[int]:
    """Those that any of its threads started."""
    lists = [file.read_text().split() for file in Path(f"/proc/{pid}/task").glob("*/children")]
    return [int(child) for children in lists for child in children]


@pytest.mark.skipif(sys.platform != "linux", reason="finds the workers in /proc")
async def test_a_closed_terminal_ends_neither_the_service_nor_its_workers() -> None:
    hook = ("--hook", "examples/upper_case.py:UpperCase", "--hook-workers", "1")
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under `nohup`
    with served(*hook) as (process, url):
        signal.signal(signal.SIGHUP, before)
        for pid in (process.pid, *children_of(process.pid)):
            os.kill(pid, signal.SIGHUP)
        async with aiohttp.ClientSession() as http:
            async with http.post(url + CHATS, json={"messages": CHAT["messages"]}) as response:
                answer = await response.json()
        log = await ended(process)
    assert answer["choices"][0]["message"]["content"] == "HI"
    assert "worker died" not in log
    assert "ERROR" not in log


@pytest.mark.skipif(sys.platform != "linux", reason="finds the children in /proc")
async def test_the_children_of_a_service_whose_event_loop_is_held_end_too(tmp_path: Path) -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "integer"}}}
    with blocked(tmp_path, "sleeps", engine="local", response_format=schema) as process:
        await until((tmp_path / "guards.py.called").exists)
        children = children_of(process.pid)
        assert children
        await ended(process)
        await until(lambda: not any(Path(f"/proc/{child}").exists() for child in children))
