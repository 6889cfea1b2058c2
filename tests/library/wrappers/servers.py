"""A model's server in memory, for the SDKs' HTTP clients. It sends its answer in pieces that a test draws."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import Any

import httpx2
import orjson

from engine.protocol import Delta
from proxy.wire.openai.chat import ChatAnswer, ChatRequest


class Server(httpx2.BaseTransport, httpx2.AsyncBaseTransport):
    """Sends `answer` in pieces. It counts the pieces, and the answers that were closed."""

    def __init__(self, answer: bytes, cuts: Iterable[int] = (), *, status: int = 200) -> None:
        """`cuts`: the places where a piece ends."""
        places = sorted({cut for cut in cuts if 0 < cut < len(answer)})
        ends = zip([0, *places], [*places, len(answer)], strict=True)
        self.pieces: list[Any] = [answer[start:end] for start, end in ends]
        self.status = status
        self.headers: Any = {"content-type": "text/event-stream", "x-request-id": "theirs"}
        self.asked: list[httpx2.Request] = []
        self.given = self.closings = 0
        self.stuck_after: int | None = None
        """Pieces after which no more come."""
        self.is_stuck = asyncio.Event()

    @property
    def body(self) -> dict[str, Any]:
        """The JSON of the last request."""
        body: dict[str, Any] = orjson.loads(self.asked[-1].content)
        return body

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        self.asked.append(request)
        return httpx2.Response(self.status, headers=self.headers, stream=_Pieces(self))

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        return self.handle_request(request)


class _Pieces(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    def __init__(self, server: Server) -> None:
        self._server = server

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._server.pieces:
            if isinstance(piece, BaseException):
                raise piece
            self._server.given += 1
            yield piece

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self:
            yield piece
            if self._server.given == self._server.stuck_after:
                self._server.is_stuck.set()
                await asyncio.Event().wait()

    def close(self) -> None:
        self._server.closings += 1

    async def aclose(self) -> None:
        self.close()


def chat_stream(deltas: Sequence[Delta], **fields: Any) -> bytes:
    """The deltas as a server of chats streams them."""
    given = {"messages": [{"role": "user", "content": "Hi"}], "stream": True, **fields}
    read = ChatRequest.model_validate(given)
    writer = ChatAnswer(read, read.to_request("theirs", "m"))
    return b"".join(map(writer.chunk, deltas)) + writer.end() + writer.done
