"""An upstream's body, piece by piece."""

import asyncio
import gzip
import itertools
import zlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from aiohttp.base_protocol import BaseProtocol
from hypothesis import given
from hypothesis import strategies as st

from engine.protocol import EngineError
from engine.upstream.body import Body
from engine.upstream.limits import SLICE, Patience, UpstreamOptions
from engine.upstream.request_tracker import RequestTracker


class Wire(BaseProtocol):
    connected = True


def received(*pieces: bytes, encoding: str = "identity", is_whole: bool = False) -> Any:
    """A response of which these pieces have come."""
    loop = asyncio.get_running_loop()
    content = aiohttp.StreamReader(Wire(loop), limit=2**16, loop=loop)
    for piece in pieces:
        content.feed_data(piece)
    if is_whole:
        content.feed_eof()
    return SimpleNamespace(headers={"Content-Encoding": encoding}, content=content)


def patience(seconds: float) -> Patience:
    return Patience(UpstreamOptions(upstream_timeout=seconds), asyncio.get_running_loop().time)


async def test_a_connection_closed_between_two_reads_is_an_error_of_the_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """aiohttp raises `RuntimeError` then, which would be taken for an error of Weir."""
    monkeypatch.setattr(Wire, "connected", False)
    with Body(received(b"data: 1"), RequestTracker()) as body:
        assert await body.read() == b"data: 1"
        with pytest.raises(aiohttp.ClientError):
            await body.read()


async def test_a_read_ends_at_its_deadline() -> None:
    with Body(received(), RequestTracker(), patience(0.01)) as body:
        with pytest.raises(TimeoutError):
            await body.read()


async def test_a_deadline_may_come_closer() -> None:
    bounds = patience(1000.0)
    with Body(received(b"a"), RequestTracker(), bounds) as body:
        assert await body.read() == b"a"
        bounds.deadline = asyncio.get_running_loop().time()
        with pytest.raises(TimeoutError):
            await body.read()


async def test_a_deadline_that_was_put_off_ends_no_read() -> None:
    response, bounds = received(b"a"), patience(0.01)
    loop = asyncio.get_running_loop()
    with Body(response, RequestTracker(), bounds) as body:
        assert await body.read() == b"a"
        first = bounds.deadline
        bounds.deadline += 1000.0
        loop.call_at(first + 0.01, response.content.feed_data, b"b")
        assert await body.read() == b"b"


async def test_one_timer_serves_all_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, bounds, timers = asyncio.get_running_loop(), patience(1000.0), 0
    call_at = loop.call_at

    def counted(*args: Any, **kwargs: Any) -> asyncio.TimerHandle:
        nonlocal timers
        timers += 1
        return call_at(*args, **kwargs)

    response = received()
    with Body(response, RequestTracker(), bounds) as body:
        monkeypatch.setattr(loop, "call_at", counted)
        for _ in range(100):
            response.content.feed_data(b"a")
            assert await body.read() == b"a"
            bounds.received(has_piece=True)
    assert timers == 1


async def test_a_beginning_is_cut_at_its_length_and_may_be_all() -> None:
    for pieces, beginning in (((b"abc", b"defg"), b"abcde"), ((b"abc",), b"abc")):
        with Body(received(*pieces, is_whole=True), RequestTracker()) as body:
            assert await body.beginning(5) == beginning


async def test_closing_the_engine_ends_a_read() -> None:
    requests = RequestTracker()
    with Body(received(), requests) as body:
        asyncio.get_running_loop().call_soon(requests.close)
        with pytest.raises(EngineError, match="shutting down"):
            await body.read()


@given(
    data=st.binary(max_size=100),
    times=st.integers(1, 2000),
    cuts=st.sets(st.integers(0, 3000)),
    encoding=st.sampled_from(["identity", "gzip", "deflate"]),
)
def test_any_cut_of_any_body_reads_the_same(data: bytes, times: int, cuts: set[int], encoding: str) -> None:
    packs: dict[str, Callable[[bytes], bytes]] = {
        "identity": bytes,
        "gzip": gzip.compress,
        "deflate": zlib.compress,
    }
    packed = packs[encoding](data * times)
    edges = [0, *sorted(cut for cut in cuts if cut < len(packed)), len(packed)]
    pieces = [packed[a:b] for a, b in itertools.pairwise(edges)]

    async def read() -> list[bytes]:
        read = []
        with Body(received(*pieces, encoding=encoding, is_whole=True), RequestTracker()) as body:
            while piece := await body.read():
                read.append(piece)
        return read

    got = asyncio.run(read())
    assert b"".join(got) == data * times
    assert max(map(len, got), default=0) <= SLICE
