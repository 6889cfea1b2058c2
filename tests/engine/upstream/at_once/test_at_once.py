"""An upstream's deltas are fed in the turn of the event loop that brings their bytes. No task is woken."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import partial
from itertools import pairwise
from typing import Any

import orjson
import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import Delta, EngineError
from engine.streams.flow import Stage, StagedFlow
from engine.upstream import limits
from engine.upstream.body import Body
from engine.upstream.limits import UpstreamOptions
from engine.upstream.openai.engine import OpenAIEngine
from tests.engine.streams.stages import Answer, Passing, Waiting
from tests.helpers import make_request, options_with, until

DONE = b"data: [DONE]\n\n"
REQUEST = make_request(messages=({"role": "user", "content": "Hi"},))


def event(text: str, finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": finish}
    return b"data: " + orjson.dumps({"choices": [choice]}) + b"\n\n"


class Upstream:
    """Answers each request with the head of a stream. The test sends the rest."""

    def __init__(self) -> None:
        self.num_connections = 0
        self.has_left = False
        """Whether the engine has closed a connection."""
        self._writer: asyncio.StreamWriter | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.num_connections += 1
        while head := await self._head(reader):
            size = next(int(line[15:]) for line in head.lower().split(b"\r\n") if b"content-length" in line)
            await reader.readexactly(size)
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
            )
            self._writer = writer
        self.has_left = True
        writer.close()

    @staticmethod
    async def _head(reader: asyncio.StreamReader) -> bytes:
        try:
            return await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""

    async def send(self, *pieces: bytes) -> None:
        await until(lambda: self._writer is not None)
        assert self._writer is not None
        for piece in pieces:
            self._writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await self._writer.drain()

    async def end(self) -> None:
        assert self._writer is not None
        self._writer.write(b"0\r\n\r\n")
        self._writer = None

    def cut(self) -> None:
        assert self._writer is not None
        self._writer.transport.abort()


@asynccontextmanager
async def running(
    context: ssl.SSLContext | None = None, **options: Any
) -> AsyncIterator[tuple[Upstream, OpenAIEngine]]:
    """An upstream that cannot list its models, and an engine that asks it."""
    upstream = Upstream()
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    url = f"{'http' if context is None else 'https'}://127.0.0.1:{port}"
    engine = OpenAIEngine(url, options=options_with(UpstreamOptions, **options))
    engine._served = _nothing  # type: ignore[method-assign, assignment]
    await engine.start()
    try:
        yield upstream, engine
    finally:
        await engine.aclose()
        server.close()
        await server.wait_closed()


async def _nothing(_: Any) -> Any:
    return OpenAIEngine("http://127.0.0.1:1").info


class Reader(Answer):
    """The end of an answer's flow. It knows which deltas no task has fed."""

    def __init__(self, engine: OpenAIEngine, *guard: Stage) -> None:
        super().__init__()
        self.at_once: list[str] = []
        self._flow = StagedFlow(partial(engine.feed, REQUEST), guard=guard)

    def feed(self, delta: Delta) -> None:
        super().feed(delta)
        if asyncio.current_task() is None:
            self.at_once.append(delta.text)

    async def read(self) -> None:
        await self._flow.run(self)


async def begun(upstream: Upstream, reader: Reader, tasks: asyncio.TaskGroup) -> "asyncio.Task[None]":
    """A reader that has had two deltas: those that follow are like them."""
    task = tasks.create_task(reader.read())
    for text in ("a", "b"):
        await upstream.send(event(text))
        await until(lambda text=text: reader.texts[-1:] == [text])
    return task


async def finished(upstream: Upstream) -> None:
    await upstream.send(event("", "stop"), DONE)
    await upstream.end()


async def test_deltas_reach_the_answer_without_waking_a_task() -> None:
    async with running() as (upstream, engine), asyncio.TaskGroup() as tasks:
        reader = Reader(engine)
        await begun(upstream, reader, tasks)
        for text in ("c", "d", "e"):
            await upstream.send(event(text))
            await until(lambda text=text: reader.texts[-1] == text)
        await finished(upstream)
    assert reader.at_once[-3:] == ["c", "d", "e"]
    assert "".join(reader.texts) == "abcde"
    assert reader.deltas[-1].finish_reason == "stop"
    assert engine.stats().generation_tokens_total == 5


async def test_what_comes_while_a_stage_waits_is_fed_once_and_what_follows_at_once() -> None:
    async with running() as (upstream, engine), asyncio.TaskGroup() as tasks:
        waiting = Waiting("c")
        reader = Reader(engine, waiting)
        await begun(upstream, reader, tasks)
        await upstream.send(event("c"))
        await until(lambda: "c" in waiting.seen)
        await upstream.send(event("d"))
        assert reader.texts == ["a", "b"]
        waiting.go_on.set()
        await until(lambda: reader.texts[-1] == "d")
        await upstream.send(event("e"))
        await until(lambda: reader.texts[-1] == "e")
        await finished(upstream)
    assert "e" in reader.at_once
    assert "".join(waiting.seen) == "".join(reader.texts) == "abcde"
    assert engine.stats().generation_tokens_total == 5


async def test_an_upstream_is_read_no_further_while_a_stage_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    read, sizes = Body.read, list[int]()

    async def counted(body: Body) -> bytes:
        data = await read(body)
        sizes.append(len(data))
        return data

    monkeypatch.setattr(Body, "read", counted)
    async with running() as (upstream, engine), asyncio.TaskGroup() as tasks:
        waiting = Waiting("c")
        reader = Reader(engine, waiting)
        await begun(upstream, reader, tasks)
        await upstream.send(event("c"))
        await until(lambda: "c" in waiting.seen)
        sizes.clear()
        for _ in range(50):
            await upstream.send(event("d"))
            await asyncio.sleep(0)
        assert sum(sizes) <= 50 * len(event("d")) // 2
        assert len(sizes) <= 1
        waiting.go_on.set()
        await finished(upstream)
    assert "".join(reader.texts) == "abc" + 50 * "d"


@pytest.mark.parametrize("piece", [b": a comment\n\n", event("d")[:9], event("d")])
async def test_the_time_that_a_stage_waits_is_not_the_upstream_s_silence(piece: bytes) -> None:
    async with running(upstream_timeout=0.2) as (upstream, engine), asyncio.TaskGroup() as tasks:
        waiting = Waiting("c")
        reader = Reader(engine, waiting)
        await begun(upstream, reader, tasks)
        await upstream.send(event("c"))
        await until(lambda: "c" in waiting.seen)
        await upstream.send(piece)
        late = asyncio.get_running_loop().time() + 0.3
        await until(lambda: asyncio.get_running_loop().time() > late)
        waiting.go_on.set()
        await until(lambda: "c" in reader.texts)
        rest = event("d").removeprefix(piece)
        await upstream.send(*([rest] if rest else []))
        await finished(upstream)
    assert "".join(reader.texts) == "abcd"


NAME: ContextVar[str] = ContextVar("NAME")


async def test_stages_run_in_the_context_of_the_reader() -> None:
    """The connection may have been opened by another request, and calls in that request's context."""
    seen: list[str | None] = []

    class Named(Reader):
        def feed(self, delta: Delta) -> None:
            seen.append(NAME.get(None))
            super().feed(delta)

        async def read(self) -> None:
            NAME.set(f"reader {number}")
            await super().read()

    async with running() as (upstream, engine):
        for number in range(2):
            seen.clear()
            async with asyncio.TaskGroup() as tasks:
                reader = Named(engine)
                await begun(upstream, reader, tasks)
                await upstream.send(event("c"))
                await until(lambda reader=reader: reader.texts[-1] == "c")
                await finished(upstream)
            assert "c" in reader.at_once
            assert set(seen) == {f"reader {number}"}
        assert upstream.num_connections == 1


async def test_a_connection_is_used_again_after_an_answer_that_was_fed_at_once() -> None:
    async with running() as (upstream, engine):
        for _ in range(3):
            async with asyncio.TaskGroup() as tasks:
                reader = Reader(engine)
                await begun(upstream, reader, tasks)
                await upstream.send(event("c"))
                await finished(upstream)
            assert "".join(reader.texts) == "abc"
        assert upstream.num_connections == 1


async def failure_of(then: Callable[[Upstream, OpenAIEngine], Any], **options: Any) -> EngineError:
    """The error of a reader that has been fed a delta at once, and waits for the next."""
    async with running(**options) as (upstream, engine):
        reader = Reader(engine)
        with pytest.raises(ExceptionGroup) as raised:
            async with asyncio.TaskGroup() as tasks:
                await begun(upstream, reader, tasks)
                await upstream.send(event("c"))
                await until(lambda: reader.texts[-1] == "c")
                assert reader.at_once
                if (waiting := then(upstream, engine)) is not None:
                    await waiting
        (error,) = raised.value.exceptions
        assert isinstance(error, EngineError)
        assert engine.stats().num_running == 0
        assert reader.is_closed
        return error


async def test_a_connection_that_breaks_ends_the_wait() -> None:
    error = await failure_of(lambda upstream, engine: upstream.cut())
    assert (error.status, str(error)) == (502, "The connection to the upstream engine broke.")


async def test_an_upstream_that_falls_silent_is_waited_for_until_the_deadline() -> None:
    error = await failure_of(lambda upstream, engine: None, upstream_timeout=0.05)
    assert error.status == 504


async def test_each_piece_that_is_fed_at_once_gives_the_upstream_its_time_anew() -> None:
    async with running(upstream_timeout=1.0) as (upstream, engine), asyncio.TaskGroup() as tasks:
        reader = Reader(engine)
        await begun(upstream, reader, tasks)
        for text in "cdef":
            await asyncio.sleep(0.3)
            await upstream.send(event(text))
        await until(lambda: "".join(reader.texts) == "abcdef")
        await finished(upstream)
    assert "f" in reader.at_once


async def test_a_finished_answer_waits_not_long_for_the_end_of_its_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "_AFTER_FINISH", 0.05)
    async with running() as (upstream, engine), asyncio.TaskGroup() as tasks:
        reader = Reader(engine)
        task = await begun(upstream, reader, tasks)
        await upstream.send(event("", "stop"))
        await asyncio.wait_for(task, 20)
    assert reader.deltas[-1].finish_reason == "stop"


async def test_an_error_after_text_is_the_upstream_s_fault_whatever_its_code() -> None:
    event_400 = b'data: {"error": {"code": 400, "message": "bad"}}\n\n'
    error = await failure_of(lambda upstream, engine: upstream.send(event_400))
    assert error.status == 502


async def test_an_engine_that_closes_ends_the_wait() -> None:
    error = await failure_of(lambda upstream, engine: engine.aclose())
    assert (error.status, str(error)) == (503, "The engine is shutting down.")


async def test_bytes_that_cannot_be_read_end_the_wait() -> None:
    error = await failure_of(lambda upstream, engine: upstream.send(b"data: {\n\n"))
    assert (error.status, str(error)) == (502, "The upstream engine sent an invalid response.")


async def test_an_answer_that_is_too_long_ends_while_it_is_fed_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(UpstreamOptions, "max_upstream_answer", 4 * len(event("a")))
    error = await failure_of(lambda upstream, engine: upstream.send(event("d"), event("e")))
    assert (error.status, str(error)) == (502, "The upstream engine sent more than an answer may have.")


async def test_many_bytes_are_not_fed_at_once() -> None:
    """aiohttp may have stopped to read, and others get their turn."""
    async with running() as (upstream, engine), asyncio.TaskGroup() as tasks:
        reader = Reader(engine)
        await begun(upstream, reader, tasks)
        await upstream.send(event("c") * 60)
        await until(lambda: len("".join(reader.texts)) == 62)
        await finished(upstream)
    assert "c" not in "".join(reader.at_once)


async def test_a_delta_that_is_too_much_is_not_fed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UpstreamOptions, "max_upstream_answer", 2 * len(event("a")) + 1)
    async with running() as (upstream, engine):
        reader = Reader(engine)
        with pytest.raises(ExceptionGroup):
            async with asyncio.TaskGroup() as tasks:
                await begun(upstream, reader, tasks)
                await upstream.send(event("c"))
                await until(lambda: upstream.has_left)
    assert reader.texts
    assert "c" not in "".join(reader.texts)


async def test_an_event_that_is_too_long_is_not_fed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(UpstreamOptions, "max_upstream_event", 2 * len(event("a")))
    error = await failure_of(lambda upstream, engine: upstream.send(event("d" * 2 * len(event("a")))))
    assert (error.status, str(error)) == (502, "The upstream engine sent an event that is too long.")


async def test_a_reader_that_is_cancelled_hangs_up() -> None:
    async with running() as (upstream, engine):
        reader = Reader(engine)
        async with asyncio.TaskGroup() as tasks:
            task = await begun(upstream, reader, tasks)
            await upstream.send(event("c"))
            await until(lambda: reader.texts[-1] == "c")
            task.cancel()
            await until(lambda: upstream.has_left)
        assert "".join(reader.texts) == "abc"
        assert engine.stats().num_running == 0


@pytest.mark.parametrize("is_slow", [False, True])
async def test_a_guard_that_ends_the_answer_hangs_up_though_its_client_is_slow(is_slow: bool) -> None:
    async with running() as (upstream, engine), asyncio.TaskGroup() as tasks:
        client = Waiting("c") if is_slow else Waiting()
        guard = Passing(lambda stage, delta: stage.flow.finish() if "c" in delta.text else None)
        reader = Reader(engine, guard, client)
        await begun(upstream, reader, tasks)
        await upstream.send(event("c"))
        await until(lambda: upstream.has_left)
        assert engine.stats().num_running == 0
        client.go_on.set()
    assert reader.texts == ["a", "b", "c"]


async def test_deltas_are_fed_at_once_from_a_connection_with_tls(monkeypatch: pytest.MonkeyPatch) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    with authority.cert_pem.tempfile() as path:
        monkeypatch.setenv("SSL_CERT_FILE", path)
        monkeypatch.setattr("aiohttp.connector._SSL_CONTEXT_VERIFIED", ssl.create_default_context())
        async with running(context) as (upstream, engine), asyncio.TaskGroup() as tasks:
            reader = Reader(engine)
            await begun(upstream, reader, tasks)
            await upstream.send(event("c"))
            await until(lambda: reader.texts[-1] == "c")
            await finished(upstream)
    assert "c" in reader.at_once
    assert "".join(reader.texts) == "abc"


class Sometimes(Stage):
    """Waits for a turn of the event loop at deltas of these numbers."""

    def __init__(self, numbers: set[int]) -> None:
        self._numbers = numbers
        self._number = 0

    def feed(self, delta: Delta) -> None:
        self._number += 1
        if self._number in self._numbers:
            self.flow.wait_for(self._feed_later(delta))
        else:
            self.next.feed(delta)

    async def _feed_later(self, delta: Delta) -> None:
        await asyncio.sleep(0)
        self.next.feed(delta)


@given(
    texts=st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=12),
    cuts=st.sets(st.integers(1, 900), max_size=20),
    waits=st.sets(st.integers(1, 30)),
)
def test_any_cut_says_the_same(texts: Sequence[str], cuts: set[int], waits: set[int]) -> None:
    answer = b"".join(map(event, texts)) + event("", "stop") + DONE
    edges = [0, *sorted(cut for cut in cuts if cut < len(answer)), len(answer)]
    pieces = [answer[a:b] for a, b in pairwise(edges)]

    async def say() -> Reader:
        async with running() as (upstream, engine), asyncio.TaskGroup() as tasks:
            reader = Reader(engine, Sometimes(waits))
            tasks.create_task(reader.read())
            await upstream.send(*pieces)
            await upstream.end()
        assert engine.stats().generation_tokens_total == len(texts)
        return reader

    reader = asyncio.run(say())
    assert "".join(reader.texts) == "".join(texts)
    assert reader.deltas[-1].finish_reason == "stop"
