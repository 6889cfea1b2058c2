"""What Weir costs between a client and an upstream, beside a bare relay: `make bench NAME=relay`.

    python -m benchmarks.relay [--streams 64] [--steps 5 20 50] [--texts prose code json markdown bursts]
        [--at-once] [--rounds 5] [--also NAME=COMMAND]

A local upstream streams chats of one-token chunks, one chunk of every stream each `step` milliseconds: one
stream after another, or all of them `--at-once`, where a turn of the event loop serves many. In `bursts`,
eight chunks of prose come in one write, and eight times as seldom. The answers pass through one process at a
time: an aiohttp relay that parses and writes the JSON of each event, Weir without hooks, and Weir with
`phrases`, `pii` and `secrets`. Each process is measured once a round: the CPU time of a chunk, and the chunks
that come through. The relay runs under asyncio's event loop and under uvloop. Weir runs under uvloop, as it
does wherever that is installed. The slower the pace, the colder the processor's caches.

`--also` adds another process. `COMMAND` starts an OpenAI-compatible server, with `{port}` for the port to
listen on and `{upstream}` for the upstream's base URL.
"""

import argparse
import asyncio
import inspect
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import textwrap
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from importlib.metadata import distribution
from itertools import product
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import aiohttp
import orjson
from aiohttp import web

from benchmarks.guards import PROSE, phrase_list
from benchmarks.machine import processor
from benchmarks.workers import Result, Stream, measured_streams
from proxy.wire.openai.chat import ChatRequest
from proxy.workers import event_loop

CHAT = "/v1/chat/completions"
BODY = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
MODEL = re.compile(rb'"model": ?"(\w+)@([\d.]+)"')
"""A model's name says which text the upstream answers, and how many milliseconds are between two chunks."""
TEXTS = ("prose", "code", "json", "markdown", BURSTS := "bursts")
BURST = 8
"""Chunks of prose that come in one write, of `bursts`."""
CONTENT = re.compile(rb'"content": ?"((?:[^"\\]|\\.)*)"')
LENGTH = 400
"""Chunks of an answer."""
START_SECONDS = 120.0
_CATCH_UP = 0.01
"""Seconds."""
_NUM_FIRST = 2
"""Chunks that an answer begins with: the role, and the first word."""
PLAIN, GUARDED = "Weir without hooks", "Weir, three guards"
RELAY, FAST_RELAY = "aiohttp relay", "aiohttp relay, uvloop"


class Upstream(asyncio.Protocol):
    """One connection of the upstream. It answers at once with the first word. `step` sends the next."""

    def __init__(self, step: float, connections: "defaultdict[float, set[Upstream]]") -> None:
        """`step`: milliseconds between two writes, if a request says nothing else. `connections`: by it."""
        self._step = step
        self._connections = connections
        self._writes: Sequence[bytes] = ()
        self._request = b""
        self._position: int | None = None
        self._is_paused = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        for connections in self._connections.values():
            connections.discard(self)

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False

    def data_received(self, data: bytes) -> None:
        self._request += data
        head, end, body = self._request.partition(b"\r\n\r\n")
        if not end or len(body) < _content_length(head):
            return
        self._request = b""
        if head.startswith(b"POST"):
            self.answer(body)
        else:
            self.write_whole(orjson.dumps({"object": "list", "data": [{"id": "m", "object": "model"}]}))

    def answer(self, body: bytes) -> None:
        """Begin the answer to a request with this body."""
        asked = MODEL.search(body)
        text, step = (asked[1].decode(), float(asked[2])) if asked else ("prose", self._step)
        self.write_stream(answer_writes(text), step * BURST if text == BURSTS else step)

    def write_stream(self, writes: Sequence[bytes], step: float) -> None:
        """Write the first of `writes` now, and then one each `step` milliseconds."""
        self._writes = writes
        self._connections[step].add(self)
        self._transport.write(_head("text/event-stream", b"Transfer-Encoding: chunked") + writes[0])
        self._position = 1 if len(writes) > 1 else None

    def write_whole(self, body: bytes) -> None:
        """Write a JSON body at once."""
        self._transport.write(_head("application/json", b"Content-Length: %d" % len(body)) + body)

    def step(self) -> None:
        if self._position is None or self._is_paused:
            return
        self._transport.write(self._writes[self._position])
        self._position += 1
        if self._position == len(self._writes):
            self._position = None


def _content_length(head: bytes) -> int:
    fields = (line.partition(b":") for line in head.lower().split(b"\r\n"))
    return next((int(value) for name, _, value in fields if name == b"content-length"), 0)


def _head(content_type: str, field: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: " + content_type.encode() + b"\r\n" + field + b"\r\n\r\n"


class ChunkStream(Stream):
    """Counts the upstream's chunks by their characters, since one event may hold several chunks."""

    def __init__(
        self, host: str, port: int, fields: Mapping[str, Any] = BODY, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(host, port, fields, headers)
        asked = MODEL.search(orjson.dumps(fields))
        self._mean = mean_length(asked[1].decode() if asked else "prose")
        self._unread = b""

    def _count(self, data: bytes) -> float:
        events, _, self._unread = (self._unread + data).rpartition(b"\n\n")
        return sum(map(len, CONTENT.findall(events))) / self._mean


@cache
def pieces(text: str) -> list[str]:
    """The texts of an answer's chunks, as long as tokens."""
    words = re.findall(r" ?[A-Za-z]{1,8}|\d{1,3}|\n[ \t]*|[^\w\s]{1,3}|\s+|\w", _whole(text))
    return [words[i % len(words)] for i in range(LENGTH)]


def _whole(text: str) -> str:
    """A text of strangers: what is installed with Python and Weir's packages."""
    if text == "code":
        return inspect.getsource(textwrap)
    if text == "json":
        return orjson.dumps(ChatRequest.model_json_schema(), option=orjson.OPT_INDENT_2).decode()
    if text == "markdown":
        return (distribution("aiohttp").read_text("METADATA") or "").partition("\n\n")[2]
    return " ".join(["", *PROSE.split()])


@cache
def mean_length(text: str) -> float:
    """Characters of a chunk's text, with JSON's escapes."""
    return len(orjson.dumps("".join(pieces(text)))[1:-1]) / LENGTH


@cache
def answer_writes(text: str) -> list[bytes]:
    """What the upstream writes of an answer: at once, and then one by one."""
    frames = answer_frames(text)
    first, rest = frames[:_NUM_FIRST], frames[_NUM_FIRST:]
    size = BURST if text == BURSTS else 1
    return [b"".join(first), *(b"".join(rest[i : i + size]) for i in range(0, len(rest), size))]


def answer_frames(text: str, length: int = LENGTH) -> list[bytes]:
    """An answer as vLLM sends it, each event in an HTTP chunk of its own."""
    deltas = [{"role": "assistant", "content": ""}, *({"content": piece} for piece in pieces(text)[:length])]
    choices: list[dict[str, Any]] = [
        {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None} for delta in deltas
    ]
    choices.append({**choices[-1], "delta": {"content": ""}, "finish_reason": "stop", "stop_reason": None})
    usage = {"prompt_tokens": 9, "completion_tokens": length, "total_tokens": length + 9}
    events = [_chunk(choices=[choice]) for choice in choices] + [_chunk(choices=[], usage=usage), b"[DONE]"]
    frames = [b"data: " + event + b"\n\n" for event in events]
    return [b"%x\r\n%b\r\n" % (len(frame), frame) for frame in frames[:-1]] + [
        b"%x\r\n%b\r\n0\r\n\r\n" % (len(frames[-1]), frames[-1])
    ]


def _chunk(**fields: Any) -> bytes:
    names = {"id": "chatcmpl-5f0c2f6b6f4f4c7f", "object": "chat.completion.chunk", "created": 1700000000}
    return orjson.dumps({**names, "model": "m", **fields})


async def serve_upstream(step: float, *, at_once: bool, kind: type[Upstream] = Upstream) -> None:
    """Listen, print the base URL, and write to every stream at its pace: each `step` milliseconds, if its
    request says nothing else."""
    connections: defaultdict[float, set[Upstream]] = defaultdict(set)
    stepping: dict[float, asyncio.Task[None]] = {}
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: kind(step, connections), "127.0.0.1", 0)
    _print_url(server.sockets[0].getsockname()[1])
    while True:
        for pace in connections.keys() - stepping.keys():
            stepping[pace] = loop.create_task(_step_all(connections[pace], pace / 1000, at_once=at_once))
        await asyncio.sleep(0.01)


async def _step_all(connections: set[Upstream], step: float, *, at_once: bool) -> None:
    due = time.monotonic()
    while True:
        now = list(connections)
        if at_once or not now:
            due = await _after(due, step)
        for connection in now:
            if not at_once:
                due = await _after(due, step / len(now))
            connection.step()


async def _after(due: float, seconds: float) -> float:
    """Wait until `seconds` after `due`, or not if that is over. Returns the time that was waited for.

    Lost time is made up for, but for no more than `_CATCH_UP`.
    """
    due = max(due + seconds, time.monotonic() - _CATCH_UP)
    if seconds < 0.001:
        time.sleep(max(0.0, due - time.monotonic()))  # noqa: ASYNC251 - the loop's timers are too coarse
    await asyncio.sleep(max(0.0, due - time.monotonic()))
    return due


async def serve_relay(upstream: str) -> None:
    """Listen, print the base URL, and pass answers on: what any proxy that reads chunks must do."""

    async def handler(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        with suppress(ConnectionError):  # the client leaves at the end of a measurement
            async with session.post(upstream + "/chat/completions", data=body) as answer:
                if answer.content_type == "application/json":
                    return web.Response(body=_again(await answer.read()), content_type="application/json")
                await response.prepare(request)
                unread = b""
                async for data in answer.content.iter_any():
                    *events, unread = (unread + data).split(b"\n\n")
                    for event in events:
                        await response.write(b"data: " + _again(event.removeprefix(b"data: ")) + b"\n\n")
            await response.write_eof()
        return response

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        app = web.Application()
        app.router.add_post(CHAT, handler)
        runner = web.AppRunner(app, handler_cancellation=True, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        _print_url(runner.addresses[0][1])
        await asyncio.Event().wait()


def _again(data: bytes) -> bytes:
    return data if data == b"[DONE]" else orjson.dumps(orjson.loads(data))


def _print_url(port: int) -> None:
    print(f"http://127.0.0.1:{port}/v1", flush=True)


@contextmanager
def running(command: list[str], port: int | None = None) -> Iterator[tuple[str, int]]:
    """Base URL and process of a server, which prints the URL unless `port` is given."""
    with subprocess.Popen(command, stdout=subprocess.PIPE if port is None else None, text=True) as process:
        try:
            yield _printed_url(process) if port is None else _answering(port, process), process.pid
        finally:
            process.terminate()


def _printed_url(process: "subprocess.Popen[str]") -> str:
    assert process.stdout
    for line in process.stdout:
        if "http://" in line:
            return "http://" + line.split("http://")[1].split()[0].rstrip(",")
    raise SystemExit(f"{process.args!r} ended before it was ready")


def _answering(port: int, process: "subprocess.Popen[str]") -> str:
    until = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return f"http://127.0.0.1:{port}/v1"
        time.sleep(0.1)
    raise SystemExit(f"{process.args!r} does not listen on port {port}")


def own(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "benchmarks.relay", *arguments]


def weir(upstream: str, *options: str) -> list[str]:
    serve = [sys.executable, "-m", "proxy", "serve", "--log-level", "error", "--port", "0"]
    serve += ["--max-requests-per-caller", "4096"]  # all streams are of one address
    return [*serve, "--engine", "openai", "--upstream", upstream, *options]


def guards_file(folder: Path, name: str = "guards", **args: str) -> str:
    """A configuration with the guards, none of which finds anything in the answer. `args`: of each guard."""
    phrases = [f"{phrase} xyzzy" for phrase in phrase_list(1000, seed=1)]
    hooks = [
        {"path": "phrases", "args": {"phrases": phrases, **args}},
        {"path": "pii", "args": args},
        {"path": "secrets", "args": args},
    ]
    path = folder / f"{name}.json"
    path.write_bytes(orjson.dumps({"hooks": hooks}))  # YAML reads JSON
    return str(path)


def middles(upstream: str, folder: Path, also: list[str], stack: ExitStack) -> dict[str, tuple[str, int]]:
    """The base URL and the process of everything that is measured."""
    commands = {
        RELAY: own("--serve-relay", upstream),
        FAST_RELAY: own("--serve-relay", upstream, "--uvloop"),
        PLAIN: weir(upstream),
        GUARDED: weir(upstream, "--config", guards_file(folder)),
    }
    started = {name: stack.enter_context(running(command)) for name, command in commands.items()}
    for named in also:
        name, _, command = named.partition("=")
        port = free_port()
        words = [word.format(port=port, upstream=upstream) for word in command.split()]
        started[name] = stack.enter_context(running(words, port))
    return started


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def measure(base_url: str, pid: int, num_streams: int, seconds: float, model: str) -> Result:
    parts = urlsplit(base_url)
    assert parts.hostname
    assert parts.port
    body = {**BODY, "model": model}
    streams = [ChunkStream(parts.hostname, parts.port, body) for _ in range(num_streams)]
    return measured_streams(streams, pid, seconds)


def report(measured: Mapping[str, list[Result]]) -> None:
    columns = (
        ("CPU µs a chunk", 16),
        ("chunks/s", 12),
        ("of the relay", 14),
        ("on uvloop", 11),
        ("of no hooks", 13),
    )
    print(f"{'':<26}" + "".join(f"{name:>{width}}" for name, width in columns))
    for name, results in measured.items():
        ratios = [ratio(results, measured[other]) for other in (RELAY, FAST_RELAY, PLAIN)]
        cost = statistics.median(result.server for result in results)
        rate = statistics.median(result.events_per_second for result in results)
        print(
            f"{name:<26}{cost:16.1f}{rate:12,.0f}{ratios[0]:14.2f}{ratios[1]:11.2f}{ratios[2]:13.2f}",
            flush=True,
        )


def ratio(results: list[Result], baseline: list[Result]) -> float:
    """The median over the rounds. The two results of a round share the machine's other load."""
    return statistics.median(a.server / b.server for a, b in zip(results, baseline, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--steps", type=float, nargs="+", default=[5.0, 20.0, 50.0], help="milliseconds")
    parser.add_argument("--texts", choices=TEXTS, nargs="+", default=TEXTS)
    parser.add_argument("--at-once", action="store_true", help="send the chunks of all streams together")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--also", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--serve-upstream", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--serve-relay", help=argparse.SUPPRESS)
    parser.add_argument("--uvloop", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve_upstream is not None:
        asyncio.run(serve_upstream(options.serve_upstream, at_once=options.at_once))
    elif options.serve_relay is not None:
        (event_loop.run if options.uvloop else asyncio.run)(serve_relay(options.serve_relay))
    else:
        compare(options)


def compare(options: argparse.Namespace) -> None:
    at_once = ["--at-once"] if options.at_once else []
    command = own("--serve-upstream", "10", *at_once)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        upstream, _ = stack.enter_context(running(command))
        started = middles(upstream, Path(folder), options.also, stack)
        print(f"{processor()}\n{options.streams} streams{', all at once' if options.at_once else ''}")
        for text, step in product(options.texts, options.steps):
            measured: dict[str, list[Result]] = {name: [] for name in started}
            for _ in range(options.rounds):
                for name, server in started.items():
                    model = f"{text}@{step:g}"
                    measured[name].append(measure(*server, options.streams, options.seconds, model))
            print(f"\n{text}, a chunk each {step:g} ms")
            report(measured)


if __name__ == "__main__":
    main()
