"""An upstream's deltas are handed over to a reader that waits, without waking it."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from contextvars import ContextVar
from itertools import pairwise
from typing import Any

import orjson
import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import Delta, EngineError
from engine.streams.generation import Generation
from engine.upstream.limits import UpstreamOptions
from engine.upstream.openai.engine import OpenAIEngine
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


class Reader:
    """Iterates over an answer, and takes what is handed over, unless it is to refuse."""

    def __init__(self, engine: OpenAIEngine, refuses: Callable[[str], bool] = lambda text: False) -> None:
        self.answer = Generation(engine.generate(REQUEST), can_hand_over=engine.info.can_hand_over)
        self.iterated: list[Delta] = []
        self.taken: list[Delta] = []
        self.said: list[str] = []
        self._refuses = refuses

    async def read(self) -> None:
        async with aclosing(self.answer):
            async for delta in self.answer:
                if not self.iterated:
                    self.answer.hand_to(self.take)
                self.iterated.append(delta)
                self.said.append(delta.text)

    def take(self, delta: Delta) -> bool:
        if self._refuses(delta.text):
            return False
        self.taken.append(delta)
        self.said.append(delta.text)
        return True


async def begun(upstream: Upstream, reader: Reader, tasks: asyncio.TaskGroup) -> "asyncio.Task[None]":
    """A reader that has had two deltas, so that it is handed those that follow."""
    task = tasks.create_task(reader.read())
    for text in ("a", "b"):
        await upstream.send(event(text))
        await until(lambda text=text: reader.said[-1:] == [text])
    return task


async def finished(upstream: Upstream) -> None:
    await upstream.send(event("", "stop"), DONE)
    await upstream.end()


async def test_a_reader_that_waits_gets_deltas_without_being_woken() -> None:
    async with running() as (upstream, engine), asyncio.TaskGroup() as tasks:
        reader = Reader(engine)
        await begun(upstream, reader, tasks)
        for text in ("c", "d", "e"):
            await upstream.send(event(text))
            await until(lambda text=text: reader.said[-1] == text)
        await finished(upstream)
    assert [delta.text for delta in reader.taken][-3:] == ["c", "d", "e"]
    assert "".join(reader.said) == "abcde"
    assert reader.iterated[-1].finish_reason == "stop"
    assert engine.stats().generation_tokens_total == 5


async def test_a_delta_that_is_not_taken_comes_once_by_iteration() -> None:
    async with running() as (upstream, engine), asyncio.TaskGroup() as tasks:
        reader = Reader(engine, refuses=lambda text: text == "c")
        await begun(upstream, reader, tasks)
        for text in ("c", "d"):
            await upstream.send(event(text))
            await until(lambda text=text: reader.said[-1] == text)
        await finished(upstream)
    assert "c" in [delta.text for delta in reader.iterated]
    assert "d" in [delta.text for delta in reader.taken]
    assert "".join(reader.said) == "abcd"
    assert engine.stats().generation_tokens_total == 4


NAME: ContextVar[str] = ContextVar("NAME")


async def test_what_takes_runs_in_the_context_of_the_reader() -> None:
    """The connection may have been opened by another request, and calls in that request's context."""
    seen: list[str | None] = []

    class Named(Reader):
        async def read(self) -> None:
            NAME.set("the reader's")
            await super().read()

        def take(self, delta: Delta) -> bool:
            seen.append(NAME.get(None))
            return super().take(delta)

    async with running() as (upstream, engine):
        for _ in range(2):
            async with asyncio.TaskGroup() as tasks:
                reader = Named(engine)
                await begun(upstream, reader, tasks)
                await upstream.send(event("c"))
                await until(lambda reader=reader: reader.said[-1] == "c")
                await finished(upstream)
        assert upstream.num_connections == 1
    assert len(seen) >= 2
    assert set(seen) == {"the reader's"}


async def test_a_connection_is_used_again_behind_an_answer_that_was_handed_over() -> None:
    async with running() as (upstream, engine):
        for _ in range(3):
            async with asyncio.TaskGroup() as tasks:
                reader = Reader(engine)
                await begun(upstream, reader, tasks)
                await upstream.send(event("c"))
                await finished(upstream)
            assert "".join(reader.said) == "abc"
        assert upstream.num_connections == 1


async def failure_of(then: Callable[[Upstream, OpenAIEngine], Any], **options: Any) -> EngineError:
    """The error of a reader that has been handed a delta, and waits for the next."""
    async with running(**options) as (upstream, engine):
        reader = Reader(engine)
        with pytest.raises(ExceptionGroup) as raised:
            async with asyncio.TaskGroup() as tasks:
                await begun(upstream, reader, tasks)
                await upstream.send(event("c"))
                await until(lambda: reader.said[-1] == "c")
                assert reader.taken
                if (waiting := then(upstream, engine)) is not None:
                    await waiting
        (error,) = raised.value.exceptions
        assert isinstance(error, EngineError)
        assert engine.stats().num_running == 0
        return error


async def test_a_connection_that_breaks_ends_the_wait() -> None:
    error = await failure_of(lambda upstream, engine: upstream.cut())
    assert (error.status, str(error)) == (502, "The connection to the upstream engine broke.")


async def test_an_upstream_that_falls_silent_is_waited_for_until_the_deadline() -> None:
    error = await failure_of(lambda upstream, engine: None, upstream_timeout=0.05)
    assert error.status == 504


async def test_an_engine_that_closes_ends_the_wait() -> None:
    error = await failure_of(lambda upstream, engine: engine.aclose())
    assert (error.status, str(error)) == (503, "The engine is shutting down.")


async def test_bytes_that_cannot_be_read_end_the_wait() -> None:
    error = await failure_of(lambda upstream, engine: upstream.send(b"data: {\n\n"))
    assert (error.status, str(error)) == (502, "The upstream engine sent an invalid response.")


async def test_an_answer_that_is_too_long_ends_while_it_is_handed_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(UpstreamOptions, "max_upstream_answer", 4 * len(event("a")))
    error = await failure_of(lambda upstream, engine: upstream.send(event("d"), event("e")))
    assert (error.status, str(error)) == (502, "The upstream engine sent more than an answer may have.")


async def test_a_cancelled_reader_gets_nothing_more() -> None:
    async with running() as (upstream, engine):
        reader = Reader(engine)
        async with asyncio.TaskGroup() as tasks:
            task = await begun(upstream, reader, tasks)
            await upstream.send(event("c"))
            await until(lambda: reader.said[-1] == "c")
            task.cancel()
            await upstream.send(event("d"))
        assert "".join(reader.said) == "abc"
        assert engine.stats().num_running == 0


async def test_deltas_are_handed_over_from_a_connection_with_tls(monkeypatch: pytest.MonkeyPatch) -> None:
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
            await until(lambda: reader.said[-1] == "c")
            await finished(upstream)
    assert "c" in [delta.text for delta in reader.taken]
    assert "".join(reader.said) == "abc"


@given(
    texts=st.lists(st.text(min_size=1, max_size=6), min_size=1, max_size=12),
    cuts=st.sets(st.integers(1, 900), max_size=20),
    refused=st.sets(st.integers(0, 30)),
)
def test_any_cut_says_the_same(texts: Sequence[str], cuts: set[int], refused: set[int]) -> None:
    answer = b"".join(map(event, texts)) + event("", "stop") + DONE
    edges = [0, *sorted(cut for cut in cuts if cut < len(answer)), len(answer)]
    pieces = [answer[a:b] for a, b in pairwise(edges)]

    async def say() -> Reader:
        async with running() as (upstream, engine), asyncio.TaskGroup() as tasks:
            number = iter(range(1000))
            reader = Reader(engine, refuses=lambda text: next(number) in refused)
            tasks.create_task(reader.read())
            await upstream.send(*pieces)
            await upstream.end()
        assert engine.stats().generation_tokens_total == len(texts)
        return reader

    reader = asyncio.run(say())
    assert "".join(reader.said) == "".join(texts)
    assert [delta.finish_reason for delta in reader.iterated][-1] == "stop"
