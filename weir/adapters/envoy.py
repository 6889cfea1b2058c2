"""Weir's guards behind Envoy: an external processor (`ext_proc`).

    WEIR_CONFIG=weir.yaml python -m weir.adapters.envoy --port 18080

Envoy gives it every request and answer as it comes, and gets them back as the hooks let them go on
(`FULL_DUPLEX_STREAMED`). What passes, and what is closed, says `weir.adapters.passage`. If this process fails
or breaks the protocol, Envoy answers with an error (`failure_mode_allow: false`, the default).

Read in `envoy/service/ext_proc/v3/external_processor.proto` and `ext_proc.proto` of Envoy 1.40.
"""

import argparse
import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Iterable
from typing import Any

from hooks.api.extras import from_extra
from weir.adapters.passage import FAILURES, Gate, Passage, is_open
from weir.guards import Guards

with from_extra("envoy", "gRPC", "weir.adapters.envoy"):
    import grpc
    import httpx2
    from envoy.service.ext_proc.v3 import external_processor_pb2 as pb
    from envoy.service.ext_proc.v3 import external_processor_pb2_grpc as rpc

LONGEST = 64 * 2**10
"""Bytes of a body in one message: Envoy takes no more."""
MAX_MESSAGE = 2**24
_OF_CONNECTIONS = frozenset({"connection", "keep-alive", "transfer-encoding"})

Headers = list[tuple[bytes, bytes]]


class Processor(rpc.ExternalProcessorServicer):
    """The service. `guards`: None: the hooks of the configuration. Raises `HookLoadError` and `ValueError` if
    these cannot run."""

    def __init__(self, guards: Guards | None = None) -> None:
        self._gate = Gate(guards)

    async def Process(self, messages: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
        """One request and its answer."""
        one = _Request(self._gate)
        try:
            async for message in messages:
                for response in await one.process(message):
                    yield response
        finally:
            await one.aclose()


class _Request:
    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._client = _Client()
        self._is_open = False
        self._method = self._path = ""
        self._headers: Headers = []
        self._body = bytearray()
        self._passage: Passage | None = None

    async def process(self, message: Any) -> list[Any]:
        """Envoy's message, and the messages for it. Raises `ValueError` for one that does not fit."""
        kind = message.WhichOneof("request")
        part = getattr(message, kind or "")
        if kind == "request_headers":
            return await self._begin(part)
        if self._is_open:
            return [_unchanged(kind, part)]
        if kind == "request_body":
            return await self._take_request(part.body, is_last=part.end_of_stream)
        if kind == "request_trailers":
            return [*await self._take_request(b"", is_last=True), pb.ProcessingResponse(request_trailers={})]
        if self._passage is None:
            raise ValueError(f"{kind} before the request")
        if kind == "response_headers":
            pseudo, headers = _split(part.headers.headers)
            self._client.names = [name for name, _ in headers]
            self._passage.answered(int(pseudo[b":status"]), headers)
            return await self._take_answer(b"", is_last=part.end_of_stream)
        if kind == "response_body":
            return await self._take_answer(part.body, is_last=part.end_of_stream)
        if kind == "response_trailers":
            return await self._take_answer(b"", is_last=True)
        raise ValueError(f"an unknown message: {kind}")

    async def _begin(self, part: Any) -> list[Any]:
        pseudo, self._headers = _split(part.headers.headers)
        self._method, target = pseudo[b":method"].decode(), pseudo[b":path"].decode()
        self._path = target.partition("?")[0]
        if is_open(self._method, target):
            self._is_open = True
            return [pb.ProcessingResponse(request_headers={})]
        try:
            self._gate.check(self._method, target)
        except FAILURES as error:
            return await self._refuse(error)
        return await self._take_request(b"", is_last=True) if part.end_of_stream else []

    async def _take_request(self, data: bytes, *, is_last: bool) -> list[Any]:
        self._body += data
        try:
            self._gate.check_size(self._body)
            if not is_last:
                return []
            self._passage = await self._gate.admit(self._path, self._headers, bytes(self._body), self._client)
        except FAILURES as error:
            return await self._refuse(error)
        asked = self._passage.request
        change = _change(asked.headers, [name for name, _ in self._headers], {b":path": asked.url.raw_path})
        head = pb.ProcessingResponse(request_headers={"response": {"header_mutation": change}})
        return [head, *_pieces("request_body", asked.content, is_last=True)]

    async def _take_answer(self, data: bytes, *, is_last: bool) -> list[Any]:
        assert self._passage is not None
        if data:
            await self._passage.take(data)
        if is_last:
            await self._passage.take(b"")
        return self._client.taken()

    async def _refuse(self, error: Exception) -> list[Any]:
        await self._gate.fail(error, self._client)
        return [self._client.immediate()]

    async def aclose(self) -> None:
        if self._passage is not None:
            await self._passage.aclose()


class _Client:
    """The messages for Envoy, which gives them to the client."""

    def __init__(self) -> None:
        self.names: list[bytes] = []
        """The names of the server's headers. None of them reaches the client."""
        self._status = 0
        self._headers = httpx2.Headers()
        self._body = b""
        self._messages: list[Any] = []

    async def begin(self, status: int, headers: httpx2.Headers) -> None:
        self._status, self._headers = status, headers
        change = _change(headers, self.names, {b":status": b"%d" % status})
        self._messages.append(
            pb.ProcessingResponse(response_headers={"response": {"header_mutation": change}})
        )

    async def write(self, data: bytes, *, is_last: bool) -> None:
        self._body += data
        self._messages += _pieces("response_body", data, is_last=is_last)

    def taken(self) -> list[Any]:
        taken, self._messages = self._messages, []
        return taken

    def immediate(self) -> Any:
        """A whole answer in place of the server's, which is not asked."""
        answer = {
            "status": {"code": self._status},
            "headers": _change(self._headers, (), {}),
            "body": self._body,
        }
        return pb.ProcessingResponse(immediate_response=answer)


def _split(headers: Iterable[Any]) -> tuple[dict[bytes, bytes], Headers]:
    """The pseudo-headers of HTTP/2, and the others."""
    pairs = [(one.key.encode(), one.raw_value or one.value.encode()) for one in headers]
    return (
        {name: value for name, value in pairs if name.startswith(b":")},
        [(name, value) for name, value in pairs if not name.startswith(b":")],
    )


def _change(headers: httpx2.Headers, before: Iterable[bytes], pseudo: dict[bytes, bytes]) -> dict[str, Any]:
    """Sets these headers, and removes all others that there were. The length is Envoy's to say."""
    own = {name.lower(): value for name, value in headers.raw} | pseudo
    own = {name: value for name, value in own.items() if name not in (b"content-length", b"host")}
    kept = {name.decode() for name in own} | _OF_CONNECTIONS | {"host"}
    return {
        "set_headers": [
            {
                "header": {"key": name.decode(), "raw_value": value},
                "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
            }
            for name, value in own.items()
        ],
        "remove_headers": sorted({name.decode() for name in before} - kept),
    }


def _pieces(kind: str, data: bytes, *, is_last: bool) -> list[Any]:
    starts = range(0, len(data) or 1, LONGEST)
    return [
        _body(kind, data[start : start + LONGEST], is_last and start + LONGEST >= len(data))
        for start in starts
    ]


def _body(kind: str, data: bytes, is_last: bool) -> Any:
    streamed = {"body": data, "end_of_stream": is_last}
    return pb.ProcessingResponse(**{kind: {"response": {"body_mutation": {"streamed_response": streamed}}}})


def _unchanged(kind: str, part: Any) -> Any:
    if kind.endswith("_body"):
        return _body(kind, part.body, part.end_of_stream)
    return pb.ProcessingResponse(**{kind: {}})


async def serve(host: str, port: int) -> tuple[Any, int]:
    """The started server, and its port. Raises as `Processor` does."""
    sizes = [("grpc.max_receive_message_length", MAX_MESSAGE), ("grpc.max_send_message_length", MAX_MESSAGE)]
    server = grpc.aio.server(options=sizes)
    rpc.add_ExternalProcessorServicer_to_server(Processor(), server)
    port = server.add_insecure_port(f"{host}:{port}")
    await server.start()
    return server, port


async def _main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m weir.adapters.envoy", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--host", default="127.0.0.1", help="the address that Envoy asks (%(default)s)")
    parser.add_argument("--port", type=int, default=18080, help="0: any free one (%(default)s)")
    options = parser.parse_args()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    server, port = await serve(options.host, options.port)
    print(f"Weir serves Envoy at {options.host}:{port}", flush=True)
    await stop.wait()
    await server.stop(grace=5)


if __name__ == "__main__":
    sys.exit(asyncio.run(_main()))
