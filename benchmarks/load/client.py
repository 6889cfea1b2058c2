"""One request to an OpenAI-compatible server over server-sent events, and the times of its answer."""

import asyncio
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import aiohttp
import orjson

from engine.upstream.sse import Event, SSEDecoder

Clock = Callable[[], float]

_KEEPALIVE = 4.0
"""Seconds that an idle connection is kept. Shorter than uvicorn's 5, so that no request uses a connection
that the server has just closed."""
_DRAIN = 0.05
"""Seconds to wait, after `[DONE]`, for the end of the response. Only then is the connection used again."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The reason why a request is not counted. Failures are counted by kind."""

    kind: str
    message: str


class RequestFailed(Exception):
    """Ends a request with a `Failure`."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.failure = Failure(kind, message[:300])


@dataclass(slots=True, eq=False)
class RequestRecord:
    """The record of one request. Times are seconds since its run began."""

    sent: float
    times: "array[float]" = field(default_factory=lambda: array("d"))
    """The arrival of each chunk with text. Chunks that arrived in one read have the same time."""
    ended: float = 0.0
    usage_tokens: int | None = None
    finish_reason: str | None = None
    failure: Failure | None = None

    @property
    def num_tokens(self) -> int:
        """Output tokens by the server's own count. Without one, the chunks with text."""
        return self.usage_tokens or len(self.times)

    @property
    def ttft(self) -> float:
        return self.times[0] - self.sent

    @property
    def e2el(self) -> float:
        return self.ended - self.sent

    @property
    def gaps(self) -> list[float]:
        return [after - before for before, after in zip(self.times, self.times[1:], strict=False)]

    @property
    def tpot(self) -> float | None:
        """Seconds per output token after the first; None if there is only one token."""
        if self.num_tokens < 2:
            return None
        return (self.times[-1] - self.times[0]) / (self.num_tokens - 1)


class AnswerReader:
    """Reads the bytes of a stream, as they arrive, into a record. No I/O."""

    def __init__(self, record: RequestRecord) -> None:
        self._record = record
        self._decoder = SSEDecoder()
        self.is_done = False

    def feed(self, data: bytes, now: float) -> None:
        """Raises `RequestFailed` for an error event, and for an event that is no chunk."""
        try:
            self._events(self._decoder.feed(data), now)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise RequestFailed("not understood", data.decode("utf-8", "replace")) from error

    def close(self, now: float) -> None:
        """The stream is over. Raises `RequestFailed` if its end is missing, or if it has no text."""
        self.feed(b"\n\n", now)  # the empty line of the last event may be missing
        if not (self.is_done or self._record.finish_reason):
            raise RequestFailed("cut short", "the stream ended without a finish_reason and without [DONE]")
        if not self._record.times:
            raise RequestFailed("no text", f"finish_reason: {self._record.finish_reason}")

    def _events(self, events: list[Event], now: float) -> None:
        for event in events:
            if event.data == b"[DONE]":
                self.is_done = True
                return
            self._chunk(orjson.loads(event.data), now)

    def _chunk(self, chunk: Mapping[str, Any], now: float) -> None:
        if error := chunk.get("error"):
            raise RequestFailed("error event", orjson.dumps(error).decode())
        if usage := chunk.get("usage"):
            self._record.usage_tokens = usage.get("completion_tokens")
        for choice in chunk["choices"]:
            self._record.finish_reason = choice.get("finish_reason") or self._record.finish_reason
            if choice["text"] if "text" in choice else _has_text(choice.get("delta") or {}):
                self._record.times.append(now)


def _has_text(delta: Mapping[str, Any]) -> bool:
    """Whether it has any text of a model: content, reasoning (under either name) or a tool call."""
    return bool(
        delta.get("content")
        or delta.get("reasoning_content")
        or delta.get("reasoning")
        or delta.get("tool_calls")
    )


class Client:
    """Sends requests to one server. `url`: the endpoint's. `timeout`: seconds for one whole request."""

    def __init__(self, url: str, *, api_key: str | None, timeout: float) -> None:
        self.url = url
        self._headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._timeout = aiohttp.ClientTimeout(total=timeout)

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEPALIVE)
        self.session = aiohttp.ClientSession(
            connector=connector, headers=self._headers, timeout=self._timeout
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.session.close()

    async def send(self, body: bytes, record: RequestRecord, now: Clock) -> None:
        """Send `body`, and record the answer or the failure. Raises nothing but cancellation."""
        try:
            async with self.session.post(self.url, data=body, allow_redirects=False) as response:
                if response.status != 200:
                    raise RequestFailed(f"HTTP {response.status}", await response.text(errors="replace"))
                await self._read(response, record, now)
        except RequestFailed as failed:
            record.failure = failed.failure
        except TimeoutError:
            record.failure = Failure("timeout", f"no end within {self._timeout.total:g} s")
        except (aiohttp.ClientError, OSError) as error:
            record.failure = Failure("connection", str(error) or type(error).__name__)
        if record.failure:
            record.ended = now()

    async def _read(self, response: aiohttp.ClientResponse, record: RequestRecord, now: Clock) -> None:
        reader = AnswerReader(record)
        while not reader.is_done and (data := await response.content.readany()):
            reader.feed(data, now())
        record.ended = now()
        reader.close(record.ended)
        await _drain(response)


async def _drain(response: aiohttp.ClientResponse) -> None:
    """Read the last bytes, if they arrive at once, so that the connection can be used again."""
    try:
        async with asyncio.timeout(_DRAIN):
            while not response.content.at_eof():
                await response.content.readany()
    except TimeoutError:
        pass
